"""Several runs priced in one call cost what each costs alone."""

from dataclasses import fields, replace

import numpy as np
import pytest

from accelsim.catalog import clusters
from accelsim.cost.table import CostTable
from accelsim.estimation.passes import training_step
from accelsim.estimation.resolution import resolve
from accelsim.estimation.sharded_costs import rank_costs, run_costs
from accelsim.workloads.sharding import Shard


@pytest.mark.parametrize("device", ["h100-sxm-80gb", "tpu-v4", "epyc-7763"])
def test_runs_priced_together_cost_what_each_costs_alone(device):
    whole = resolve("llama-3.2-1b", device, mode="training", precision="bf16", seq_len=256)
    cluster = clusters.cluster("dgx-h100") if device.startswith("h100") else None
    ranks = [1, 2, 4] if cluster else [1, 1, 1]
    runs = [
        replace(whole, batch=batch, shard=Shard(tp=tp), cluster=cluster)
        for batch, tp in zip([1, 3, 4], ranks, strict=True)
    ]
    graphs = [training_step(run, folds=True).rows for run in runs]
    for table, graph, run in zip(rank_costs(graphs, runs), graphs, runs, strict=True):
        alone = run_costs(graph, run, is_decode=False)
        assert len(table) == len(graph)
        for column in fields(CostTable):
            own, one = getattr(table, column.name), getattr(alone, column.name)
            if isinstance(one, np.ndarray):
                np.testing.assert_allclose(own, one, rtol=1e-12, err_msg=column.name)


def test_no_runs_have_no_costs():
    assert rank_costs([], []) == []
