"""What a run takes, in one line; lengths in words; the nearest plan that fits."""

import pytest

import accelsim
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.option import amount
from accelsim.report.training import decision_words
from accelsim.training.plan import parse_plan

FIGURES = {
    "device": "h100-sxm-80gb",
    "device_count": 8,
    "node_count": 1,
    "counts_hosts": True,
    "iteration_s": 0.5,
    "cost_usd": 0.01,
    "energy_j": 7200.0,
    "carbon_kgco2e": None,
    "time_to_train_s": 1110.0,
    "total_cost_usd": 5.93,
    "total_energy_j": 7.56e6,
    "total_carbon_kgco2e": 0.8,
}


def test_a_run_is_told_in_one_line():
    words = decision_words(FIGURES)
    assert (
        words == "8 × H100 SXM5 80GB (1 node): 18.5 min, $5.93, 2.10 kWh with hosts, 0.800 kgCO2e"
    )


def test_an_iteration_says_so_and_what_is_unknown():
    alone = FIGURES | {"time_to_train_s": None, "node_count": None, "counts_hosts": False}
    assert decision_words(alone | {"device_count": 1}) == (
        "1 × H100 SXM5 80GB: 500 ms an iteration, $0.0100, 2.00 Wh without hosts, carbon unknown"
    )
    bare = decision_words(alone | {"cost_usd": None, "energy_j": None, "node_count": 2})
    assert "(2 nodes)" in bare
    assert "price unknown, energy unknown" in bare


@pytest.mark.parametrize(
    ("text", "value"),
    [("100M", 1e8), ("1T", 1e12), ("1.5b", 1.5e9), ("2k", 2e3), ("300e9", 3e11), ("7", 7.0)],
)
def test_amounts_are_read_as_people_write_them(text, value):
    assert amount("tokens", text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["1Q", "", "T", "-1M", "0", "1 TB", "nan", "inf", "1e400"])
def test_other_amounts_are_refused_with_the_units(text):
    with pytest.raises(InvalidValueError, match="thousands, millions, billions, trillions"):
        amount("tokens", text)


@pytest.mark.parametrize("cluster", ["dgx-h100", "hgx-h100", "aws-p5-48xlarge"])
def test_hosts_are_counted_in_every_node(cluster):
    found = accelsim.train("llama-3.2-1b", cluster=cluster, seq_len=256)
    assert found.counts_hosts
    assert found.node_count == 1
    assert found.average_power_w > 8 * found.iteration.setup.idle_w


@pytest.mark.parametrize(
    ("cluster", "published_w"),
    [
        # PaLM 540B, 0.58 of the peak with what runs again: Chowdhery et al. 2022, arXiv:2204.02311
        ("tpu-v4-pod", 378.5),
        # T5, Meena, GShard, Switch Transformer: Patterson et al. 2021, arXiv:2104.10350, table 4
        ("tpu-v3-pod", (310 + 289 + 288 + 245) / 4),
    ],
)
def test_a_chip_of_a_pod_draws_what_its_operator_metered(cluster, published_w):
    plan = "tp=8,sp=1,zero=3,microbatch=4,recompute=full"
    asked = {"seq_len": 2048, "global_batch": 512, "plan": plan, "check_memory": False}
    found = accelsim.train("gpt3-175b", cluster=cluster, gpus=256, **asked)
    assert found.counts_hosts
    assert found.average_power_w / 256 == pytest.approx(published_w, rel=0.25)


def test_carbon_goes_with_energy():
    asked = {"device": "a100-sxm-40gb", "seq_len": 256, "provider": "gcp"}
    length = accelsim.RunLength(iterations=100)
    found = accelsim.train("llama-3.2-1b", length=length, **asked)
    assert found.carbon_kgco2e > 0
    ratio = found.total_carbon_kgco2e / found.carbon_kgco2e
    assert ratio == pytest.approx(found.total_energy_j / found.energy_j)


def _nearest(**asked):
    with pytest.raises(DoesNotFitError, match="nearest plan that fits") as caught:
        accelsim.train("llama-3.1-8b", seq_len=2048, **asked)
    words = str(caught.value).split("The nearest plan that fits: ")[1].rstrip(".")
    return parse_plan(words)


@pytest.mark.parametrize("plan", ["lora_rank=16", "lora_rank=16,microbatch=4,bucket_bytes=5e6"])
def test_adapters_stay_in_the_nearest_plan_and_it_fits(plan):
    asked = {"device": "l4", "gpus": 4}
    near = _nearest(plan=plan, global_batch=16, **asked)
    assert near["lora_rank"] == 16
    words = ",".join(f"{name}={value}" for name, value in near.items())
    assert accelsim.train("llama-3.1-8b", seq_len=2048, plan=words, global_batch=16, **asked).fits


@pytest.mark.parametrize("search", [False, True])
def test_offloading_is_tried_before_no_plan_is_said_to_fit(search):
    assert _nearest(device="l4", gpus=4, search=search)["optimizer_offload"]
    assert _nearest(device="h100-sxm-80gb")["optimizer_offload"]


def test_what_cannot_fit_is_said_not_to():
    with pytest.raises(DoesNotFitError, match="offloading included"):
        accelsim.train("llama-3.1-70b", device="t4", gpus=2, seq_len=512, precision="fp16")
