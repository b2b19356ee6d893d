"""Recorded spaces: schedules of a kernel with what each measured, as files, to search on without a
device, and the bench that compares searchers on them.

Files are our own lines, or the auto-tuning community's T4 JSON, other tuners' included. They are
data, and untrusted.
"""

from .files import Read, read_recording, write_recording
from .replay import ReplayMeasurer, area, excess, play, score, trials_within
from .space import Option, Question, RecordedSpace, RecordedTrial, Recording, conflicts
from .t4 import write_t4

__all__ = [
    "Option",
    "Question",
    "Read",
    "RecordedSpace",
    "RecordedTrial",
    "Recording",
    "ReplayMeasurer",
    "area",
    "conflicts",
    "excess",
    "play",
    "read_recording",
    "score",
    "trials_within",
    "write_recording",
    "write_t4",
]
