"""Units priced together cost what each costs alone."""

from dataclasses import replace

import numpy as np
import pytest

from accelsim.catalog import clear_cache
from accelsim.estimation.options import run_options
from accelsim.training.candidates import CandidatePlans
from accelsim.training.estimate import training_setup
from accelsim.training.grid import candidate_groups
from accelsim.training.layers import BlockCosts, block_costs
from accelsim.training.setup import TrainingPlace
from accelsim.workloads.training import optimizer

ON = "dgx-h100"


def runs_of(model: str, **named: int) -> list:
    """Ways that random plans of a model run a microbatch on one rank."""
    options = run_options(None, {"mode": "training", "seq_len": 512})
    where = TrainingPlace(cluster=ON, gpus=16, global_batch=64)
    setup = training_setup(model, options, where)
    plans = CandidatePlans.joined([group for _, group in candidate_groups(setup, named)])
    picked = np.random.default_rng(7).permutation(len(plans))[:12]
    return [setup.run_of(unit) for unit in np.unique(setup.units(plans.take(picked)))]


def costs_of(runs: list) -> BlockCosts:
    clear_cache()
    return block_costs(runs)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("gpt2", {}),
        ("llama-3.2-1b", {}),
        ("llama-3.2-1b", {"lora_rank": 8}),
        ("mixtral-8x7b", {}),
        ("bert-base", {}),
    ],
)
def test_runs_priced_together_cost_what_each_costs_alone(model, named):
    runs = runs_of(model, **named)
    together = costs_of(runs)
    assert len(runs) > 1
    for place, run in enumerate(runs):
        alone = costs_of([run])
        np.testing.assert_allclose(together.values[:, place], alone.values[:, 0], rtol=1e-9)
        for name, column in together.unit_values.items():
            np.testing.assert_allclose(column[place], alone.unit_values[name][0], rtol=1e-9)
        rows, of_one = together.rows[place], alone.rows[0]
        for name in ("kind", "time_s", "log_sigma", "shared_log_sigma"):
            np.testing.assert_allclose(getattr(rows, name), getattr(of_one, name), rtol=1e-9)


def test_a_price_does_not_depend_on_the_optimizer_of_the_run_before():
    """An update of SGD has no moments to read and to write."""
    run = runs_of("gpt2")[0]
    costs = costs_of([run])
    other = replace(run, optimizer=optimizer("sgd"))
    after, alone = block_costs([other]), costs_of([other])
    assert after.unit_values["update_s"] == alone.unit_values["update_s"]
    assert alone.unit_values["update_s"] < 0.6 * costs.unit_values["update_s"]


def test_a_group_of_the_same_ranks_further_apart_is_slower():
    runs = [run for run in runs_of("mixtral-8x7b") if run.shard.tp == 1][:1]
    shards = [replace(runs[0].shard, ep=2, etp=1), replace(runs[0].shard, tp=8, ep=2, etp=8)]
    costs = costs_of([replace(runs[0], shard=shard) for shard in shards])
    near, far = costs["expert_forward_s"].sum(axis=1)
    assert 0 < near < far
