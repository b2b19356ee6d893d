"""Real kernels raced against themselves: one in twenty is promoted at most on this machine."""

from __future__ import annotations

import pytest

from tunegrad.compiling.candidate import HOOKS
from tunegrad.config import resolve_model
from tunegrad.devices import DeviceMeasurer, host_device, usable_cores
from tunegrad.errors import CandidateFailure
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.trial import Cache, Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tuning.choices import Choice
from tunegrad.tuning.measuring import CandidateMeasurer
from tunegrad.tuning.policies import SEARCH_POLICY
from tunegrad.tuning.race import race
from tunegrad.tuning.tracks import KernelTrack
from tunegrad.tuning.workload import workload_of_spec

TIMES = 200


def _never(key: str, _: Trial, failure: CandidateFailure) -> None:
    raise AssertionError(f"{key}: {failure}")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cache", ["warm", "constants"])
def test_of_races_of_a_program_against_itself_one_in_twenty_is_won_at_most_on_this_machine(
    cache: Cache,
) -> None:
    here, promoted = host_device(usable_cores()), 0
    kernels = [
        kernel for kernel, _ in workload_of_spec(resolve_model("resnet")).plan.kernels().values()
    ]
    with DeviceMeasurer(here, HOOKS) as device:
        track = KernelTrack(
            CandidateMeasurer(device, SEARCH_POLICY), {k.key: k for k in kernels}, cache, _never
        )
        for n in range(TIMES):
            k = kernels[n % len(kernels)]
            actions, measured = (
                Space(k, here.target).defaults()[0].text,
                Measurement(Status.OK, (1.0,)),
            )
            equal = Trial(
                k.key, k.text, Fingerprint(()), actions, "", SPACE_VERSION, Policy(), measured, "s"
            )
            found = race([Choice(k.key, equal, (equal,) * 3)], track)
            promoted += sum(met.won for met in found.values())
    assert promoted <= 0.05 * TIMES, f"{promoted} of {TIMES}"
