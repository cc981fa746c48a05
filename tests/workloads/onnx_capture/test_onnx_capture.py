"""ONNX files against the capture of the torch module that they are, and files that are damaged."""

from __future__ import annotations

import json

import pytest

import accelsim
from accelsim.errors import AccelsimError, CaptureError, InvalidValueError, ProfileError

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch
from onnx import TensorProto, helper

from accelsim.workloads.capture.onnx.file import read_onnx

from . import networks

pytestmark = pytest.mark.torch
FLOAT = TensorProto.FLOAT
node = networks.node
WORDS = torch.empty(2, 16, dtype=torch.long, device="meta")
CASES = {
    "residual": (networks.residual, networks.Residual, torch.empty(2, 3, 64, 64), {}),
    "block": (networks.block, networks.Block, WORDS, {"tokens": (2, 16)}),
    "recurrent": (
        networks.recurrent,
        networks.Recurrent,
        torch.empty(7, 3, dtype=torch.long, device="meta"),
        {},
    ),
}


def graph_of(workload):
    return workload.captured.forward.graph.graph


@pytest.mark.parametrize("case", CASES)
def test_a_network_costs_what_its_torch_module_does(case, tmp_path):
    write, module, inputs, shapes = CASES[case]
    shapes = shapes or {"x": tuple(inputs.shape)} if case != "recurrent" else {}
    file = accelsim.workload(str(write(tmp_path / "n.onnx")), shapes or None)
    made = accelsim.capture(module(), inputs)
    found, expected = graph_of(file), graph_of(made)
    assert file.captured.parameter_count == made.captured.parameter_count
    assert found.kind.tolist() == expected.kind.tolist()
    for column in ("flop", "read_bytes", "write_bytes", "weight_bytes"):
        assert getattr(found, column).tolist() == getattr(expected, column).tolist(), column


def test_a_network_is_estimated_at_any_batch(tmp_path):
    path = str(networks.residual(tmp_path / "r.onnx"))
    small, large = (accelsim.estimate(path, "t4", batch=batch) for batch in (1, 64))
    assert small.workload == "r"
    assert large.flop == pytest.approx(64 * small.flop, rel=0.01)


#: Operators: nodes, sizes of x, weights, values, and the FLOP of products they come to.
OPERATORS = {
    "einsum": (
        [node("Einsum", ["x", "w"], ["y"], equation="bi,ij->bj")],
        (2, 8),
        {"w": (8, 4)},
        128,
    ),
    "transposed": (
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])],
        (1, 8, 4, 4),
        {"w": (8, 3, 2, 2)},
        2 * 16 * 8 * 3 * 4,
    ),
    "gru": (
        [node("GRU", ["x", "w", "r", "b"], ["y"], hidden_size=6)],
        (5, 1, 4),
        {"w": (1, 18, 4), "r": (1, 18, 6), "b": (1, 36)},
        2 * 5 * 18 * 10,
    ),
    "attention": (
        [node("Attention", ["x", "x", "x"], ["y"], q_num_heads=2, kv_num_heads=2)],
        (1, 8, 16),
        {},
        4 * 8 * 8 * 16,
    ),
    "quantised": (
        [
            node("QuantizeLinear", ["x", "s"], ["q"]),
            node("DequantizeLinear", ["q", "s"], ["d"]),
            node("Gemm", ["d", "w"], ["y"]),
        ],
        (2, 8),
        {"w": (8, 4), "s": ()},
        128,
    ),
    "moved": (
        [
            node("Slice", ["x", "zero", "two", "zero"], ["a"]),
            node("Split", ["a"], ["b", "c"], axis=1, num_outputs=2),
            node("Concat", ["b", "c"], ["d"], axis=0),
            node("Pad", ["d", "sides"], ["e"]),
            node("Unsqueeze", ["e", "zero"], ["f"]),
            node("Resize", ["f", "", "factors"], ["g"], mode="linear"),
            node("ReduceMean", ["g", "zero"], ["h"]),
            node("TopK", ["h", "two"], ["i", "j"]),
            node("Where", ["k", "i", "i"], ["l"]),
            node("Clip", ["l", "s"], ["m"]),
            node("LeakyRelu", ["m"], ["n"]),
            node("Tile", ["n", "ones"], ["o"]),
            node("Max", ["o", "s"], ["y"]),
        ],
        (4, 8),
        {"s": ()},
        0,
    ),
}
VALUES = [
    ("zero", TensorProto.INT64, [1], [0]),
    ("two", TensorProto.INT64, [1], [2]),
    ("sides", TensorProto.INT64, [4], [0, 1, 0, 1]),
    ("ones", TensorProto.INT64, [3], [1, 2, 1]),
    ("factors", FLOAT, [3], [1.0, 1.0, 2.0]),
    ("k", TensorProto.BOOL, [1], [True]),
]


@pytest.mark.parametrize("case", OPERATORS)
def test_operators_are_what_torch_has(case, tmp_path):
    nodes, sizes, weights, flop = OPERATORS[case]
    path = networks.saved(
        tmp_path / "o.onnx", nodes, [("x", FLOAT, sizes)], weights, opset=23, values=VALUES
    )
    graph = graph_of(accelsim.workload(str(path)))
    assert graph.model_flop == flop
    assert graph.write_bytes.sum() > 0


def test_factors_of_old_versions_are_an_attribute(tmp_path):
    nodes = [node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0])]
    path = networks.saved(tmp_path / "u.onnx", nodes, [("x", FLOAT, [1, 4, 5, 5])], {}, opset=7)
    assert graph_of(accelsim.workload(str(path))).write_bytes.sum() == 4 * 4 * 10 * 15


def test_weights_are_not_read(tmp_path):
    path = networks.residual(tmp_path / "w.onnx")
    large = networks.saved(
        tmp_path / "large.onnx",
        [node("MatMul", ["x", "w"], ["y"])],
        [("x", FLOAT, [1, 2000])],
        {"w": (2000, 1000)},
    )
    assert read_onnx(large).constants["w"].values is None
    assert read_onnx(path).constants["b1"].values is not None
    outside = helper.make_tensor("w", FLOAT, [2, 2], bytes(16), raw=True)
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [1, 2])],
        [],
        [outside],
    )
    beside = tmp_path / "beside.onnx"
    beside.write_bytes(helper.make_model(graph).SerializeToString())
    assert graph_of(accelsim.workload(str(beside))).model_flop == 8


def test_the_precision_is_that_of_the_weights(tmp_path):
    half = helper.make_tensor("w", TensorProto.FLOAT16, [8, 4], bytes(64), raw=True)
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [2, 8])],
        [],
        [half],
    )
    path = tmp_path / "half.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    workload = accelsim.workload(str(path))
    assert workload.captured.precision.name == "fp16"
    assert graph_of(workload).weight_bytes.sum() == 64


REFUSED = {
    "unknown": ([node("NoSuch", ["x"], ["y"]), node("If", ["x"], ["z"])], "NoSuch (1)"),
    "foreign": ([node("Relu", ["x"], ["y"], domain="my.own")], "my.own.Relu"),
    "cycle": ([node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"])], "cycle"),
    "missing": ([node("Add", ["x", "gone"], ["y"])], "gone"),
    "shapes": ([node("Reshape", ["x", "huge"], ["y"])], "cannot be captured"),
    "few": ([node("Conv", ["x"], ["y"])], "Conv"),
    "data": ([node("NonZero", ["x"], ["y"])], "depends on data"),
    "packed": (
        [node("Attention", ["x", "x"], ["y"], domain="com.microsoft", num_heads=1)],
        "packed",
    ),
    "no key": (
        [node("MultiHeadAttention", ["x", "", "x"], ["y"], domain="com.microsoft", num_heads=1)],
        "packed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_captured_is_refused_by_name(case, tmp_path):
    nodes, words = REFUSED[case]
    values = [("huge", TensorProto.INT64, [2], [2**40, 2**40])]
    path = networks.saved(tmp_path / "r.onnx", nodes, [("x", FLOAT, [1, 4])], {}, values=values)
    with pytest.raises(CaptureError) as refusal:
        accelsim.workload(str(path))
    assert words in str(refusal.value)


def test_damaged_files_are_refused(tmp_path):
    whole = networks.residual(tmp_path / "whole.onnx").read_bytes()
    path = tmp_path / "damaged.onnx"
    cut = [whole[: len(whole) * part // 9] for part in range(9)]
    for content in (b"", b"\x00" * 100, b"{}", b"\x3a\xff\xff\xff\xff\x0f", *cut):
        path.write_bytes(content)
        with pytest.raises(AccelsimError):
            accelsim.workload(str(path))
    large = networks.saved(
        path, [node("Relu", ["x"], ["y"])], [("x", FLOAT, [1])], {}, values=()
    ).read_bytes()
    model = helper.make_model(helper.make_graph([], "g", [], []))
    model.ParseFromString(large)
    model.graph.initializer.add(name="w", data_type=FLOAT, dims=[2**40, 2**40])
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ProfileError, match="sizes"):
        accelsim.workload(str(path))


def test_shapes_are_for_onnx_networks(tmp_path):
    with pytest.raises(InvalidValueError, match="shapes"):
        accelsim.workload("resnet-50", {"x": (1, 2)})
    with pytest.raises(ProfileError):
        accelsim.workload(str(tmp_path / "absent.onnx"))


def test_the_folder_of_a_checkpoint_is_its_configuration(tmp_path):
    fields = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128}
    fields |= {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    folder = tmp_path / "my-checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(fields))
    assert accelsim.workload(str(folder)).name == "my-checkpoint"
