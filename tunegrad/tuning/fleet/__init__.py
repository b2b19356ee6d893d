"""Many machines: one kind measures, calls survive the loss of a machine, and Ray is underneath.

    KernelSearch --> FleetMeasurer --> Dispatcher --> Stations --> a Station each --> DeviceMeasurer
    whole models --> FleetBench    -->                             one of them    --> LocalBench
    (the driver: search, store)                       (Ray actors, or a test's)       (processes)

Only ``cluster`` imports Ray, and only when a session asks for it. The design is
docs/decisions/0017-ray.md.
"""

from tunegrad.tuning.fleet.bench import FleetBench
from tunegrad.tuning.fleet.cluster import Crew, Machine, choose_crew, kind_of
from tunegrad.tuning.fleet.dispatch import (
    Dispatcher,
    Job,
    JobLost,
    StationLost,
    StationRaised,
    Stations,
)
from tunegrad.tuning.fleet.measurer import FleetMeasurer, in_flight, job_size
from tunegrad.tuning.fleet.work import (
    Answer,
    Call,
    DeviceEngine,
    Engine,
    EngineSpec,
    Failed,
    Station,
    answered,
)

__all__ = [
    "Answer", "Call", "Crew", "DeviceEngine", "Dispatcher", "Engine", "EngineSpec", "Failed",
    "FleetBench", "FleetMeasurer", "Job", "JobLost", "Machine", "Station", "StationLost",
    "StationRaised", "Stations", "answered", "choose_crew", "in_flight", "job_size", "kind_of",
]  # fmt: skip
