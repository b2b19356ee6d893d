"""tg.data.Loader: which batches there are, in which memory, and what becomes of failures."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tunegrad.data import Loader, rng
from tunegrad.data.shuffle import permuted
from tunegrad.devices.cpu.device import device_of
from tunegrad.errors import ConfigError, DataError, ShapeError
from tunegrad.frontend import Tensor
from tunegrad.frontend.nn import Conv2d
from tunegrad.ir.dtypes import U8
from tunegrad.ir.fusion import schedule

ROWS = np.arange(23 * 6, dtype=np.float32).reshape(23, 2, 3)
KINDS = np.arange(23, dtype=np.int64)


class Squares:
    """Samples that draw: of a module's top level, so that processes can have it."""

    def __init__(self, count: int, bad: int = -1, dead: int = -1) -> None:
        self.count, self.bad, self.dead = count, bad, dead

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        if i == self.bad:
            raise OSError(f"no file for {i}")
        if i == self.dead:
            os._exit(3)
        return {"x": np.full(3, i * i, np.int32), "drawn": rng().random(), "i": i}


def first_two(samples: list[Any]) -> Any:
    return np.stack([s["x"][:2] for s in samples])


def as_lists(batches: Any) -> list[Any]:
    """Batches as JSON, which compares all of them at once."""
    return [json.dumps(b, default=lambda a: [a.dtype.name, a.tolist()]) for b in batches]


# ---- which batches


def test_rows_come_in_order_and_the_last_batch_is_shorter() -> None:
    batches = list(Loader((ROWS, KINDS), 5))
    assert [len(k) for _, k in batches] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), ROWS)
    np.testing.assert_array_equal(np.concatenate([k for _, k in batches]), KINDS)


def test_drop_last_leaves_out_the_short_batch() -> None:
    loader = Loader(KINDS, 5, drop_last=True)
    assert len(loader) == 4
    assert [len(k) for k in loader] == [5] * 4
    assert [b.tolist() for b in Loader(lambda: range(7), 3, drop_last=True)] == [
        [0, 1, 2], [3, 4, 5],
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000, 70_000])
def test_shuffle_is_a_permutation(count: int) -> None:
    found = permuted(np.arange(count), count, 7, 2)
    np.testing.assert_array_equal(np.sort(found), np.arange(count))


def test_shuffle_of_part_is_part_of_the_shuffle() -> None:
    whole = permuted(np.arange(1000), 1000, 3, 1)
    np.testing.assert_array_equal(permuted(np.arange(400, 464), 1000, 3, 1), whole[400:464])


def test_shuffle_stays_what_it_was() -> None:
    assert permuted(np.arange(10), 10, 0, 0).tolist() == [6, 2, 3, 8, 9, 7, 4, 5, 0, 1]


def test_shuffle_makes_all_orders_of_four_about_as_often() -> None:
    """A chi-squared of 23 degrees of freedom is below 58 in all but 1 of 10,000 draws; these are
    always the same.
    """
    seen = Counter(tuple(permuted(np.arange(4), 4, 5, e).tolist()) for e in range(2400))
    assert len(seen) == 24
    assert sum((n - 100) ** 2 / 100 for n in seen.values()) < 58


def test_shuffle_differs_by_epoch_and_seed() -> None:
    loader = Loader(KINDS, 23, shuffle=True, seed=4)
    orders = [next(iter(Loader(KINDS, 23, shuffle=True, seed=s))).tolist() for s in (4, 5)]
    epochs = [next(iter(loader)).tolist() for _ in range(3)]
    assert orders[0] == epochs[0]
    assert len({tuple(o) for o in (*orders, *epochs[1:])}) == 4


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_do_not_depend_on_the_number_of_threads(workers: int) -> None:
    expected = as_lists(Loader(Squares(40), 6, shuffle=True, seed=2, workers=0))
    assert as_lists(Loader(Squares(40), 6, shuffle=True, seed=2, workers=workers)) == expected


def test_processes_give_the_same_batches(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    tuples = (tmp_path / "rows.npy", KINDS)
    for data, collate in ((tuples, None), (Squares(23), first_two)):
        settings: Any = {"shuffle": True, "seed": 9, "collate": collate}
        loader = Loader(data, 4, workers=2, processes=True, **settings)
        plain = Loader(data, 4, workers=0, **settings)
        assert as_lists(loader) == as_lists(plain)
        kept = loader._idle
        assert as_lists(loader) == as_lists(plain)  # the next epoch, by the same processes
        assert kept is not None
        assert loader._idle is kept
        loader.close()


def test_structures_of_samples_are_those_of_batches() -> None:
    class Pair(NamedTuple):
        left: Any
        right: Any

    samples = [Pair({"a": i, "b": [float(i), True]}, np.ones((2, 2), np.uint8)) for i in range(4)]
    (batch,) = Loader(samples, 4)
    assert isinstance(batch, Pair)
    assert batch.left["a"].tolist() == [0, 1, 2, 3]
    assert batch.left["b"][1].dtype == bool
    assert batch.right.shape == (4, 2, 2)
    assert batch.right.dtype == np.uint8


def test_files_are_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS.astype(">f4"))
    (batch,) = Loader({"x": str(tmp_path / "x.npy")}, 23)
    np.testing.assert_array_equal(batch["x"], ROWS)
    assert batch["x"].dtype == np.float32


def test_draws_depend_on_the_epoch_and_the_sample() -> None:
    loader = Loader(Squares(8), 8)
    epochs = [next(iter(loader))["drawn"].tolist() for _ in range(2)]
    assert len({*epochs[0], *epochs[1]}) == 16
    with pytest.raises(ConfigError, match="no loader is reading"):
        rng()


# ---- positions


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("given", [0, 1, 5, 6, 8, 12])
def test_a_state_continues_with_the_batches_that_were_left(workers: int, given: int) -> None:
    settings: Any = {"shuffle": True, "seed": 3, "workers": workers}

    def epochs(loader: Loader) -> list[str]:
        return [b for _ in range(loader.epoch, 3) for b in as_lists(loader)]

    whole = epochs(Loader((ROWS, KINDS), 4, **settings))  # 3 epochs of 6 batches
    loader = Loader((ROWS, KINDS), 4, **settings)
    taken = 0
    while taken < given:
        for _ in loader:
            taken += 1
            if taken == given:
                break
    state = json.loads(json.dumps(loader.state()))
    assert epochs(Loader((ROWS, KINDS), 4, **settings, state=state)) == whole[given:]


def test_a_stream_continues_by_reading_on() -> None:
    def numbers() -> Any:
        yield from range(10)

    loader = Loader(numbers, 3)
    at = iter(loader)
    next(at)
    left = Loader(numbers, 3, state=loader.state())
    assert [b.tolist() for b in left] == [[3, 4, 5], [6, 7, 8], [9]]
    assert next(iter(left)).tolist() == [0, 1, 2]
    assert left.epoch == 1


def test_a_loop_that_was_left_is_over() -> None:
    loader = Loader(KINDS, 4, shuffle=True)
    first = next(iter(loader)).tolist()
    assert next(iter(loader)).tolist() != first
    assert loader.epoch == 1
    assert loader.state()["batch"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 8}, "seed=8, this one has seed=0"),
        ({"batch": 7}, "batch is 7"),
        ({"epoch": -1}, "epoch is -1"),
        ({"epoch": None}, "epoch is None"),
        ({"length": 24}, "length=24"),
    ],
)
def test_a_foreign_state_is_refused(change: dict[str, Any], said: str) -> None:
    state = Loader(KINDS, 4).state() | change
    with pytest.raises(ConfigError, match=said):
        Loader(KINDS, 4, state=state)


# ---- memory


def test_batches_that_are_kept_are_not_overwritten() -> None:
    kept = list(Loader(ROWS, 4))
    np.testing.assert_array_equal(np.concatenate(kept), ROWS)
    view = next(iter(loader := Loader(ROWS, 4)))[1:2, 0]
    for _ in range(3):
        list(loader)
    np.testing.assert_array_equal(view, ROWS[1:2, 0])


def test_memory_of_dropped_batches_is_used_again() -> None:
    loader = Loader((ROWS, KINDS), 4, workers=1, prefetch=2)
    for _ in range(4):
        for batch in loader:
            assert len(batch[0])
            del batch
    gc.collect()
    assert loader._slabs.made <= 5  # two ahead, one being made, one at the caller, one in between


def test_arrays_are_aligned_and_lent_to_the_cpu() -> None:
    engine = device_of(1).open()
    for x, kinds in Loader((ROWS.astype(np.uint8), KINDS), 5):
        for a in (x, kinds):
            assert a.flags.c_contiguous
            assert a.ctypes.data % 64 == 0
            assert engine.borrow(a) is not None


# ---- images of bytes


def test_images_of_bytes_are_normalised_in_the_first_kernel() -> None:
    """Nothing holds the images as floats before, and no kernel only converts them."""
    layer = Conv2d(3, 16, 3, padding=1)
    layer.load(seed=0)
    images = np.random.default_rng(0).integers(0, 256, (8, 3, 8, 8)).astype(np.uint8)
    (batch,) = Loader(images, 8)
    assert batch.dtype == np.uint8
    plan = schedule((layer((Tensor(batch).float() / 255 - 0.5) / 0.25).node,))
    readers = [x for x in plan.launches if any(plan.buffers[i].dtype == U8 for i in x.args)]
    assert readers == [plan.launches[0]]
    assert str(readers[0].kernel).count("0.5:f32") == 1
    assert len(plan.launches) == 2


# ---- failures


@pytest.mark.parametrize("processes", [False, True])
def test_a_failure_names_the_sample_and_has_its_traceback(processes: bool) -> None:
    loader = Loader(Squares(12, bad=7), 3, workers=1, processes=processes)
    given = []
    with pytest.raises(DataError, match=r"sample 7: OSError: no file for 7") as caught:
        given.extend(batch["i"].tolist() for batch in loader)
    assert given == [[0, 1, 2], [3, 4, 5]]
    assert caught.value.samples == (7,)
    if processes:
        assert "in __getitem__" in caught.value.__notes__[0]
    else:
        assert isinstance(caught.value.__cause__, OSError)


def test_a_dead_process_is_an_error() -> None:
    loader = Loader(Squares(8, dead=5), 2, workers=2, processes=True)
    with pytest.raises(DataError, match=r"died \(exit code 3\)"):
        list(loader)


def test_data_that_can_not_be_sent_to_processes_are_named() -> None:
    loader = Loader([1, 2, 3], 2, collate=lambda samples: samples, processes=True)
    with pytest.raises(ConfigError, match="sent to worker processes"):
        list(loader)


def test_samples_that_do_not_fit_are_named() -> None:
    with pytest.raises(DataError, match=r"sample 2 is int64\[3\], sample 0 is int64\[2\]"):
        list(Loader([np.zeros(n, int) for n in (2, 2, 3)], 3))
    with pytest.raises(DataError, match="sample 1 is a dict of 'b', sample 0 is a dict of 'a'"):
        list(Loader([{"a": 1}, {"b": 2}], 2))
    with pytest.raises(DataError, match="holds str"):
        list(Loader([(1, "cat")], 1))


def test_an_iterator_has_one_epoch() -> None:
    loader = Loader(iter(range(4)), 2)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3]]
    with pytest.raises(ConfigError, match="no beginning any more"):
        list(loader)


@pytest.mark.parametrize(
    ("data", "settings", "said"),
    [
        (KINDS, {"batch_size": 0}, "batch_size is 0"),
        (KINDS, {"seed": -1}, "seed is -1"),
        (KINDS, {"workers": 0, "processes": True}, "needs workers >= 1"),
        (range, {"shuffle": True}, "an iterable has one order"),
        (iter([1]), {"workers": 2}, "read by one thread"),
        (3, {}, "int is no array"),
        ({"x": [1, 2]}, {}, "holds arrays"),
        ("nowhere.npy", {}, "nowhere.npy is no .npy file"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    data: Any, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        Loader(data, **{"batch_size": 2, **settings})


def test_arrays_of_other_lengths_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"float32\[23, 2, 3\], int64\[22\]"):
        Loader((ROWS, KINDS[1:]), 2)
    with pytest.raises(TypeError, match="says when it ends"):
        len(Loader(lambda: range(3), 2))


def test_a_file_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(ConfigError, match=r"no .npy file of numbers"):
        Loader(tmp_path / "x.npy", 1)


# ---- ends


def test_threads_end_with_the_loop() -> None:
    before = set(threading.enumerate())
    at = iter(Loader(ROWS, 2, workers=3))
    next(at)
    made = {t for t in threading.enumerate() if t.name.startswith("tunegrad.data")} - before
    assert made
    del at
    gc.collect()
    for t in made:
        t.join(60)
    assert not any(t.is_alive() for t in made)


def test_a_forked_child_reads_on() -> None:
    """The child of a fork has no threads of the loader; its batches are the same."""
    code = """
        import os, numpy as np, tunegrad as tg
        at = iter(tg.data.Loader(np.arange(12), 3, shuffle=True, workers=2))
        given = [next(at).tolist()]
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, repr(given + [b.tolist() for b in at]).encode())
            os._exit(0)
        os.close(write)
        assert repr(given + [b.tolist() for b in at]) == os.read(read, 9999).decode()
        print("ok")
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.stdout == "ok\n", done.stderr


def test_an_interrupt_ends_a_loop_that_waits() -> None:
    code = """
        import time, tunegrad as tg
        class Slow:
            def __len__(self): return 4
            def __getitem__(self, i):
                if i:
                    print("waits", flush=True)
                    time.sleep(1000)
                return i
        try:
            list(tg.data.Loader(Slow(), 2))
        except KeyboardInterrupt:
            print("ended", flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "waits\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "ended\n"
    assert child.returncode == 0


# ---- beside PyTorch's


def test_samples_may_be_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(6.0), torch.arange(6))
    (batch,) = Loader(data, 6)
    assert batch[0].dtype == np.float32
    assert batch[1].tolist() == [0, 1, 2, 3, 4, 5]
    (rows,) = Loader((torch.ones(4, 2), torch.arange(4)), 4)
    assert rows[0].shape == (4, 2)


def test_threads_that_share_a_loop_have_each_batch_once() -> None:
    batches = iter(Loader(np.arange(600), 2, workers=2))
    seen: list[int] = []

    def read() -> None:
        seen.extend(int(batch[0]) for batch in batches)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(seen) == list(range(0, 600, 2))
