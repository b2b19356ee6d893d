"""What candidates are timed beside: the first sound one, then what is twice as fast; values
chain.
"""

from __future__ import annotations

import pytest

from tunegrad.devices import CompiledCandidate, KernelIO
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tuning.executor import References, standing


def _code(program: str) -> CompiledCandidate:
    return CompiledCandidate(b"code", "k", KernelIO(()), 0, 1, program, 0.0, 0.0)


def _beside(ratio: float, program: str, stands_for_s: float, slow: float = 1.0) -> Measurement:
    samples = (slow * ratio, 1.1 * slow * ratio, 0.9 * slow * ratio)
    return Measurement(Status.OK, samples, reference_samples_s=(slow, 1.1 * slow, 0.9 * slow),
                       reference_program=program, reference_s=stands_for_s)  # fmt: skip


def _trial(program: str, measurement: Measurement) -> Trial:
    return Trial(
        "key", "text", Fingerprint(()), f"tile({program})", program, 1, Policy(), measurement, "s"
    )


def test_first_sound_candidate_is_the_reference_and_stands_for_what_it_took():
    found = References()
    found.learn("k", _code("wrong"), Measurement(Status.WRONG))
    assert found.of("k") is None
    found.learn("k", _code("default"), Measurement(Status.OK, (2.0, 4.0, 3.0)))
    beside = found.of("k")
    assert beside is not None
    assert (beside.compiled.program_hash, beside.seconds) == ("default", 3.0)
    assert found.of("other") is None


@pytest.mark.parametrize(
    ("ratio", "program", "seconds"), [(0.51, "default", 4.0), (0.5, "twice", 2.0)]
)
def test_twice_as_fast_is_the_next_reference_and_stands_for_its_ratio(ratio, program, seconds):
    found = References()
    found.learn("k", _code("default"), Measurement(Status.OK, (4.0,)))
    found.learn("k", _code("twice"), _beside(ratio, "default", 4.0, slow=7.0))
    beside = found.of("k")
    assert beside is not None
    assert (beside.compiled.program_hash, beside.seconds) == (program, pytest.approx(seconds))


def test_slow_moment_does_not_change_what_a_row_is_ranked_by():
    quiet, slow = _beside(0.8, "default", 4.0), _beside(0.8, "default", 4.0, slow=1.4)
    assert quiet.seconds == pytest.approx(3.2)
    assert slow.seconds == pytest.approx(quiet.seconds)


def test_rows_say_what_they_were_timed_beside_last():
    default = _trial("default", Measurement(Status.OK, (4.0,)))
    twice = _trial("twice", _beside(0.5, "default", 4.0))
    third = _trial("third", _beside(0.9, "twice", 2.0))
    assert standing([default, twice, third]) == twice
    assert standing([default, twice]) == default
    assert standing([_trial("wrong", Measurement(Status.WRONG)), default]) == default
    assert standing([]) is None


def test_reference_that_has_no_row_any_more_gives_way_to_the_first_that_ran():
    default = _trial("default", Measurement(Status.OK, (4.0,)))
    assert standing([default, _trial("third", _beside(0.9, "pruned", 2.0))]) == default
