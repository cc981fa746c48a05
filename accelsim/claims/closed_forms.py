"""Checks of claims with closed forms: the event engine and the break-even lines against formulas.

Those that draw random numbers draw them from a seed of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from accelsim.capacity.breakeven import break_even_volume
from accelsim.claims.claim import Reading
from accelsim.economics.result import electricity_usd_per_hour
from accelsim.simulation.columns import TaskColumns
from accelsim.simulation.engine import Engine

_SEED = 20_250


def _makespan_s(
    duration_s: Sequence[float],
    waits_for: Sequence[Iterable[int]] | None = None,
    *,
    workers: int = 1,
) -> float:
    """Time in which so many workers do tasks, each after those it waits for."""
    return _run_s(duration_s, np.zeros(len(duration_s), np.int32), (workers,), waits_for)[-1]


def _run_s(
    duration_s: Sequence[float],
    resource: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int32]],
    workers: Sequence[int],
    waits_for: Sequence[Iterable[int]] | None = None,
    ready_s: Sequence[float] | None = None,
) -> list[float]:
    """End of each task by row, and the last of them at the end of the list."""
    engine = Engine()
    names = tuple(f"stage {index}" for index in range(len(workers)))
    for name, count in zip(names, workers, strict=True):
        engine.add_server(name, capacity=count)
    before = [list(rows) for rows in waits_for or [()] * len(duration_s)]
    tasks = TaskColumns(
        np.asarray(resource, dtype=np.int32),
        np.asarray(duration_s, dtype=np.float64),
        names,
        np.concatenate([[0], np.cumsum([len(rows) for rows in before])]).astype(np.int64),
        np.array([row for rows in before for row in rows], dtype=np.int64),
        None if ready_s is None else np.asarray(ready_s, dtype=np.float64),
        name=np.arange(len(duration_s), dtype=np.int32),
        names=tuple(map(str, range(len(duration_s)))),
    )
    engine.submit_many(tasks)
    engine.run()
    line = engine.timeline()
    ends = np.empty(len(line))
    ends[[int(line.names[code]) for code in line.name.tolist()]] = line.end_s
    return [*ends.tolist(), line.makespan_s]


def _stages(job_count: int, time_s: Sequence[float], workers: Sequence[int]) -> list[float]:
    """Jobs through stages, each with its time and its workers."""
    count = len(time_s)
    rows = range(job_count * count)
    waits = [[row - 1] if row % count else [] for row in rows]
    return _run_s([time_s[r % count] for r in rows], [r % count for r in rows], workers, waits)


def amdahl() -> list[Reading]:
    """Speedup of a serial fraction s on k units is 1 / (s + (1 - s) / k) (Amdahl, AFIPS 1967)."""
    readings = []
    for serial, units in ((0.0, 2), (0.1, 8), (0.25, 16), (0.5, 64)):
        parts = [serial, *[(1.0 - serial) / units] * units]
        waits = [[], *[[0]] * units]
        name = f"speedup, serial fraction {serial:g}, {units} units"
        formula = 1.0 / (serial + (1.0 - serial) / units)
        readings.append(Reading(name, 1.0 / _makespan_s(parts, waits, workers=units), formula))
    return readings


def kitchen() -> list[Reading]:
    """Three stages under a budget: slow cheap robots have the throughput r/c of fast workers.

    Estimate: stages stay full, so that each has the throughput of its workers together.
    """
    readings = []
    jobs, budget = 240, 12
    for rate, cost in ((0.5, 0.25), (0.5, 0.75)):
        robots = int(budget / 3 / cost)
        ends = _stages(jobs, [1.0 / rate] * 3, [robots] * 3)
        workers = _stages(jobs, [1.0] * 3, [budget // 3] * 3)
        gain = (workers[-1] - 2.0) / (ends[-1] - 2.0 / rate)  # without filling the stages
        name = f"throughput of robots over workers, rate {rate:g}, cost {cost:g}"
        readings.append(Reading(name, gain, robots * rate / (budget // 3), within=0.05))
        readings.append(Reading(f"time of one job over a worker's, {name}", ends[2] / 3, 1 / rate))
    return readings


def flynn() -> list[Reading]:
    """Makespans of the four classes on equal items (Flynn, Proc. IEEE 54(12), 1966)."""
    items, streams, width, processors = 100, (40, 35, 25), 16, 8
    vector = sum(math.ceil(count / width) for count in streams)
    return [
        Reading("SISD", _makespan_s([1.0] * items), float(items)),
        Reading("SIMD", _makespan_s([1.0] * vector), 3.0 + 3.0 + 2.0),
        Reading("MISD", _makespan_s([1.0] * 3, workers=3), 1.0),
        Reading(
            "MIMD",
            _makespan_s([1.0] * items, workers=processors),
            float(math.ceil(items / processors)),
        ),
    ]


def dot_product() -> list[Reading]:
    """Products in parallel, then a tree of additions, as tasks that wait for each other: 1 + log2 n
    steps (JaJa, An Introduction to Parallel Algorithms, 1992, section 2.1: balanced trees).
    """
    readings = []
    for count in (2, 16, 256):
        waits: list[Sequence[int]] = [()] * count
        level = list(range(count))
        while len(level) > 1:
            heads = len(waits)
            waits += [level[index : index + 2] for index in range(0, len(level), 2)]
            level = list(range(heads, len(waits)))
        durations = [1.0] * len(waits)
        serial, tree = _makespan_s(durations), _makespan_s(durations, waits, workers=count)
        readings.append(Reading(f"steps of one unit, n = {count}", serial, 2.0 * count - 1))
        depth = 1.0 + math.ceil(math.log2(count))
        readings.append(Reading(f"steps of {count} units, n = {count}", tree, depth))
    return readings


def pipeline() -> list[Reading]:
    """J jobs through four stages of t take (J + 3) t (Hennessy and Patterson, Computer
    Architecture, appendix C: a pipeline's time to fill).
    """
    return [
        Reading(f"makespan, {jobs} jobs", _stages(jobs, [1.0] * 4, [1] * 4)[-1], jobs + 3.0)
        for jobs in (1, 4, 32)
    ]


def tandem_queue() -> list[Reading]:
    """Four exponential stages with Poisson arrivals: mean sojourn is the sum of 1/(mu - lambda)
    (Jackson, Operations Research 5(4), 1957).
    """
    arrival_rate, rates, jobs = 0.5, (1.0, 1.2, 1.5, 2.0), 4_000
    means = []
    for stream in np.random.SeedSequence(_SEED).spawn(8):
        generator = np.random.default_rng(stream)
        arrivals = np.cumsum(generator.exponential(1.0 / arrival_rate, jobs))
        service = generator.exponential(1.0, (jobs, 4)) / np.array(rates)
        rows = range(4 * jobs)
        waits = [[row - 1] if row % 4 else [] for row in rows]
        stage = [row % 4 for row in rows]
        ends = _run_s(
            service.ravel().tolist(), stage, [1] * 4, waits, np.repeat(arrivals, 4).tolist()
        )
        sojourn = np.array(ends[3:-1:4]) - arrivals
        means.append(float(sojourn[jobs // 10 :].mean()))
    half = 2.365 * float(np.std(means, ddof=1)) / math.sqrt(len(means))  # Student, 7 degrees
    formula = sum(1.0 / (rate - arrival_rate) for rate in rates)
    mean = float(np.mean(means))
    return [
        Reading("mean sojourn, 8 seeds, as a multiple of its unit", mean, formula, within=0.03),
        Reading(
            "formula inside the 95 % interval: distance over half width",
            abs(mean - formula) / half,
            at_most=1.0,
        ),
    ]


def chunks() -> list[Reading]:
    """N rows in chunks of c on p workers take ceil(N / (p c)) c t."""
    readings = []
    for rows, workers, chunk in ((1000, 4, 10), (1000, 7, 16), (999, 8, 50)):
        tasks = [float(chunk)] * math.ceil(rows / chunk)
        formula = math.ceil(rows / (workers * chunk)) * chunk
        name = f"makespan, {rows} rows, {workers} workers, chunks of {chunk}"
        readings.append(Reading(name, _makespan_s(tasks, workers=workers), float(formula)))
    return readings


def list_schedule() -> list[Reading]:
    """A list schedule takes at most (2 - 1/p) times the larger of critical path and work per worker
    (Graham, SIAM J. Appl. Math. 17(2), 1969).
    """
    generator = np.random.default_rng(_SEED)
    worst = 0.0
    for _ in range(200):
        count, workers = int(generator.integers(5, 60)), int(generator.integers(2, 9))
        times = generator.exponential(1.0, count).tolist()
        waits = [
            [row for row in range(task) if generator.random() < 2.0 / count]
            for task in range(count)
        ]
        path = [0.0] * count
        for task in range(count):
            path[task] = times[task] + max((path[row] for row in waits[task]), default=0.0)
        least = max(*path, sum(times) / workers)
        bound = (2.0 - 1.0 / workers) * least
        worst = max(worst, _makespan_s(times, waits, workers=workers) / bound)
    return [Reading("largest makespan over its bound, 200 graphs", worst, at_most=1.0 + 1e-12)]


def rig_or_cloud() -> list[Reading]:
    """Hours after which a bought machine is cheaper than a rented one."""
    capital_usd, power_w, usd_per_kwh, rent = 2000.0, 350.0, 0.15, 0.90
    owned_usd_per_hour = electricity_usd_per_hour(power_w, usd_per_kwh, 1.0)
    hours = break_even_volume(capital_usd, owned_usd_per_hour, 0.0, rent)
    formula = capital_usd / (rent - power_w / 1000.0 * usd_per_kwh)
    return [
        Reading("hours to break even", hours, formula, within=1e-6),
        Reading(
            "capital and electricity over rent at that hour",
            (capital_usd + hours * owned_usd_per_hour) / (hours * rent),
            1.0,
        ),
    ]


def nre() -> list[Reading]:
    """Development pays off at two volumes, the FPGA's below the chip's."""
    gpu, fpga, asic = (0.0, 10_000.0), (5e5, 4_000.0), (2e7, 300.0)
    fpga_volume = break_even_volume(*fpga, *gpu)
    asic_volume = break_even_volume(*asic, *fpga)
    return [
        Reading("volume from which an FPGA is cheaper", fpga_volume, 5e5 / 6_000.0),
        Reading("volume from which a chip is cheaper", asic_volume, (2e7 - 5e5) / 3_700.0),
        Reading("second over first", asic_volume / fpga_volume, at_least=1.0),
    ]


def thirty_units() -> list[Reading]:
    """One machine with a GPU or thirty without: the GPU may cost 29 machines."""
    cpu, gpu = 0.38, 2.48
    return [
        Reading("price of a GPU at which both cost the same", 30 * cpu - cpu, 29 * cpu),
        Reading(
            "thirty over one, 0.38 and 2.48 USD/h",
            30 * cpu / (cpu + gpu),
            3.986,
            0.01,
            verified=False,
        ),
    ]


#: Checks, named as scenarios name them.
CLOSED_FORMS: tuple[Callable[[], list[Reading]], ...] = (
    amdahl,
    kitchen,
    flynn,
    dot_product,
    pipeline,
    tandem_queue,
    chunks,
    list_schedule,
    rig_or_cloud,
    nre,
    thirty_units,
)
