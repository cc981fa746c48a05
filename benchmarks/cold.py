"""What a user meets at the cold door: rates of bulk costs, searches, fleets and start, each beside
its bar.

``python benchmarks/cold.py [--long] [FOLDER]``. Bars are for a machine that imports numpy in 0.23 s
of CPU time and makes 5.0 million turns of a plain loop over a dict, or 1.0 million plain timeouts
of SimPy, per CPU-second. How much faster this one is differs between the three yardsticks, so each
figure stands as its share of the bar scaled by each of them: 1 and more meets it. Loop and timeouts
are taken between the figures. Figures are CPU times, the median of five. Fleets need the peer's
kernel times of FOLDER, as `serving_speed` does. ``--long`` adds a million requests and a sweep of
200,000 points on two workers.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import simpy
from estimate_many import sizes
from serving_speed import FOLDER, million, simulate, turns_per_s
from startup import CLI, REFERENCES, cpu_times_s
from sweep_speed import spec

import accelsim
from accelsim.estimation.options import run_options
from accelsim.scoreboard.data_folder import data_folder
from accelsim.serving.loads.requests import RequestColumns
from accelsim.simulation.engine import Engine, TaskColumns
from accelsim.training.candidates import CandidatePlans
from accelsim.training.estimate import training_setup
from accelsim.training.grid import candidate_groups
from accelsim.training.score import score
from accelsim.training.setup import TrainingPlace
from tools.scoreboard.serving_vidur import ATTENTION, LAYERS, LIMITS, RUNS, kernel_steps, requests

#: What the machine of the bars makes, per CPU-second.
REFERENCE = {"loop": 5.0e6, "SimPy": 1.0e6, "numpy": 1.0 / 0.23}
ROUNDS = 5
PAIRS = [
    (model, device)
    for model in ("llama-3.1-8b", "resnet-50")
    for device in ("a100-sxm-80gb", "h100-sxm-80gb", "mi300x", "tpu-v4", "epyc-7763")
]
#: Model, devices, samples of an iteration.
SEARCHES = (("gpt3-175b", 1024, 1536), ("llama-3.1-70b", 256, 1024), ("mixtral-8x7b", 128, 512))
PLANS_EACH = 167
COMMAND = ("estimate", "llama-3.1-8b", "-d", "h100-sxm-80gb")


class Row(NamedTuple):
    """A figure and its bar on the reference machine; a rate is to be above it, a time below."""

    name: str
    value: float
    unit: str
    bar: float
    scales: bool = True

    def text(self, made: dict[str, float]) -> str:
        """A line: the figure, its bar, and its share of the bar scaled by each yardstick."""
        over = self.value / self.bar if self.unit.endswith("/s") else self.bar / self.value
        shares = [
            f"{name} {over / (made[name] / reference if self.scales else 1.0):5.2f}"
            for name, reference in REFERENCE.items()
        ]
        line = f"{self.name:52}{self.value:12,.4g} {self.unit:10} bar {self.bar:9,.4g}  of it: "
        return line + ", ".join(shares)


def timeouts_per_s(count: int = 100_000) -> float:
    """Plain timeouts of one process of SimPy per CPU-second."""
    environment = simpy.Environment()

    def process() -> Iterator[simpy.Event]:
        for _ in range(count):
            yield environment.timeout(1.0)

    environment.process(process())
    started = time.thread_time()
    environment.run()
    return count / (time.thread_time() - started)


def middle_s(work: Callable[..., object], rounds: Iterable[Any]) -> float:
    """The median of the CPU seconds of calls, one for each of some inputs, made before."""
    taken = []
    for asked in list(rounds):
        start = time.process_time()
        work(asked)
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def estimates(random: np.random.Generator) -> Iterator[Row]:
    for model, device in PAIRS:
        accelsim.estimate_many(model, device, shapes=sizes(random, model, 8))
        many = partial(many_of, model, device)
        drawn = (sizes(random, model, 500) for _ in range(ROUNDS))
        yield Row(f"estimate_many {model} {device}", 500 / middle_s(many, drawn), "runs/s", 5_000)
    one = partial(accelsim.estimate, *PAIRS[1])
    seconds = middle_s(lambda batch: one(batch=batch, seq_len=97 + batch), range(3, 3 + ROUNDS))
    yield Row(f"estimate of a new shape, {PAIRS[1][0]}", 1e3 * seconds, "ms", 30)


def many_of(model: str, device: str, shapes: dict[str, np.ndarray]) -> None:
    accelsim.estimate_many(model, device, shapes=shapes)


def drawn_plans(model: str, gpus: int, batch: int, seed: int):
    """A setup, random plans of it and their microbatches."""
    options = run_options(None, {"mode": "training", "seq_len": 2048})
    where = TrainingPlace(cluster="dgx-superpod-a100", gpus=gpus, global_batch=batch)
    setup = training_setup(model, options, where)
    plans = CandidatePlans.joined([group for _, group in candidate_groups(setup, {})])
    counts = batch // (plans["dp"] * plans["microbatch"])
    runs = np.flatnonzero((counts > 0) & (counts >= 2 * plans["pp"]) & (plans["chunks"] == 1))
    picked = np.random.default_rng(seed).permutation(runs)[:PLANS_EACH]
    return setup, plans.take(picked), counts[picked]


def score_drawn(drawn) -> None:
    for setup, plans, counts in drawn:
        score(setup, plans, counts, setup.units(plans), setup.costs())


def searches() -> Iterator[Row]:
    drawn = [[drawn_plans(*search, seed) for search in SEARCHES] for seed in range(ROUNDS)]
    seconds = middle_s(lambda each: (accelsim.catalog.clear_cache(), score_drawn(each)), drawn)
    yield Row("random plans of three models, cold", 501 / seconds, "plans/s", 800)
    setup, plans, counts = drawn[-1][0]
    of_stages = np.flatnonzero(plans["pp"] == np.bincount(plans["pp"]).argmax())
    plans, counts = plans.take(of_stages), counts[of_stages]
    many = CandidatePlans({k: np.tile(v, 200) for k, v in plans.columns.items()})
    often, units, costs = np.tile(counts, 200), setup.units(many), setup.costs()
    seconds = middle_s(lambda _: score(setup, many, often, units, costs), range(ROUNDS))
    yield Row("plans priced, warm", len(many) / seconds, "plans/s", 127_000)
    plan = {"cluster": "dgx-h100", "gpus": 8, "global_batch": 32, "plan": "tp=2,zero=1,dp=4"}
    one = partial(accelsim.train, seq_len=1024, **plan)
    seconds = middle_s(one, ("llama-3.2-3b", "qwen2.5-7b", "mistral-7b", "qwen3-14b", "gpt3-13b"))
    yield Row("one given plan, new model", 1e3 * seconds, "ms", 15)


def layered(seed: int) -> TaskColumns:
    """Layers on four streams, each waiting for the one before."""
    count = 100_000
    stream = np.tile(np.arange(4, dtype=np.int32), count // 4)
    waits = stream > 0
    return TaskColumns(
        resource=stream,
        duration_s=np.random.default_rng(seed).exponential(1e-5, count),
        resources=tuple(f"stream{number}" for number in range(4)),
        dependency_offset=np.concatenate([[0], np.cumsum(waits)]),
        dependency=np.flatnonzero(waits) - 1,
    )


def engine() -> Iterator[Row]:
    def run(tasks: TaskColumns) -> None:
        engine = Engine(record=True)
        for name in tasks.resources:
            engine.add_server(name)
        engine.submit_many(tasks)
        engine.run()
        engine.timeline()

    seconds = middle_s(run, map(layered, range(ROUNDS)))
    yield Row("engine, recorded tasks", 100_000 / seconds, "tasks/s", 500_000)


def fleets(folder: Path, *, is_long: bool) -> Iterator[Row]:
    tables = data_folder(folder)
    steps = kernel_steps(tables.table(LAYERS), tables.table(ATTENTION))
    columns = requests(tables.table(RUNS[8192]))
    each = {}
    for replicas in (64, 256):
        random = np.random.default_rng(1)
        many = random.integers(0, len(columns), 20_000)
        arrival_s = np.cumsum(random.exponential(1 / (5.0 * replicas), len(many)))
        asked = RequestColumns(arrival_s, columns.prompt_tokens[many], columns.output_tokens[many])
        how = {"replicas": replicas, "policy": "least-outstanding"}
        taken = [simulate(asked, steps, LIMITS, **how)[0] for _ in range(ROUNDS)]
        each[replicas] = statistics.median(taken)
    yield Row("20,000 requests over 256 replicas", 20_000 / each[256], "requests/s", 7_500)
    exponent = math.log(each[256] / each[64]) / math.log(4)
    yield Row("  exponent from 64 to 256", exponent, "", 0.15, scales=False)
    if is_long:
        seconds, *_ = simulate(
            million(columns), steps, LIMITS, replicas=16, policy="least-outstanding"
        )
        yield Row("a million requests on 16 replicas", seconds, "s", 80)


def sweep() -> Iterator[Row]:
    """Points per second of wall time on two workers, over twice those of one on half the points."""
    rates = []
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            done = accelsim.sweep(spec(100_000 * workers), folder, workers=workers)
            rates.append(done.new_count / done.wall_s)
    name = "sweep of 200,000 points, of twice one worker's rate"
    yield Row(name, rates[1] / (2 * rates[0]), "of 1/s", 0.95, scales=False)


def start(numpy_s: float, own_s: float) -> Iterator[Row]:
    yield Row("process of estimate, times import numpy", own_s / numpy_s, "", 3.0, scales=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    asked = parser.parse_args()
    random = np.random.default_rng(time.time_ns())
    accelsim.train("llama-3.2-1b", device="a100-sxm-80gb", seq_len=128, check_memory=False)
    found = cpu_times_s({**REFERENCES, "it": (*CLI, *COMMAND)})
    started = found["import numpy"][0], found["it"][0]
    groups = [start(*started), estimates(random), searches(), engine()]
    if asked.folder.is_dir():
        groups.append(fleets(asked.folder, is_long=asked.long))
    else:
        print(f"left out: fleets, whose kernel times are not in {asked.folder}")
    groups += [sweep()] if asked.long else []
    made = {"numpy": 1.0 / started[0]}
    for group in groups:
        for row in group:
            made["loop"] = max(turns_per_s() for _ in range(3))
            made["SimPy"] = max(timeouts_per_s() for _ in range(3))
            print(row.text(made), flush=True)
    print(
        f"loop: {made['loop'] / 1e6:.1f} million turns, SimPy: {made['SimPy'] / 1e6:.2f} million "
        f"timeouts per CPU-second, import numpy: {1e3 * started[0]:.0f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
