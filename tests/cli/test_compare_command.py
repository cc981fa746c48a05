"""``accelsim compare`` and ``accelsim demo``: every pair is there, the best are marked, failures
say why.
"""

from __future__ import annotations

import re

import pytest

from accelsim import catalog
from accelsim.catalog import DEVICE_GROUPS
from accelsim.catalog.selection import chosen_devices, chosen_modes
from accelsim.cli.demo import DEMO_DEVICES, DEMO_MODELS
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.estimation.evidence import evidence
from accelsim.estimation.likeness import Setting

PAIRS = ("compare", "resnet-50", "llama-3.1-8b", "--devices", "t4,epyc-9654", "--mode", "both")


def test_json_lists_every_pair_with_the_same_keys(run):
    rows = run(*PAIRS, "--format", "json").json
    pairs = {(row["workload"], row["device"], row["mode"]) for row in rows}
    modes = ("inference", "training")
    expected = {
        (m, d, mode)
        for m in ("resnet-50", "llama-3.1-8b")
        for d in ("t4", "epyc-9654")
        for mode in modes
    }
    assert pairs == expected
    assert len({tuple(row) for row in rows}) == 1
    failed = [row for row in rows if row["reason"] is not None]
    assert failed
    assert all(row["latency_s"] is None and "does not fit" in row["reason"] for row in failed)


def test_csv_has_the_same_columns_where_all_pairs_fail(run):
    good = run(*PAIRS, "--format", "csv").rows
    bad = run("compare", "bert-large", "--devices", "zcu102", "--format", "csv").rows
    assert bad[0]["latency_s"] == ""
    assert "zcu102 cannot run" in bad[0]["reason"]
    assert list(good[0]) == list(bad[0])
    assert {"operators", "memory"}.isdisjoint(good[0])
    assert float(good[0]["memory.weight_bytes"]) > 0


def test_rows_and_page_have_intervals_ties_and_what_is_far_off(run, tmp_path):
    page = tmp_path / "page.html"
    question = ("compare", "resnet-50", "--devices", "a100-sxm-80gb,tpu-v4", "--batch", 32)
    question += ("--execution", "compiled")
    rows = run(*question, "--format", "json", "--report", page).json
    for row in rows:
        for column in ("throughput_per_s", "energy_per_sample_j", "cost_usd_per_1000"):
            assert row[f"{column}_low"] < row[column] < row[f"{column}_high"]
    shown = page.read_text()
    assert "fastest tpu-v4 (" in shown
    assert "tied with it: a100-sxm-80gb" in shown
    assert "energy a factor of" in run(*question).out
    led = ("compare", "resnet-50", "--devices", "inferentia1,k40", "--batch", 32)
    (far,) = run(*led, "--format", "json", "--report", page, "--force").json[0]["warnings"]
    assert far in page.read_text()


@pytest.mark.parametrize("devices", ["a100-sxm-80gb,a100-sxm-40gb", "k40,h100-sxm-80gb"])
def test_the_best_of_each_column_is_marked_once_per_table(run, devices):
    question = ("compare", "resnet-50", "--devices", devices, "--batch", 512)
    text = run(*question).out
    rows = run(*question, "--format", "json").json
    for column in ("latency_s", "energy_per_sample_j"):
        won = [row["device"] for row in rows if column in row["best"]]
        tied = [row["device"] for row in rows if column in row["tied"]]
        least = min(rows, key=lambda row: row[column])["device"]
        assert won == [least] if won else (least in tied and len(tied) > 1)
    fastest = min(rows, key=lambda row: row["latency_s"])
    (line,) = [x for x in text.splitlines() if x.startswith(fastest["device"])]
    assert re.search(r"[mµ]s\*" if "latency_s" in fastest["best"] else "[mµ]s~", line)
    table = text.partition("who wins at which batch")[0]
    assert table.count("*") == sum(len(row["best"]) for row in rows)
    assert ("latency_s" in fastest["best"]) == devices.startswith("k40")


def test_pairs_that_cannot_run_show_their_reason(run):
    text = run("compare", "bert-large", "--devices", "zcu102,t4").out
    assert "cannot run" in text
    assert "fp16" in text


def test_a_host_is_named(run):
    assert (
        "epyc-9654 is its host"
        in run("compare", "bert-large", "--devices", "zcu102", "--host", "epyc-9654").out
    )
    assert "host" not in run("compare", "bert-large", "--devices", "t4").out


def test_training_on_integer_arithmetic_is_a_row_with_a_reason(run):
    rows = run(
        "compare", "resnet-50", "--devices", "zcu104", "--mode", "both", "--format", "json"
    ).json
    assert rows[0]["reason"] is None
    assert "training" in rows[1]["reason"]


@pytest.mark.parametrize("columns", ["80", "100", "132"])
def test_tables_fit_the_width_and_keep_device_names(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    text = run(
        "compare",
        "llama-3.1-8b",
        "bert-large",
        "--devices",
        "xeon-platinum-8480+,a100-sxm-80gb,zcu102",
    ).out
    assert max(map(len, text.splitlines())) <= int(columns)
    assert "…" not in text
    assert "xeon-platinum-8480+" in text


@pytest.mark.parametrize("word", DEVICE_GROUPS)
def test_words_stand_for_devices_that_exist(word):
    devices = chosen_devices([word])
    expected = "asic" if word == "tpu" else word
    assert {device.device_class for device in devices} == {expected}
    assert len(devices) == len(DEVICE_GROUPS[word])


def test_words_mean_the_same_in_python_and_say_how_many_they_stand_for(run):
    import accelsim

    assert [row.device for row in accelsim.compare("lenet-5", "tpu").rows] == [
        *DEVICE_GROUPS["tpu"]
    ]
    assert "tpu stands for 4 of" in run("compare", "lenet-5", "--devices", "tpu,t4").err


def test_devices_are_taken_once_in_order(tmp_path):
    names = [device.name for device in chosen_devices(["t4, zcu102", "tpu,t4", "T4"])]
    assert names == ["t4", "zcu102", *DEVICE_GROUPS["tpu"]]
    assert len(chosen_devices(["all"])) == len(
        {name for group in DEVICE_GROUPS.values() for name in group}
    )


def test_wrong_words_are_refused(refused):
    with pytest.raises(InvalidValueError, match="device names"):
        chosen_devices([",", ""])
    with pytest.raises(UnknownNameError, match="t4"):
        chosen_devices(["t4x"])
    with pytest.raises(InvalidValueError, match="both"):
        chosen_modes(["sleeping"])
    assert chosen_modes(["training", "both"]) == ("inference", "training")
    assert "devices" in refused("compare", "resnet-50")
    assert "no sequence" in refused("compare", "resnet-50", "--devices", "t4", "--seq-len", "5")
    assert "resnet-50" in refused("compare", "resnet-5O", "--devices", "t4")


def test_the_demo_covers_the_classes_models_and_modes(run):
    rows = run("demo", "--format", "json").json
    assert len(rows) == len(DEMO_DEVICES) * len(DEMO_MODELS) * 2
    assert len(DEMO_DEVICES) >= 8
    assert {catalog.device(name).device_class for name in DEMO_DEVICES} == {
        "cpu",
        "gpu",
        "fpga",
        "asic",
    }
    ran = [row for row in rows if row["reason"] is None]
    for model in DEMO_MODELS:
        for mode in ("inference", "training"):
            assert any(row["workload"] == model and row["mode"] == mode for row in ran), (
                model,
                mode,
            )
    inference = {(row["workload"], row["device"]) for row in ran if row["mode"] == "inference"}
    assert all(("resnet-50", device) in inference for device in DEMO_DEVICES)
    for row in rows:
        assert (row["reason"] is None) == (row["latency_s"] is not None)


def test_the_demo_prints_tables(run):
    ran = run("demo")
    assert ran.code == 0
    for model in DEMO_MODELS:
        assert f"{model} · inference" in ran.out
        assert f"{model} · training" in ran.out
    assert "does not fit" in ran.out


MODEL_OF_KIND = {"convolution": "resnet-50", "transformer": "bert-base", "other": "ncf-ml-20m"}


def is_far(device, setting):
    name = str(catalog.device(device).device_class)
    found = evidence(device, name, "spec", (), setting)
    return found.scope == "this device" and found.is_far


#: Devices and settings of inference whose own measured runs are further off than 40 %.
FAR = [
    (name, precision, kind)
    for name in catalog.device_names()
    for precision in ("fp32", "16-bit", "int8")
    for kind in MODEL_OF_KIND
    if is_far(name, Setting("inference", precision, kind))
]


@pytest.mark.parametrize(("device", "precision", "kind"), FAR)
def test_a_device_whose_like_is_far_off_never_leads_without_a_word(run, device, precision, kind):
    asked = "bf16" if precision == "16-bit" else precision
    slower = ("--devices", f"{device},core-i7-3820", "--precision", asked)
    text = run("compare", MODEL_OF_KIND[kind], *slower).out
    row = next(line for line in text.splitlines() if line.startswith(f"{device} "))
    leads = "*" in row or "~" in row
    assert (f"{device}: measured runs like this one were" in text) == leads


@pytest.mark.parametrize("median", [0.1, 0.5])
def test_a_chip_leads_with_a_word_where_its_own_rows_were_far_off(run, monkeypatch, median):
    runs = [
        {"suite": "asic-networks", "class": "asic", "profile": chip, "rows": 9, "p90": 0.6}
        | {"setting": "inference 16-bit transformer", "median": off}
        for chip, off in (("inferentia2", median), ("trainium1", 0.1))
    ]
    made = {"runs": runs, "spreads": {}}
    monkeypatch.setattr("accelsim.estimation.evidence.shipped_evidence", lambda: made)
    evidence.cache_clear()
    chips = "inferentia2,trainium1,core-i7-3820"
    text = run("compare", "bert-base", "--devices", chips, "--precision", "bf16").out
    evidence.cache_clear()
    row = next(line for line in text.splitlines() if line.startswith("inferentia2 "))
    assert "~" in row or "*" in row
    far = "inferentia2: measured runs like this one were 50 % off"
    assert (far in text) == (median > 0.4)
    assert "trainium1: measured" not in text


def test_a_comparison_of_eager_and_compiled_runs_says_so(run):
    pair = ("compare", "resnet-18", "--devices", "t4,tpu-v4")
    assert "like with like" in run(*pair, "--mode", "training").err
    assert "like with like" not in run(*pair, "--mode", "training", "--execution", "compiled").err
    assert "like with like" not in run(*pair).err


def test_devices_apart_from_their_list_are_told_from_models(refused):
    said = refused("compare", "resnet-50", "--devices", "t4,", "l4")
    assert "without blanks" in said
    assert "devices is missing" in refused("compare", "resnet-50")
