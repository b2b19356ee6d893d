"""Devices: compile, load, launch, time. Nothing heavy is imported until a device's own module is."""
