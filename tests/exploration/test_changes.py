"""Answers with one thing changed: faster parts never slow a run, prices go with the cost."""

from __future__ import annotations

from functools import partial

import pytest

import accelsim
from accelsim import catalog
from accelsim.catalog import clusters as cluster_catalog
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions
from accelsim.exploration.sensitivity.change import answered, changed_devices
from accelsim.exploration.sensitivity.run import run_changes
from accelsim.exploration.sensitivity.training import training_changes
from accelsim.training.length import RunLength


@pytest.mark.parametrize("name", ["t4", "zcu104"])
def test_a_device_with_less_of_its_rates_is_never_faster(name):
    device = catalog.device(name)
    base = accelsim.estimate("resnet-50", device, batch=8)
    found = run_changes("resnet-50", device, RunOptions(), PriceChoice(), base)
    times = {one.words: one.result.latency_s for one in found if one.result is not None}
    for what in ("memory bandwidth", "peak", "efficiency"):
        assert times[f"{what} 20 % more"] <= times[f"{what} 20 % less"]
    assert times["efficiency 20 % more"] < (times["efficiency 20 % less"])


def test_only_rates_of_a_changed_device_differ():
    device = catalog.device("h100-sxm-80gb")
    found = dict(changed_devices(device))
    assert len(found) == 6
    less = found["memory bandwidth 20 % less"]
    rate = device.memory.bandwidth_bytes_per_s
    assert less.memory.bandwidth_bytes_per_s.value == pytest.approx(0.8 * rate.value)
    assert less.model_copy(update={"memory": device.memory}) == device
    more = found["peak 20 % more"].peak_flop_per_s
    assert more == {name: pytest.approx(1.2 * x) for name, x in device.peak_flop_per_s.items()}


def test_what_cannot_be_answered_keeps_its_reason():
    def refuse():
        raise InvalidValueError("batch", 0, "an integer >= 1")

    found = answered("batch 0", refuse)
    assert found.result is None
    assert "batch = 0" in found.reason


def test_training_with_one_thing_changed():
    length = RunLength(iterations=1e5, mtbf_s=1e7)
    where = {"cluster": "dgx-h100", "gpus": 2, "length": length, "execution": "compiled"}
    ask = partial(accelsim.train, "llama-3.2-1b", **where)
    base = ask(plan="tp=2")
    cluster = cluster_catalog.cluster("dgx-h100")
    found = {one.words: one.result for one in training_changes(ask, base, cluster, length)}
    assert len(found) == 1 + 2 + 6 + 2 + 2
    dearer = found["price 20 % more"]
    assert dearer.total_cost_usd == pytest.approx(1.2 * base.total_cost_usd)
    assert dearer.iteration_s == base.iteration_s
    for what in ("bandwidth of links", "memory bandwidth", "peak"):
        more, less = (found[f"{what} 20 % {way}"].iteration_s for way in ("more", "less"))
        assert more < base.iteration_s < less
    rarer, oftener = (found[f"failures 20 % {way}"] for way in ("less", "more"))
    assert rarer.time_to_train_s < base.time_to_train_s < oftener.time_to_train_s
