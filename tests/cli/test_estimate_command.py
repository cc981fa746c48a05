"""``accelsim estimate``: its formats, options and refusals."""

from __future__ import annotations

import json
import math

import pytest

KEYS = {
    *(
        "workload",
        "device",
        "batch",
        "precision",
        "mode",
        "execution",
        "latency_s",
        "throughput_per_s",
    ),
    *(
        "latency_low_s",
        "latency_high_s",
        "interval_level",
        "tier",
        "bound",
        "energy_j",
        "average_power_w",
    ),
    *("memory_bytes", "fits", "flop", "bytes", "cost_usd_per_1000", "offer", "operators"),
}
RUN = ("estimate", "resnet-50", "--device", "t4", "--batch", "32")
OWN_DEVICE = """\
name: my-gpu
title: A GPU of mine
class: gpu
vendor: Mine
year: 2026
architecture: Turing
sources: {page: a page I wrote myself}
sm_count: {value: 40, source: page}
lanes_per_sm: {value: 64, source: page}
boost_clock_mhz: {value: 1500, source: page}
vector_tflop_per_s: {fp32: {value: 8, source: page}}
matrix_tflop_per_s: {fp16: {value: 60, source: page}}
memory:
  name: GDDR6
  capacity_gib: {value: 8, source: page}
  bandwidth_gb_per_s: {value: 300, source: page}
power: {limit_w: {value: 100, source: page}}
"""


def test_json_is_one_object_with_the_promised_keys(run):
    estimate = run(*RUN, "--format", "json").json
    assert set(estimate) >= KEYS
    assert (estimate["workload"], estimate["device"], estimate["batch"]) == ("resnet-50", "t4", 32)
    assert estimate["latency_low_s"] <= estimate["latency_s"] <= estimate["latency_high_s"]
    top = estimate["operators"][0]
    assert {"name", "kind", "time_s", "bound", "share_fraction"} <= set(top)
    assert top["time_s"] == max(operator["time_s"] for operator in estimate["operators"])


def test_json_is_that_of_the_library(run):
    import accelsim

    ours = run(*RUN, "--precision", "fp16", "--format", "json").json
    assert ours == json.loads(
        accelsim.estimate("resnet-50", "t4", batch=32, precision="fp16").to_json()
    )


def test_csv_has_one_row_with_the_figures_of_the_json(run):
    (row,) = run(*RUN, "--format", "csv").rows
    estimate = run(*RUN, "--format", "json").json
    assert float(row["latency_s"]) == estimate["latency_s"]
    assert float(row["memory.weight_bytes"]) == estimate["memory"]["weight_bytes"]
    assert row["fits"] == "true"
    assert "operators" not in row


def test_unknown_figures_are_null_empty_and_unknown(run):
    fails_to_fit = ("estimate", "llama-3.1-70b", "--device", "t4")
    assert run(*fails_to_fit, "--format", "json").json["latency_s"] is None
    assert run(*fails_to_fit, "--format", "csv").rows[0]["latency_s"] == ""
    table = run(*fails_to_fit)
    assert table.code == 0
    assert "DOES NOT FIT" in table.out
    assert "short" in table.out


@pytest.mark.parametrize("columns", ["80", "100"])
@pytest.mark.parametrize("model", ["resnet-50", "llama-3.1-8b", "bert-large"])
def test_the_table_says_what_matters_within_the_width(run, monkeypatch, model, columns):
    monkeypatch.setenv("COLUMNS", columns)
    text = run("estimate", model, "--device", "a100-sxm-80gb").out
    for word in (
        "time",
        "interval",
        "throughput",
        "energy",
        "power",
        "memory",
        "fits",
        "limited by",
        "tier",
        "cost",
    ):
        assert word in text
    assert "as of" in " ".join(text.replace("│", " ").split())
    assert "largest operators" in text
    assert max(map(len, text.splitlines())) <= int(columns)


def test_generation_shows_first_and_next_tokens(run):
    text = run(
        "estimate",
        "llama-3.1-8b",
        "--device",
        "a100-sxm-80gb",
        "--seq-len",
        128,
        "--output-len",
        16,
    ).out
    assert "TTFT" in text
    assert "TPOT" in text
    assert "tokens/s" in text
    assert "per million output tokens" in text
    single_pass = run(
        "estimate", "llama-3.1-8b", "--device", "a100-sxm-80gb", "--output-len", 0
    ).out
    assert "TTFT" not in single_pass


def test_every_option_reaches_the_estimate(run):
    options = {
        "batch": 4,
        "precision": "fp32",
        "mode": "training",
        "execution": "compiled",
        "seq-len": 128,
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    command = ("estimate", "bert-large", "-d", "a100-sxm-80gb", *arguments, "--format", "json")
    estimate = run(*command).json
    for name, value in options.items():
        assert estimate[name.replace("-", "_")] == value
    with_sgd = run(*command, "--optimizer", "sgd").json
    assert with_sgd["memory"]["optimizer_bytes"] < estimate["memory"]["optimizer_bytes"]
    unfused = run(*command, "--unfused-attention").json
    assert unfused["bytes"] > estimate["bytes"]


def test_larger_images_take_more_arithmetic(run):
    small = run(*RUN, "--format", "json").json["flop"]
    assert run(*RUN, "--image-size", 448, "--format", "json").json["flop"] == pytest.approx(
        4 * small, rel=0.02
    )


def test_an_own_price_replaces_the_offer(run):
    estimate = run(*RUN, "--usd-per-hour", "3.6", "--format", "json").json
    assert estimate["offer"] is None
    expected = 1000 * 3.6 / 3600 / estimate["throughput_per_s"]
    assert math.isclose(estimate["cost_usd_per_1000"], expected, rel_tol=1e-12)
    assert "own price" in run(*RUN, "--usd-per-hour", "3.6").out


def test_a_named_offer_is_used_and_dated(run):
    offer = "aws/us-east-1/g4dn.xlarge:spot"
    assert run(*RUN, "--offer", offer, "--format", "json").json["offer"] == offer
    assert "spot, as of" in " ".join(run(*RUN, "--offer", offer).out.replace("│", "").split())


def test_a_device_file_is_used(run, tmp_path):
    profile = tmp_path / "my.yaml"
    profile.write_text(OWN_DEVICE, encoding="utf-8")
    estimate = run("estimate", "resnet-50", "--device-file", profile, "--format", "json").json
    assert estimate["device"] == "my-gpu"
    assert estimate["cost_usd_per_1000"] is None
    assert "unknown: no price" in run("estimate", "resnet-50", "--device-file", profile).out
    assert run("estimate", "resnet-50", "--device-file", profile, "--device", "my-gpu").code == 0


def test_a_device_that_is_not_the_file_s_is_refused(refused, tmp_path):
    profile = tmp_path / "my.yaml"
    profile.write_text(OWN_DEVICE, encoding="utf-8")
    assert "my-gpu" in refused("estimate", "resnet-50", "--device-file", profile, "--device", "t4")


def test_no_device_at_all_is_refused(refused):
    assert "--device" in refused("estimate", "resnet-50")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("resnet-5O", "-d", "t4"), "resnet-50"),
        (("resnet-50", "-d", "h100-sxm-80g"), "h100-sxm-80gb"),
        (("resnet-50", "-d", "t4", "--precision", "fp17"), "fp16"),
        (("resnet-50", "-d", "t4", "--offer", "aws/us-east-1/g4dn.xlarg"), "g4dn.xlarge"),
        (("resnet-50", "-d", "t4", "--offer", "aws/us-east-1/p4d.24xlarge"), "offer of t4"),
        (("resnet-50", "-d", "t4", "--offer", "aws/us-east-1/g4dn.xlarge:gratis"), "spot"),
        (("resnet-50", "-d", "t4", "--optimizer", "adamwx", "--mode", "training"), "adamw"),
        (("resnet-50", "-d", "t4", "--mode", "dreaming"), "inference, training"),
        (("resnet-50", "-d", "t4", "--execution", "slow"), "eager, graph, compiled"),
        (("resnet-50", "-d", "t4", "--host", "epyc-7764"), "epyc-7763"),
        (("resnet-50", "-d", "t4", "--batch", "0"), "batch = 0"),
        (("resnet-50", "-d", "t4", "--batch", "-3"), "batch = -3"),
        (("resnet-50", "-d", "t4", "--batch", 10**30), "1,073,741,824"),
        (("resnet-50", "-d", "t4", "--image-size", "1000000"), "16,384"),
        (("bert-large", "-d", "t4", "--seq-len", "0"), "seq_len = 0"),
        (("bert-large", "-d", "t4", "--seq-len", 10**15), "10,000,000"),
        (("llama-3.1-8b", "-d", "t4", "--output-len", "-1"), "output_len = -1"),
        (("resnet-50", "-d", "t4", "--seq-len", "128"), "no sequence"),
        (("resnet-50", "-d", "t4", "--output-len", "128"), "does not generate"),
        (("resnet-50", "-d", "t4", "--usd-per-hour", "nan"), "usd_per_hour"),
        (("resnet-50", "-d", "t4", "--usd-per-hour", "-1"), "usd_per_hour"),
        (("resnet-50", "-d", "t4", "--usd-per-hour", "inf"), "usd_per_hour"),
        (("resnet-50", "-d", "t4", "--mode", "training", "--precision", "int8"), "training"),
        (("no-such-file.json", "-d", "t4"), "no-such-file.json"),
        (("resnet-50", "--device-file", "no-such-file.yaml"), "no-such-file.yaml"),
        (("", "-d", "t4"), "workloads list"),
        (("resnet-50", "-d", ""), "devices list"),
        (("../../etc/passwd", "-d", "t4"), "a path that ends in .yaml"),
        (("x" * 5000, "-d", "t4"), "Unknown workload"),
        (("resnet-50", "-d", "a\x00b"), "Unknown device"),
    ],
)
def test_wrong_input_is_refused_in_one_line(refused, arguments, words):
    assert words in refused("estimate", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("estimate",),
        ("estimate", "resnet-50", "-d", "t4", "--batch", "many"),
        ("estimate", "resnet-50", "-d", "t4", "--batch", "1e3"),
        ("estimate", "resnet-50", "-d", "t4", "--format", "xml"),
        ("estimate", "resnet-50", "-d", "t4", "--no-such-option"),
        ("estimate", "resnet-50", "bert-large", "-d", "t4"),
        ("no-such-command",),
    ],
)
def test_wrong_usage_exits_with_2(run, arguments):
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err


MALFORMED = {
    "empty.yaml": "",
    "list.yaml": "- a\n- b\n",
    "duplicate.yaml": "name: a\nname: b\n",
    "nan.yaml": "name: a\nyear: .nan\n",
    "anchor.yaml": "a: &a [1]\nb: *a\n",
    "tag.yaml": "a: !!python/object/apply:os.system [ls]\n",
    "deep.yaml": "a: " + "[" * 5000 + "]" * 5000,
    "broken.yaml": "a: [1, 2\n",
    "empty.json": "",
    "huge-number.json": '{"name": "a", "year": 1e400}',
    "nan.json": '{"name": NaN}',
    "duplicate.json": '{"name": "a", "name": "b"}',
    "deep.json": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    "types.json": '{"format": "accelsim-workload", "version": 1, "graphs": 7}',
    "config.json": '{"model_type": "llama", "hidden_size": "big"}',
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("role", ["model", "device"])
def test_malformed_files_are_refused_by_name(refused, tmp_path, name, role):
    path = tmp_path / name
    path.write_text(MALFORMED[name], encoding="utf-8")
    arguments = (path, "-d", "t4") if role == "model" else ("resnet-50", "--device-file", path)
    assert name in refused("estimate", *arguments)


def test_binary_and_huge_files_are_refused(refused, tmp_path):
    binary, huge = tmp_path / "binary.yaml", tmp_path / "huge.yaml"
    binary.write_bytes(bytes(range(256)))
    huge.write_bytes(b"a: 1\n" * 2_000_000)
    assert "binary.yaml" in refused("estimate", binary, "-d", "t4")
    assert "huge.yaml" in refused("estimate", "resnet-50", "--device-file", huge)


def test_a_number_without_a_source_is_refused_with_line_and_field(refused, tmp_path):
    path = tmp_path / "unsourced.yaml"
    path.write_text(
        OWN_DEVICE.replace("sm_count: {value: 40, source: page}", "sm_count: {value: 40}"),
        encoding="utf-8",
    )
    message = refused("estimate", "resnet-50", "--device-file", path)
    assert "line 8" in message
    assert "sm_count" in message
    assert "source" in message
