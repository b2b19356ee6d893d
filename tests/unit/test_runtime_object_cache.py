"""The cache of compiled objects: what was put comes back whole or not at all, whatever happens to
the files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tunegrad.config import cache_dir
from tunegrad.devices.processes.isolated import fork_server
from tunegrad.object_cache import writes_left
from tunegrad.runtime import ObjectCache


def key(n: int) -> str:
    return hashlib.sha256(str(n).encode()).hexdigest()


def body(n: int) -> bytes:
    return bytes([n % 251]) * (100 + n % 1000)


def files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.iterdir() if p.suffix == ".o")


def test_what_was_put_comes_back(tmp_path: Path) -> None:
    ObjectCache(tmp_path / "a" / "b").put(key(1), body(1))
    assert ObjectCache(tmp_path / "a" / "b").get(key(1)) == body(1)


def test_a_write_is_left_to_a_caller_who_waits(tmp_path: Path) -> None:
    cache, jobs = ObjectCache(tmp_path), list[Callable[[], None]]()
    with writes_left(jobs):
        cache.put(key(1), body(1))
        assert cache.get(key(1)) is None
    for job in jobs:
        job()
    cache.put(key(2), body(2))
    assert [cache.get(key(n)) for n in (1, 2)] == [body(1), body(2)]
    assert len(jobs) == 1


def test_an_unknown_key_is_a_miss(tmp_path: Path) -> None:
    assert ObjectCache(tmp_path).get(key(1)) is None


@pytest.mark.parametrize(
    "keep", [0, 5, 40, 60, -1], ids=["empty", "magic", "digest", "cut", "last byte"]
)
def test_a_cut_file_is_a_miss_and_is_removed(tmp_path: Path, keep: int) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(key(1), body(1))
    path = files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:keep])
    assert cache.get(key(1)) is None
    assert files(tmp_path) == []


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(key(1), b"object code")
    path = files(tmp_path)[0]
    whole = path.read_bytes()
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        assert cache.get(key(1)) is None, i
        assert not path.exists()


def test_the_object_of_another_key_is_a_miss_and_is_removed(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(key(1), body(1))
    files(tmp_path)[0].rename(tmp_path / f"{key(2)}.o")
    assert cache.get(key(2)) is None
    assert files(tmp_path) == []


@pytest.mark.parametrize(("version", "told"), [(b"1", False), (b"2", True), (b"3", True)])
def test_an_object_of_an_older_version_is_a_miss_and_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: bytes, told: bool
) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(key(1), body(1))
    files(tmp_path)[0].write_bytes(b"tunegrad object " + version + b"\n" + bytes(32) + body(1))
    with caplog.at_level("WARNING"):
        assert cache.get(key(1)) is None
    assert ("is damaged" in caplog.text) is told
    assert files(tmp_path) == []


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, limit_bytes=10_000)
    for n in range(8):
        cache.put(key(n), bytes(1000))
        os.utime(tmp_path / f"{key(n)}.o", (n, n))
    assert cache.get(key(0)) is not None  # used: now the newest
    for n in range(8, 12):
        cache.put(key(n), bytes(1000))
    left = {n for n in range(12) if (tmp_path / f"{key(n)}.o").exists()}
    assert 0 in left
    assert {9, 10, 11} <= left
    assert 1 not in left
    assert sum(p.stat().st_size for p in files(tmp_path)) <= 10_000


def test_processes_that_write_little_list_the_directory_as_often_as_one_that_writes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (looks.append(path), real(path))[1])
    for _ in range(1000):
        ObjectCache(tmp_path, limit_bytes=10_000).put(key(1), bytes(100))
    assert 60 < len(looks) < 300, "150 in the mean, with a deviation of 11"


def test_what_a_killed_writer_left_goes_when_it_is_old(tmp_path: Path) -> None:
    old, new = (tmp_path / f".{key(n)}.1.0.tmp" for n in (2, 3))
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (0, 0))
    ObjectCache(tmp_path, limit_bytes=10).put(key(1), body(1))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    cache = ObjectCache(tmp_path)
    cache.put(key(1), body(1))
    assert (cache.get(key(1)), files(tmp_path)) == (None, [])


def test_a_directory_that_can_not_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = ObjectCache(tmp_path / "file" / "objects")
    cache.put(key(1), body(1))
    assert cache.get(key(1)) is None


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    ObjectCache(tmp_path / "objects").put(key(1), body(1))
    assert (tmp_path / "objects").stat().st_mode & 0o077 == 0


def test_files_of_others_stay_when_all_objects_are_removed(tmp_path: Path) -> None:
    theirs = tmp_path / "build"
    theirs.mkdir()
    for name in ("main.o", "add.o", ".old.tmp"):
        (theirs / name).write_text("theirs")
        os.utime(theirs / name, (0, 0))
    (theirs / f"{key(3)}.o").mkdir()
    (tmp_path / "objects").symlink_to(theirs)
    cache = ObjectCache(tmp_path / "objects")
    cache.put(key(1), body(1))
    assert cache.clear() == 1
    assert {p.name for p in theirs.iterdir()} == {"main.o", "add.o", ".old.tmp", f"{key(3)}.o"}


def put_and_get(directory: Path, first: int, count: int) -> None:
    """Everybody writes the same keys, and reads what somebody has already written."""
    cache = ObjectCache(directory)
    for n in range(first, first + count):
        cache.put(key(n % 50), body(n % 50))
        found = cache.get(key(n % 50))
        assert found == body(n % 50), n


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_eight_processes_lose_nothing(tmp_path: Path, count: int) -> None:
    workers = [
        fork_server().Process(target=put_and_get, args=(tmp_path, 7 * i, count)) for i in range(8)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [w.exitcode for w in workers] == [0] * 8
    cache = ObjectCache(tmp_path)
    assert all(cache.get(key(n)) == body(n) for n in range(50))
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".o"] * 50


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/tunegrad"),
        ({"HOME": "/h"}, "/h/.cache/tunegrad"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/tunegrad"),
    ],
)
def test_the_cache_is_where_the_xdg_rules_say(environ: dict[str, str], place: str) -> None:
    assert cache_dir(environ) == Path(place)
