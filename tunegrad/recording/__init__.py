"""Recorded spaces as files: our own lines, and the auto-tuning community's T4 JSON, other tuners'
included.

Files are data, and untrusted.
"""

from tunegrad.recording.files import Read, read_recording, write_recording
from tunegrad.recording.t4 import write_t4

__all__ = ["Read", "read_recording", "write_recording", "write_t4"]
