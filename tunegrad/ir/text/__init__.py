"""Texts of the forms: scanned, parsed and printed."""
