"""What an estimate says of runs like it: same device, mode, format and kind of model, or that there
are none; and that no interval is narrower than their residuals.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from accelsim import Arrivals, catalog
from accelsim.confidence.quantiles import small_sample_ratio
from accelsim.cost.fitted import HeldOutError, fitted_parameters
from accelsim.errors import AccelsimError
from accelsim.estimation import evidence as module
from accelsim.estimation.estimate import estimate
from accelsim.estimation.estimate_many import estimate_many
from accelsim.estimation.evidence import evidence, residual_log_sigma, shipped_evidence
from accelsim.estimation.likeness import Setting
from accelsim.estimation.resolution import resolve
from accelsim.estimation.simulate import simulate
from accelsim.files.datafile import data_root
from accelsim.report.tables import estimate_view
from accelsim.scoreboard.accuracy_file import read_accuracy
from accelsim.serving.serve import serve
from accelsim.serving.trust import ServedRun
from accelsim.training.estimate import train
from accelsim.training.trust import row_spreads, speed_up_setting

Z90 = 1.6448536269514722
HALF = Setting.of("inference", "bf16", "transformer")


def run(profile, rows, median, p90, setting=HALF, **others):
    line = {"suite": "published", "class": "gpu", "profile": profile, "rows": rows}
    return line | {"setting": str(setting), "median": median, "p90": p90} | others


DOCUMENT = {
    "runs": [
        run("t4", 4, 0.05, 0.15),
        run("t4", 2, 0.5, 0.6, Setting.of("inference", "fp32", "transformer")),
        run("t4", 2, 0.5, 0.6, Setting.of("training", "bf16", "transformer")),
        run("a30", 9, 0.06, 0.2),
        run("a10", 2, 0.09, 0.31, suite="mlperf-inference"),
        run("inferentia2", 6, 0.62, 0.7, **{"class": "asic"}),
    ],
    "spreads": {
        f"gpu {HALF}": {"rows": 15, "log_sigma": 0.3, "origins": 40},
        "gpu inference * transformer": {"rows": 19, "log_sigma": 0.5, "origins": 40},
        "gpu * * *": {"rows": 30, "log_sigma": 0.6, "origins": 40},
        "gpu inference int8 transformer": {"rows": 2, "log_sigma": 0.01, "origins": 1},
        "gpu inference w8a16 transformer": {"rows": 2, "log_sigma": 0.7, "origins": 1},
    },
}


@pytest.fixture
def document(monkeypatch):
    monkeypatch.setattr(module, "shipped_evidence", lambda: DOCUMENT)
    evidence.cache_clear()
    yield
    evidence.cache_clear()


@pytest.mark.usefixtures("document")
def test_runs_of_the_device_come_alone():
    found = evidence("t4@fraction=0.5", "gpu", "spec", (), HALF)
    assert found.sentence.endswith(
        "4 whole-model runs like it on it were within 5 % (median), 15 % (p90) [published]"
    )
    assert (found.scope, found.rows, found.devices) == ("this device", 4, 1)


@pytest.mark.usefixtures("document")
def test_then_others_of_its_class_and_it_says_that_there_are_none_of_its_own():
    found = evidence("l4", "gpu", "spec", ("l40s",), HALF)
    assert found.sentence == (
        "class-wide parameters with the kernel surfaces of l40s; no run like it (16-bit inference "
        "of transformers) was measured on it; 15 whole-model runs on 3 other GPUs were off by "
        "5 to 31 % (least median to largest p90) [published, mlperf-inference]"
    )
    assert found.to_dict()["median_ape_fraction"] == [0.05, 0.09]


@pytest.mark.usefixtures("document")
@pytest.mark.parametrize(
    "setting",
    [Setting.of("inference", "int8", "transformer"), Setting.of("training", "fp32", "convolution")],
)
def test_no_other_format_mode_or_kind_is_cited(setting):
    found = evidence("t4", "gpu", "spec", (), setting)
    assert found.sentence.endswith("was measured on it or any other GPU")
    assert (found.scope, found.suite, found.rows) == ("none", None, 0)


@pytest.mark.usefixtures("document")
def test_a_chip_whose_like_is_far_off_says_so():
    assert evidence("inferentia2", "asic", "spec", (), HALF).is_far
    assert not evidence("t4", "gpu", "spec", (), HALF).is_far


@pytest.mark.usefixtures("document")
def test_a_spread_comes_from_the_nearest_setting_with_enough_rows():
    many = small_sample_ratio(40)
    assert residual_log_sigma("gpu", HALF) == pytest.approx(0.3 * many)
    assert residual_log_sigma(
        "gpu", Setting.of("inference", "int8", "transformer")
    ) == pytest.approx(0.5 * many)
    assert residual_log_sigma("gpu", Setting.of("training", "fp32", "other")) == pytest.approx(
        0.6 * many
    )
    few = Setting.of("inference", "w8a16", "transformer")  # two rows further off than all others
    assert residual_log_sigma("gpu", few) == 0.7
    others = {"gpu * * *": {"rows": 20, "log_sigma": 0.4, "origins": 1}}
    assert residual_log_sigma("gpu", few, others) == 0.4
    few_systems = {
        f"gpu {HALF}": {"rows": 90, "log_sigma": 0.05, "origins": 4},
        "gpu inference * *": {"rows": 90, "log_sigma": 0.2, "origins": 5},
    }
    assert residual_log_sigma("gpu", HALF, few_systems) == 0.2
    assert residual_log_sigma("asic", HALF) == 0.0


def test_the_evidence_that_ships_is_of_the_reports_that_ship():
    folder = data_root() / "calibration"
    answered = {
        name: suite["rows_answered"]
        for report in (folder / "published", folder)
        for name, suite in read_accuracy(report / "ACCURACY.json")["suites"].items()
    }
    rows = Counter()
    for line in shipped_evidence()["runs"]:
        rows[line["suite"]] += line["rows"]
    below_saturation = rows.pop("serving-ttft-mean")  # beyond it, a first token waits in a queue
    assert 0.8 * answered["serving-ttft-mean"] < below_saturation <= answered["serving-ttft-mean"]
    assert rows == {name: answered[name] for name in rows}
    assert {"gpu-models", "published", "asic-networks", "dpu"} <= set(rows)


DEVICES = ("h100-sxm-80gb", "t4", "rtx-4090", "mi300x", "tpu-v5e", "inferentia2", "epyc-9654")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", ["resnet-50", "bert-base", "llama-3.2-1b"])
def test_no_interval_is_narrower_than_the_residuals_of_its_like(device, model):
    result = estimate(model, device)
    setting = simulate(model, device).setting
    known = residual_log_sigma(str(catalog.device(device).device_class), setting)
    sigma = math.log(result.latency_high_s / result.latency_s) / Z90
    assert sigma >= known - 1e-12
    evidence = result.evidence
    cited = [
        line
        for line in shipped_evidence()["runs"]
        if line["profile"] == device and line["setting"] == str(setting)
    ]
    assert (evidence.scope == "this device") == bool(cited)
    assert evidence.scope == "none" or evidence.rows > 0
    overlay = None if result.tier == "spec" else fitted_parameters(device)
    assert evidence.measured_rows == (overlay.rows if overlay else 0)
    assert json.loads(result.to_json())["evidence"] == evidence.to_dict()


#: A model of each kind, with what makes a run of it short.
MODEL_OF_KIND = {
    "convolution": ("resnet-50", {"batch": 8}),
    "transformer": ("bert-base", {"batch": 8}),
    "generation": ("llama-3.1-8b", {"batch": 1, "seq_len": 128, "output_len": 16}),
    "other": ("dlrm-criteo-kaggle", {"batch": 64}),
}
#: Where several devices of a class train.
NODES = {"gpu": "dgx-b200", "asic": "tpu-v3-host"}


def log_sigma(metric):
    return math.log(metric.high / metric.value) / Z90


def served_like(setting, resolved):
    """Spread of a server's figure of a setting."""
    mode, figure = setting.mode.rsplit("-", 1)
    served = ServedRun(resolved, is_split=mode.startswith("split"))
    assert served.setting(figure) == setting
    return served.log_sigma(figure)


def answer_like(device_class, setting, boards):
    """Spread of an answer of a setting on one of the boards that ran it."""
    model, sizes = MODEL_OF_KIND[setting.model]
    if setting.precision.startswith("q") and setting.model == "transformer":  # prompts of llama.cpp
        model, sizes = "llama-3.2-1b", {"batch": 1, "seq_len": 512, "output_len": 0}
    formats = ("bf16", "fp16") if setting.precision == "16-bit" else (setting.precision,)
    refused = []
    for board, precision in itertools.product(boards, formats):
        try:
            if "serving" in setting.mode:
                return served_like(setting, resolve(model, board, precision=precision))
            if not setting.mode.startswith("parallel"):
                asked = {"mode": setting.mode, "precision": precision, **sizes}
                assert simulate(model, board, **asked).setting == setting
                return log_sigma(estimate(model, board, **asked).metrics["latency_s"])
            cluster = {"cluster": NODES[device_class], "precision": precision}
            found = train(model, global_batch=512, check_memory=False, **cluster)
            own = row_spreads(found.iteration).setting
            assert setting in {own, speed_up_setting(found.iteration)}
            return log_sigma(found.metrics["iteration_s"])
        except AccelsimError as error:
            refused.append(str(error))
    raise AssertionError(refused)


#: A server's rate over the same board's offline rate (suite serving-mlperf): no command answers it.
ONLY_SCORED = "serving-rate"
GROUPS = [key for key in shipped_evidence()["spreads"] if "*" not in key]


@pytest.mark.parametrize("group", [key for key in GROUPS if ONLY_SCORED not in key])
def test_no_group_of_measured_runs_spreads_wider_than_the_answers_like_it(group):
    """Boards whose overlay was fitted to whole networks have the spread of those whose layers are
    known, as theirs are, under the newest release.
    """
    device_class, *words = group.split()
    setting = Setting(*words)
    alike = [
        line
        for line in shipped_evidence()["runs"]
        if (line["class"], line["setting"]) == (device_class, str(setting))
    ]
    boards = list(dict.fromkeys(line["profile"] for line in alike))
    spread = shipped_evidence()["spreads"][group]["log_sigma"]
    if device_class == "fpga":
        suites = read_accuracy(data_root() / "calibration" / "ACCURACY.json")["suites"]
        (known,) = (
            group
            for group in suites["dpu"]["groups"]
            if (group["device"], group["model"]) == ("v3.0", "single layers") and group["profile"]
        )
        spread = -math.log1p(-known["p90_ape_fraction"]) / Z90
    assert answer_like(device_class, setting, boards) >= spread - 1e-9


def test_no_power_spreads_wider_than_its_interval():
    """Metered power of language models and of training on every board."""
    suites = read_accuracy(data_root() / "calibration" / "ACCURACY.json")["suites"]
    interval = log_sigma(estimate("llama-3.2-1b", "b200-sxm").metrics["average_power_w"])
    groups = [*suites["serving-energy"]["groups"], *suites["training-power"]["groups"]]
    powers = [g for g in groups if g["rows_answered"] and g.get("operator", "power") == "power"]
    assert len(powers) > 2
    for group in powers:
        assert -math.log1p(-group["p90_ape_fraction"]) / Z90 <= interval, group


@pytest.mark.parametrize("device_class", ["cpu", "gpu", "asic"])
def test_every_device_cites_runs_of_its_own_where_there_are_any(device_class):
    """And never one of another format, mode, kind of model or class."""
    runs = [line for line in shipped_evidence()["runs"] if line["class"] == device_class]
    names = [n for n in catalog.device_names() if catalog.device(n).device_class == device_class]
    settings = {line["setting"] for line in shipped_evidence()["runs"]}
    for name, setting in itertools.product(names, sorted(settings)):
        found = evidence(name, device_class, "spec", (), Setting(*setting.split()))
        alike = [line for line in runs if line["setting"] == setting]
        own = [line for line in alike if line["profile"] == name.partition("@")[0]]
        cited = own or alike
        assert found.rows == sum(line["rows"] for line in cited), (name, setting)
        scope = "this device" if own else "other devices" if alike else "none"
        assert found.scope == scope, (name, setting)


@pytest.mark.parametrize("model", ["resnet-50", "bert-base", "llama-3.2-1b"])
def test_many_runs_have_the_interval_of_one(model):
    many = estimate_many(model, "a30", shapes={"batch": [1, 16]})
    for place, batch in enumerate((1, 16)):
        one = estimate(model, "a30", batch=batch)
        assert many["latency_high_s"][place] == pytest.approx(one.latency_high_s)


def test_a_servers_figures_are_as_uncertain_as_measured_servers():
    """Each by its own figure; times to the first token by the steps that compute prompts, but for
    what is no step of a replica.
    """
    load = Arrivals(users=4, requests=16, prompt="256", output="64")
    found = serve("llama-3.1-8b", "h100-sxm-80gb", load)
    run = resolve("llama-3.1-8b", "h100-sxm-80gb")
    ttft, tpot, energy = (ServedRun(run).log_sigma(name) for name in ("ttft", "tpot", "energy"))
    assert min(ttft, tpot, energy) > 0
    least = {"ttft_s.p50": 0.8 * max(ttft, tpot), "tpot_s.mean": tpot, "e2e_s.p99": tpot}
    least |= {"energy_j_per_token": energy, "cost_usd_per_million_tokens": tpot}
    for name, sigma in least.items():
        assert log_sigma(found.metrics[name]) >= sigma - 1e-9, name


def test_training_figures_have_the_interval_of_the_iteration():
    metrics = train("gpt2", cluster="dgx-b200", global_batch=64).metrics
    time, cost, energy = (log_sigma(metrics[n]) for n in ("iteration_s", "cost_usd", "energy_j"))
    assert time == pytest.approx(cost)
    assert energy > time
    memory = metrics["memory_bytes"]
    assert memory.low < memory.value < memory.high


def test_energies_and_costs_have_intervals():
    metrics = estimate("llama-3.2-1b", "a100-sxm-80gb").metrics
    for name in ("energy_j", "cost_usd_per_1000", "cost_usd_per_million_tokens", "tokens_per_s"):
        assert metrics[name].low < metrics[name].value < metrics[name].high, name
    time, energy = (metrics[n].high / metrics[n].value for n in ("latency_s", "energy_j"))
    assert energy > time


def test_the_table_shows_the_sentence():
    result = estimate("bert-base", "l4")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(estimate_view(result, catalog.device("l4")))
    text = re.sub(r"[\s│]+", " ", console.export_text())
    assert result.evidence.sentence in text
    assert "(tier spec)" in text


def test_a_spread_of_few_boards_is_widened_where_no_larger_group_knows_better(monkeypatch):
    few = {"rows": 40, "log_sigma": 0.2, "origins": 2}
    many = {"rows": 90, "log_sigma": 0.21, "origins": 60}
    document = {"runs": [], "spreads": {f"gpu {HALF}": few}}
    monkeypatch.setattr(module, "shipped_evidence", lambda: document)
    assert residual_log_sigma("gpu", HALF) == pytest.approx(0.2 * 2.920 / 1.645, rel=0.015)
    document["spreads"]["gpu inference * *"] = many
    assert 0.21 < residual_log_sigma("gpu", HALF) < 0.22


def test_a_calibration_is_no_surer_than_operators_left_out_of_it(monkeypatch):
    shipped = fitted_parameters("t4")
    poor = replace(shipped, held_out=HeldOutError(100, 0.888, 1.9))
    monkeypatch.setattr(module, "fitted_parameters", lambda _device: poor)
    evidence.cache_clear()
    result = estimate("bert-base", "t4")
    evidence.cache_clear()
    assert result.latency_high_s / result.latency_s >= 1.888**Z90 * (1 - 1e-9)
    assert "100 operators left out of the fit lay within 89 % (median)" in result.evidence.sentence
    (row,) = estimate_many("bert-base", "t4")["latency_high_s"]
    assert row == pytest.approx(result.latency_high_s)
