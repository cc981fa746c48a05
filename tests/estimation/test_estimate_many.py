"""Estimates of many runs are those of each run, and do not depend on the others."""

from __future__ import annotations

import numpy as np
import pytest

import accelsim
from accelsim.catalog.workloads import workload_names
from accelsim.errors import InputError, InvalidValueError, UnknownNameError
from accelsim.estimation.estimate_many import estimate_many

SEED = 7
LLAMA = "llama-3.2-1b"


def drawn(count, workload):
    random = np.random.default_rng(SEED)
    shapes = {"batch": random.integers(1, 129, count)}
    if workload != "resnet-50":
        shapes["seq_len"] = random.integers(8, 1500, count)
        shapes["output_len"] = random.integers(0, 6, count)  # none, one, two and many steps
    return shapes


def assert_equal(columns, place, estimate):
    for name in columns:
        if name in {"reason", "image_size"}:
            continue
        expected, found = getattr(estimate, name), columns[name][place]
        if expected is None:
            assert found == "" or np.isnan(found), name
        elif isinstance(expected, float):
            assert found == pytest.approx(expected, rel=1e-9, abs=0.0), name
        else:
            assert found == expected, name


@pytest.mark.parametrize("execution", ["eager", "graph"])
@pytest.mark.parametrize("device", ["t4", "h100-sxm-80gb", "mi300x", "b200-sxm", "epyc-7763"])
@pytest.mark.parametrize("workload", ["resnet-50", LLAMA, "bert-base", "mixtral-8x7b"])
def test_many_are_as_one_by_one(workload, device, execution):
    assert_as_one_by_one(workload, device, execution, 12)


@pytest.mark.parametrize("device", ["h100-sxm-80gb", "epyc-7763", "tpu-v5e", "inferentia2"])
@pytest.mark.parametrize("workload", ["resnet-50", LLAMA, "bert-base", "gpt-oss-20b"])
def test_many_are_as_one_by_one_where_rows_are_fused(workload, device):
    assert_as_one_by_one(workload, device, "compiled", 5)


def assert_as_one_by_one(workload, device, execution, count):
    shapes = drawn(count, workload)
    if workload == "bert-base":
        shapes = {"batch": shapes["batch"], "seq_len": np.minimum(shapes["seq_len"], 512)}
    columns = estimate_many(workload, device, shapes=shapes, execution=execution)
    for place in range(count):
        sizes = {name: int(column[place]) for name, column in shapes.items()}
        one = accelsim.estimate(workload, device, execution=execution, **sizes)
        assert_equal(columns, place, one)
        assert (columns["reason"][place] == "") == one.fits


@pytest.mark.long
@pytest.mark.parametrize("workload_name", workload_names())
def test_every_catalogued_model_is_answered_as_one_by_one(workload_name):
    one = accelsim.estimate(workload_name, "l4")
    shapes = {"batch": [1, 3, 64]}
    if one.seq_len:
        shapes["seq_len"] = [one.seq_len, max(1, one.seq_len // 2), max(1, one.seq_len // 5)]
    if one.output_len:
        shapes["output_len"] = [1, 2, 9]
    columns = estimate_many(workload_name, "l4", shapes=shapes)
    for place in range(3):
        sizes = {name: column[place] for name, column in shapes.items()}
        assert_equal(columns, place, accelsim.estimate(workload_name, "l4", **sizes))


@pytest.mark.parametrize(
    ("device", "keywords"),
    [
        ("t4", {"mode": "training", "precision": "fp16"}),
        ("t4", {"execution": "compiled"}),
        ("tpu-v4", {}),
        ("epyc-7763", {"precision": "fp32"}),
    ],
)
def test_runs_of_other_kinds_are_answered_too(device, keywords):
    columns = estimate_many("resnet-50", device, shapes={"batch": [4, 9]}, **keywords)
    for place, batch in enumerate((4, 9)):
        one = accelsim.estimate("resnet-50", device, batch=batch, **keywords)
        assert_equal(columns, place, one)


def test_runs_of_other_kinds_take_sizes_of_0_as_one_by_one():
    columns = estimate_many(LLAMA, "tpu-v4", shapes={"output_len": [0, 4]})
    for place, tokens in enumerate((0, 4)):
        assert_equal(columns, place, accelsim.estimate(LLAMA, "tpu-v4", output_len=tokens))
    with pytest.raises(InvalidValueError, match="batch"):
        estimate_many("resnet-50", "tpu-v4", shapes={"batch": [0, 4]})


def test_the_order_of_runs_changes_nothing():
    shapes = drawn(40, LLAMA)
    devices = np.array(["t4", "a100-sxm-80gb"])[np.arange(40) % 2]
    columns = estimate_many(LLAMA, devices, shapes=shapes)
    turned = np.random.default_rng(SEED).permutation(40)
    again = estimate_many(
        LLAMA, devices[turned], shapes={name: column[turned] for name, column in shapes.items()}
    )
    for name in columns:
        if columns[name].dtype == object:
            assert (columns[name][turned] == again[name]).all(), name
        else:
            np.testing.assert_allclose(columns[name][turned], again[name], rtol=1e-12)


def test_a_run_that_cannot_be_has_a_reason():
    columns = estimate_many(
        ["llama-3.1-70b", "resnet-50"], ["t4", "t4"], precision="fp16", shapes={"batch": 1}
    )
    assert "does not fit" in columns["reason"][0]
    assert np.isnan(columns["latency_s"][0])
    assert columns["reason"][1] == ""
    unsupported = estimate_many("resnet-50", "t4", precision="bf16", shapes={"batch": [1, 2]})
    assert all("bf16" in reason for reason in unsupported["reason"])


def test_a_frame_has_a_row_per_run():
    frame = estimate_many("resnet-50", "t4", shapes={"batch": [1, 2, 3]}).to_frame()
    assert frame["batch"].tolist() == [1, 2, 3]
    assert frame["throughput_per_s"].is_monotonic_increasing


@pytest.mark.parametrize(
    ("shapes", "field"),
    [
        ({"batch": [1, 2], "seq_len": [1, 2, 3]}, "shapes"),
        ({"batches": [1]}, "shapes"),
        ({"batch": [0.5]}, "batch"),
        ({"batch": [4, 0]}, "batch"),
        ({"batch": [4, -1]}, "batch.* = -1"),
        ({"batch": -1}, "batch.* = -1"),
        ({"output_len": [-2]}, "output_len.* = -2"),
        ({"image_size": [-1]}, "image_size.* = -1"),
        ({"seq_len": [4]}, "seq_len"),
    ],
)
def test_bad_columns_are_refused_by_name(shapes, field):
    with pytest.raises(InvalidValueError, match=field):
        estimate_many("resnet-50", "t4", shapes=shapes)


def test_unknown_names_are_refused():
    with pytest.raises(UnknownNameError, match="t5"):
        estimate_many("resnet-50", ["t4", "t5"])


def test_a_prompt_that_fills_all_positions_generates_one_token():
    shapes = {"seq_len": [8, 1024], "output_len": [8, 1]}
    columns = estimate_many("gpt2", "t4", shapes=shapes)
    for place, (length, tokens) in enumerate(zip(*shapes.values(), strict=True)):
        one = accelsim.estimate("gpt2", "t4", seq_len=length, output_len=tokens)
        assert_equal(columns, place, one)


TABLE = [
    {"workload": "resnet-50", "device": "t4", "batch": 8},
    {"workload": LLAMA, "device": "l4", "seq_len": 64, "output_len": 2},
    {"workload": "resnet-50", "device": "t4", "precision": "fp32", "batch": None},
    {"workload": "resnet-50", "device": "t4", "batch": 64, "mode": "training"},
]


@pytest.mark.parametrize("form", ["rows", "frame", "columns"])
def test_a_table_is_answered_row_by_row(form):
    import pandas as pd

    frame = pd.DataFrame(TABLE)
    table = {"rows": TABLE, "frame": frame, "columns": {k: frame[k].tolist() for k in frame}}[form]
    answer = estimate_many(table, stack="pytorch")
    for place, row in enumerate(TABLE):
        assert_equal(answer, place, accelsim.estimate(**row, stack="pytorch"))


def test_a_table_goes_before_what_all_rows_share():
    answer = estimate_many(TABLE[:3], precision="int8", shapes={"batch": 2})
    assert answer["precision"].tolist() == ["int8", "int8", "fp32"]
    assert answer["batch"].tolist() == [8, 2, 2]
    assert len(estimate_many([])) == 0


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"device": "t44"}, "row 4: Unknown device 't44'"),
        ({"device": None}, "row 4: device is missing"),
        ({"workload": 3}, "row 4: workload = 3 is not allowed"),
        ({"batch": 0}, "row 4: batch = 0 is not allowed"),
        ({"batch": 1.5}, "row 4: batch = 1.5 is not allowed"),
        ({"batch": "x"}, "row 4: batch = 'x' is not allowed"),
        ({"batch": -1}, "row 4: batch = -1 is not allowed"),
        ({"precision": "fp3"}, "row 4: Unknown precision 'fp3'"),
        ({"precision": ["fp32"]}, "row 4: precision = \\['fp32'\\] is not allowed"),
        ({"precision": (["fp32"],)}, "row 4: precision = \\(\\['fp32'\\],\\) is not allowed"),
        ({"bacth": 1}, "row 4: Unknown column 'bacth'. Did you mean batch"),
        ({3: 1}, "row 4: Unknown column '3'"),
        ({"mode": "training", "optimizer": "x"}, "row 4: Unknown optimizer"),
    ],
)
def test_a_bad_row_is_named_with_its_column(row, said):
    with pytest.raises(InputError, match=said):
        estimate_many([*TABLE, {"workload": "resnet-50", "device": "t4"} | row])


def test_a_bad_table_is_refused():
    with pytest.raises(InvalidValueError, match="columns of one length"):
        estimate_many({"workload": ["resnet-50"] * 2, "device": "t4", "batch": [1, 2, 3]})
    for table in ({"workload": "resnet-50"}, [{"workload": "resnet-50"}]):
        with pytest.raises(InvalidValueError, match=r"workload = .* beside device"):
            estimate_many(table, "t4")
    for names in ("resnet-50", ["resnet-50"], {"resnet-50"}):
        with pytest.raises(InvalidValueError, match="device is missing"):
            estimate_many(names)
    assert len(estimate_many([])) == len(estimate_many([], "t4")) == 0
