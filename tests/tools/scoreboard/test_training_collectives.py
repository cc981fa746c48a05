"""The suite of all-reduces: what is fitted, held out, refused, and the refit of fabrics."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.catalog.clusters import cluster
from accelsim.cost.collective import collective_costs
from accelsim.hardware.placement import RankGroup
from accelsim.scoreboard import scoreboard_dict, validate
from accelsim.scoreboard.data_folder import data_folder
from tools.refit.fabrics import refit_fabrics
from tools.scoreboard.training_collectives import is_held_out

HEADER = "gpu,n_gpus,size_bytes,time_us_outofplace\n"
SCALING = "what,system,n_acc,size_or_model,value\n"


@pytest.fixture
def folder(tmp_path):
    training = tmp_path / "training"
    training.mkdir()
    lines = [
        f"{gpu},{ranks},{mebibytes * 2**20},{1e6 * modelled_s(node, ranks, mebibytes)}"
        for gpu, node in (("A100", "dgx-a100"), ("V100", "dgx-1"))
        for ranks in (2, 4, 6, 7)
        for mebibytes in (1, 2, 3, 4, 8, 16, 64, 128, 256, 512, 900, 1024)
    ]
    (training / "nccl_allreduce.csv").write_text(HEADER + "\n".join(lines) + "\n")
    rows = "all_reduce busbw,see note,32,1MiB,17.1\nscaling efficiency,x,512,VGG-16,68\n"
    (training / "collectives_scaling.csv").write_text(SCALING + rows)
    return tmp_path


def modelled_s(node, ranks, mebibytes):
    size = mebibytes * 2**20
    return collective_costs("all_reduce", size, RankGroup(ranks), cluster(node)).time_s[0]


def test_every_row_is_answered_or_refused_by_name(folder):
    found = scoreboard_dict(validate(["training-collectives"], folder))
    score = found["suites"]["training-collectives"]
    assert score["rows_answered"] == 2 * 4 * 12
    assert sum(score["refused"].values()) == 2
    assert score["max_ape_fraction"] == pytest.approx(0.0, abs=1e-9)
    assert score["geomean error"] == {"A100": 0.0, "V100": 0.0}


def test_six_ranks_and_odd_sizes_are_held_out():
    ranks, mebibytes = np.array([2, 2, 6]), np.array([2, 3, 2])
    assert is_held_out(ranks, mebibytes * 2.0**20).tolist() == [False, True, True]


def test_the_refit_finds_the_rates_of_long_payloads_again(folder):
    found = refit_fabrics(data_folder(folder))
    for name, node in (("nvlink-switch", "dgx-a100"), ("nvlink-mesh", "dgx-1")):
        tier = cluster(node).tiers[0]
        fitted = 1 / found[name]["achieved_fraction"] + 1 / found[name]["copy_ratio"]
        known = 1 / tier.achieved_fraction + 1 / tier.fabric.copy_ratio
        assert fitted == pytest.approx(known, rel=0.05)
