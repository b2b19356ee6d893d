"""Texts of the forms, parsed and printed."""
