"""How fast plans of training are scored, how good the best is, and how fast one iteration runs.

Run: python benchmarks/training_search.py [--sample 500]. Times are CPU seconds of one process.
Bars: every plan of GPT-3 175B on 1,024 devices in 10 s, 100,000 plans/s once units are priced, an
optimum within 1 % of the best of an exhaustive simulation of a sample, one iteration of a 1T model
on 3,072 devices in 1 s with 100,000 events and 500 MB.
"""

import argparse
import resource
import time
from dataclasses import replace

import numpy as np

import accelsim
from accelsim.estimation.options import run_options
from accelsim.training.candidates import CandidatePlans
from accelsim.training.grid import GridScores
from accelsim.training.place import training_setup
from accelsim.training.plan import ParallelismPlan
from accelsim.training.score import score
from accelsim.training.setup import TrainingPlace
from accelsim.training.simulated_iteration import simulate_iteration

BATCH, DEVICES = 1536, 1024
BATCHES = 16


def cpu_s(work):
    """Result and CPU seconds of a call."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def gpt3():
    options = run_options(None, {"mode": "training", "seq_len": 2048})
    where = TrainingPlace(cluster="dgx-superpod-a100", gpus=DEVICES, global_batch=BATCH)
    return training_setup("gpt3-175b", options, where)


def scored_plans(setup):
    grid = GridScores()
    grid.add_grid(setup, {})
    return grid.joined(), grid.considered


def repeated(plans):
    """The plans for several batches, with their microbatches."""
    columns = {name: np.tile(column, BATCHES) for name, column in plans.columns.items()}
    counts = BATCH // (plans["dp"] * plans["microbatch"])
    return CandidatePlans(columns), np.concatenate([counts * (1 + i) for i in range(BATCHES)])


def trillion():
    """Simulate one iteration of a GPT of 1T parameters (Narayanan et al. 2021, table 1), 6 x 8 x 64
    devices, 512 microbatches: before all else, as the peak is that of the process.
    """
    sizes = {"hidden_size": 25_600, "layers": 128, "heads": 160, "intermediate_size": 102_400}
    gpt = accelsim.workload("gpt3-175b")
    model = replace(gpt, name="gpt-1t", parameters=gpt.parameters.model_copy(update=sizes))
    options = run_options(None, {"mode": "training", "seq_len": 2048})
    where = TrainingPlace(cluster="dgx-superpod-a100", gpus=3072, global_batch=3072)
    setup = training_setup(model, options, where)
    plan = ParallelismPlan(dp=6, tp=8, pp=64, sp=True, zero=1, recompute="full")
    run, seconds = cpu_s(lambda: simulate_iteration(setup, plan, 3072, record=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"1T on 3,072 devices: {len(run.run.timeline):,} events, {seconds:.2f} s, {peak:,.0f} MB; "
        f"an iteration takes {run.iteration_s:.1f} s"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=500)
    size = parser.parse_args().sample
    accelsim.train(
        "llama-3.2-1b", device="a100-sxm-80gb", seq_len=128, check_memory=False
    )  # imports
    trillion()
    setup = gpt3()
    (scored, considered), seconds = cpu_s(lambda: scored_plans(setup))
    valid = f"{len(scored):,} valid"
    print(f"GPT-3 175B on {DEVICES} devices: {considered:,} plans, {valid}, {seconds:.1f} s")

    plans, counts = repeated(scored.plans)
    costs, units = setup.costs(), setup.units(plans)
    _, seconds = cpu_s(lambda: score(setup, plans, counts, units, costs))
    print(f"scored with units priced: {len(plans) / seconds:,.0f} plans/s ({len(plans):,} plans)")

    fitting = np.flatnonzero(scored.memory_bytes <= setup.capacity_bytes)
    sample = scored.take(np.random.default_rng(0).permutation(fitting)[:size])
    plans = map(sample.plans.plan, range(len(sample)))
    simulated = np.array([simulate_iteration(setup, plan, BATCH).iteration_s for plan in plans])
    ratio = simulated / sample.iteration_s
    first = np.argsort(sample.iteration_s)[:8]
    chosen = simulated[first].min()
    low, middle, high = np.percentile(ratio, [5, 50, 95])
    print(
        f"exhaustive simulation of {len(sample)} plans: simulated/scored {low:.3f} {middle:.3f} "
        f"{high:.3f} (5, 50, 95 %), chosen over best {chosen / simulated.min():.4f}"
    )


if __name__ == "__main__":
    main()
