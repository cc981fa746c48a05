"""Loads and step times that several tests of serving share."""

import os

import numpy as np
from hypothesis import settings

from accelsim.serving.loads.requests import RequestColumns, RequestLog
from accelsim.serving.replicas.fleet import ArrivalQueue, ReplicaFleet
from accelsim.serving.replicas.routers import router
from accelsim.serving.steps.step_times import StepCurve, StepSurface, TabulatedSteps


def cases(count):
    """Cases of a law: so many, or twenty times as many where laws alone are run."""
    is_long = os.environ.get("HYPOTHESIS_PROFILE") == "laws"
    return settings(max_examples=count * (20 if is_long else 1))


def table_steps(seed=0, *, overhead_s=1e-4):
    """Steps whose time rises in every direction."""
    rng = np.random.default_rng(seed)
    at = np.array([1, 8, 64, 512, 4096])
    tokens, cached = np.array([1, 16, 256, 4096]), np.array([0.0, 64.0, 512.0, 8192.0])

    def rising(*shape):
        values = rng.uniform(1e-5, 2e-3, shape)
        for axis in range(len(shape)):
            values = np.cumsum(values, axis=axis)
        return values

    return TabulatedSteps(
        layers=(layers := StepCurve(at, rising(5), rising(5))),
        decode_layers=layers,
        logits=StepCurve(np.array([1, 512]), rising(2), rising(2)),
        prefill=StepSurface(tokens, cached, rising(4, 4), rising(4, 4)),
        decode=StepSurface(tokens, cached, rising(4, 4), rising(4, 4)),
        overhead_s=overhead_s,
        idle_w=50.0,
    )


def run_fleet(columns, make, *, replicas=1, policy="round-robin", users=0):
    """Serve requests; gives the log and the fleet."""
    log = RequestLog(columns)
    choice = router(policy, log, np.random.default_rng(0))
    fleet = ReplicaFleet(
        log, [make(log) for _ in range(replicas)], choice, ArrivalQueue(log, users)
    )
    fleet.run()
    return log, fleet


def random_columns(seed, count, *, rate=50.0, longest=200, **more):
    """Poisson arrivals of uniform lengths."""
    rng = np.random.default_rng(seed)
    return RequestColumns(
        np.cumsum(rng.exponential(1 / rate, count)),
        rng.integers(1, longest + 1, count),
        rng.integers(1, longest + 1, count),
        **more,
    )
