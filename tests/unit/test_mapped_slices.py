"""Arrays of a mapped file: a part of one costs the pages of that part, and writers of one name
leave each other's files alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tunegrad.runtime import mapped
from tunegrad.runtime.mapped import MappedFileError, check_digest, map_arrays, write_arrays


def read_bytes() -> int:
    """Bytes that this process has asked the system for by reading files."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(next(line for line in text.splitlines() if line.startswith("rchar")).split()[1])


def resident_bytes(path: Path) -> int:
    """Bytes of a mapped file that this process has touched."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if "-" in line.split(" ", 1)[0] and not line.split(" ", 1)[0].endswith(":"):
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


def test_mapped_slice_reads_its_own_bytes_alone(tmp_path):
    path = tmp_path / "w.safetensors"
    large = np.arange(8 << 20, dtype=np.float32)
    write_arrays(path, {"large": large, "small": np.arange(6, dtype=np.int64)}, {})
    before = read_bytes()
    arrays, _, _ = map_arrays(path)
    part = arrays["large"][4 << 20 : (4 << 20) + 256].sum()
    assert part == large[4 << 20 : (4 << 20) + 256].sum()
    assert arrays["small"].sum() == 15
    assert read_bytes() - before < 256 << 10, "the header alone is read"
    assert 0 < resident_bytes(path) < 8 << 20, "a slice touches its pages, and some beside them"


@pytest.mark.parametrize("moment", ["replace", "flock"])
def test_a_writer_that_ends_leaves_files_alone_that_others_write(moment, tmp_path, monkeypatch):
    """Another process writes the same name just before this one locks, or renames, its file."""
    path, other, done = tmp_path / "w.safetensors", os.getpid() + 1, []
    home = Path if moment == "replace" else mapped.fcntl
    plain = getattr(home, moment)

    def then(*args):
        if not done:
            done.append(True)
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda: other)
                write_arrays(path, {"a": np.zeros(3)}, {})
        return plain(*args)

    monkeypatch.setattr(home, moment, then)
    write_arrays(path, {"a": np.ones(3)}, {})
    check_digest(path)
    assert map_arrays(path)[0]["a"].sum() == 3
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_file_that_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path):
    path, link = tmp_path / "w.safetensors", tmp_path / "newest.safetensors"
    write_arrays(path, {"a": np.zeros(3)}, {})
    link.symlink_to(path.name)
    write_arrays(link, {"a": np.ones(3)}, {})
    assert link.is_symlink()
    assert map_arrays(path)[0]["a"].sum() == 3


def test_a_pipe_is_neither_waited_for_nor_replaced(tmp_path):
    path = tmp_path / "w.safetensors"
    os.mkfifo(path)
    with pytest.raises(MappedFileError, match="no regular file"):
        map_arrays(path)
    with pytest.raises(OSError, match="no regular file"):
        write_arrays(path, {}, {})
    assert path.is_fifo()
