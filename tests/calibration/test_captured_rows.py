"""A measured case and the same operator in a captured module are the same row."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from accelsim.calibration.measurement.captured_rows import captured_row, case_graph  # noqa: E402
from accelsim.calibration.measurement.case import Case  # noqa: E402
from accelsim.calibration.run_file import (  # noqa: E402
    Measurement,
    RunFile,
    measured_graph,
    read_run,
)
from accelsim.cost.cpu.kernel_terms import Context, kernel_terms  # noqa: E402
from accelsim.cost.cpu.kernels import kernel_names  # noqa: E402
from accelsim.dtype import Dtype, precision  # noqa: E402
from accelsim.workloads.capture.torch.module import capture  # noqa: E402
from accelsim.workloads.capture.workload import captured_training  # noqa: E402
from accelsim.workloads.model import PassShape  # noqa: E402

pytestmark = pytest.mark.torch


class Attention(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Output(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def image(*shape):
    return (torch.randn(*shape),)


CONV = {
    "channels_in": 16,
    "channels_out": 32,
    "side": 14,
    "batch": 2,
    "kernel": 3,
    "groups": 1,
    "stride": 2,
}
HEADS = [torch.randn(2, 4, 64, 32) for _ in range(3)]
PAIRS = [
    ("addmm", {"m": 24, "n": 48, "k": 36}, nn.Linear(36, 48), (torch.randn(24, 36),)),
    (
        "bmm",
        {"m": 5, "n": 7, "k": 6, "batch": 3},
        Apply(torch.bmm),
        (torch.randn(3, 5, 6), torch.randn(3, 6, 7)),
    ),
    ("convolution", CONV, nn.Conv2d(16, 32, 3, 2, 1, bias=False), image(2, 16, 14, 14)),
    (
        "scaled_dot_product_attention",
        {"q_len": 64, "kv_len": 64, "heads": 4, "head_dim": 32, "batch": 2, "causal": 1},
        Attention(),
        tuple(HEADS),
    ),
    ("native_layer_norm", {"rows": 20, "columns": 64}, nn.LayerNorm(64), image(20, 64)),
    (
        "native_batch_norm",
        {"channels": 16, "pixels": 196, "batch": 2},
        nn.BatchNorm2d(16),
        image(2, 16, 14, 14),
    ),
    (
        "convolution_3d",
        {
            "channels_in": 16,
            "channels_out": 8,
            "side": 14,
            "depth": 5,
            "batch": 1,
            "kernel": 3,
            "taps": 1,
        }
        | {"groups": 1, "stride": 2},
        nn.Conv3d(16, 8, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
        image(1, 16, 5, 14, 14),
    ),
    (
        "native_group_norm",
        {"channels": 64, "pixels": 196, "batch": 2},
        nn.GroupNorm(32, 64),
        image(2, 64, 14, 14),
    ),
    ("_softmax", {"rows": 20, "columns": 64}, nn.Softmax(-1), image(20, 64)),
    ("relu", {"elements": 1000}, nn.ReLU(), image(1000)),
    ("gelu", {"elements": 1000}, nn.GELU(), image(1000)),
    ("add", {"elements": 1000}, Apply(torch.add), (torch.randn(1000), torch.randn(1000))),
    ("mean", {"rows": 20, "columns": 64}, Apply(lambda x: x.mean(-1)), image(20, 64)),
    (
        "max_pool2d_with_indices",
        {"channels": 8, "side": 14, "batch": 2, "kernel": 2},
        nn.MaxPool2d(2, 2),
        image(2, 8, 14, 14),
    ),
    (
        "embedding",
        {"table": 100, "width": 16, "lookups": 30},
        nn.Embedding(100, 16),
        (torch.randint(100, (30,)),),
    ),
    ("amax", {"rows": 64, "columns": 96}, Apply(lambda x: x.amax(-1)), (torch.randn(64, 96),)),
    (
        "add_strided",
        {"batch": 2, "rows": 24, "columns": 40},
        Apply(lambda x, y: x + y.transpose(1, 2)),
        (torch.randn(2, 40, 24), torch.randn(2, 24, 40)),
    ),
    (
        "clone_strided",
        {"batch": 2, "rows": 24, "columns": 40},
        Apply(lambda x: x.transpose(1, 2).contiguous()),
        (torch.randn(2, 24, 40),),
    ),
    (
        "convolution",
        {
            "channels_in": 3,
            "groups": 1,
            "channels_out": 32,
            "side": 32,
            "batch": 2,
            "kernel": 8,
            "stride": 8,
        },
        nn.Conv2d(3, 32, 8, 8, 4),
        image(2, 3, 32, 32),
    ),
    (
        "convolution_1d_depthwise",
        {"channels": 24, "length": 60, "batch": 2, "kernel": 15},
        nn.Conv1d(24, 24, 15, padding=7, groups=24, bias=False),
        image(2, 24, 60),
    ),
    ("gelu_tanh", {"elements": 1000}, nn.GELU(approximate="tanh"), image(1000)),
    (
        "where",
        {"elements": 900},
        Apply(lambda x, m: x.masked_fill(m, -1.0)),
        (torch.randn(900), torch.ones(900).bool()),
    ),
    ("var", {"rows": 64, "columns": 96}, Apply(lambda x: x.var(-1)), (torch.randn(64, 96),)),
    (
        "max_pool2d_with_indices",
        {"channels": 8, "side": 14, "batch": 2, "kernel": 5, "stride": 1},
        nn.MaxPool2d(5, 1, 2),
        image(2, 8, 14, 14),
    ),
    *(
        (
            "convolution_transpose",
            {"channels_in": 16, "channels_out": 32, "side": 6, "batch": 2, "taps": taps},
            nn.ConvTranspose2d(16, 32, taps, 2, (taps - 1) // 2, taps % 2, bias=False),
            image(2, 16, 6, 6),
        )
        for taps in (2, 3, 4)
    ),
    (
        "max_pool1d",
        {"channels": 8, "length": 60, "batch": 2, "kernel": 3},
        nn.MaxPool1d(3),
        image(2, 8, 60),
    ),
    ("reflection_pad1d", {"channels": 12, "length": 60}, nn.ReflectionPad1d(3), image(1, 12, 60)),
    (
        "reflection_pad2d",
        {"batch": 2, "channels": 12, "side": 9, "pad": 2},
        nn.ReflectionPad2d(2),
        image(2, 12, 9, 9),
    ),
    (
        "upsample_bicubic2d",
        {"batch": 1, "channels": 12, "side": 9, "factor": 2},
        nn.Upsample(scale_factor=2, mode="bicubic"),
        image(1, 12, 9, 9),
    ),
    *(
        (
            f"{name}_across",
            {"outer": 3, "columns": 5, "inner": 40},
            Apply(function),
            image(3, 5, 40),
        )
        for name, function in (
            ("_softmax", lambda x: x.softmax(1)),
            ("_log_softmax", lambda x: x.log_softmax(1)),
            ("cumsum", lambda x: x.cumsum(1)),
            ("fft", lambda x: torch.fft.rfft(x, dim=1)),
        )
    ),
    *(
        (name, {"rows": 30, "columns": 48}, Apply(function), image(30, 48))
        for name, function in (
            ("cumsum", lambda x: x.cumsum(-1)),
            ("sort", lambda x: x.sort(-1)[0]),
            ("fft", torch.fft.rfft),
        )
    ),
    *(
        (name, {"elements": 900}, Apply(function), image(900))
        for name, function in (("randn", torch.randn_like), ("gt", lambda x: x > 0))
    ),
    (
        "norm_outer",
        {"outer": 3, "columns": 5, "inner": 40},
        Apply(lambda x: torch.linalg.vector_norm(x, dim=1)),
        image(3, 5, 40),
    ),
    (
        "stack",
        {"rows": 30, "parts": 2, "columns": 1},
        Apply(lambda x: torch.stack([x, x], -1)),
        image(30),
    ),
    (
        "max_pool2d_with_indices",
        {"channels": 8, "side": 34, "batch": 2, "kernel": 5, "stride": 5},
        nn.MaxPool2d(5, 5, 2),
        image(2, 8, 34, 34),
    ),
    (
        "pixel_shuffle",
        {"channels": 4, "side": 12, "batch": 2, "factor": 3},
        nn.PixelShuffle(3),
        image(2, 36, 12, 12),
    ),
    (
        "constant_pad_nd",
        {"channels": 4, "side": 12, "batch": 2, "pad": 2},
        nn.ConstantPad2d(2, 0.0),
        image(2, 4, 12, 12),
    ),
    (
        "upsample_bilinear2d",
        {"channels": 8, "side": 14, "batch": 2, "factor": 4},
        nn.Upsample(scale_factor=4, mode="bilinear"),
        image(2, 8, 14, 14),
    ),
    (
        "mul_rows",
        {"rows": 70, "columns": 24},
        Apply(lambda x, w: x * w),
        (torch.randn(70, 24), torch.randn(70, 1)),
    ),
    (
        "cat",
        {"rows": 30, "columns": 24, "middle": 2},
        Apply(lambda x, y: torch.cat([x, y], -1)),
        (torch.randn(30, 24), torch.randn(30, 24)),
    ),
    (
        "stack",
        {"rows": 30, "columns": 8, "parts": 3},
        Apply(lambda *x: torch.stack(x, 1)),
        tuple(image(30, 8)[0] for _ in range(3)),
    ),
    (
        "clone",
        {"rows": 30, "middle": 4, "columns": 24},
        Apply(lambda x: x.transpose(0, 1).contiguous()),
        image(30, 4, 24),
    ),
    ("max_place", {"rows": 64, "columns": 96}, Apply(lambda x: x.max(-1)), image(64, 96)),
    ("arg_place", {"rows": 64, "columns": 96}, Apply(lambda x: x.argmax(-1)), image(64, 96)),
    (
        "max_pool2d_last",
        {"channels": 8, "side": 14, "batch": 2, "kernel": 3},
        nn.MaxPool2d(3, 2, 1),
        (image(2, 8, 14, 14)[0].contiguous(memory_format=torch.channels_last),),
    ),
    (
        "avg_pool2d_last",
        {"channels": 8, "side": 14, "batch": 2, "kernel": 2},
        nn.AvgPool2d(2, 2),
        (image(2, 8, 14, 14)[0].contiguous(memory_format=torch.channels_last),),
    ),
    (
        "im2col",
        {"channels": 8, "side": 14, "batch": 2, "kernel": 3, "stride": 2},
        nn.Unfold(3, 1, 1, 2),
        image(2, 8, 14, 14),
    ),
    (
        "topk",
        {"rows": 64, "columns": 96, "k": 5},
        Apply(lambda x: torch.topk(x, 5, -1)),
        image(64, 96),
    ),
    (
        "index_add",
        {"table": 50, "width": 24, "lookups": 90},
        Apply(lambda x, i, v: x.index_add(0, i, v)),
        (torch.randn(50, 24), torch.randint(50, (90,)), torch.randn(90, 24)),
    ),
    (
        "index_add",
        {"table": 50, "width": 24, "lookups": 90},
        Apply(lambda x, i, v: x.scatter_add(0, i.view(-1, 1).expand_as(v), v)),
        (torch.randn(50, 24), torch.randint(50, (90,)), torch.randn(90, 24)),
    ),
    (
        "index_put",
        {"table": 50, "width": 24, "lookups": 90},
        Apply(lambda x, i, v: x.index_put((i,), v, accumulate=True)),
        (torch.randn(50, 24), torch.randint(50, (90,)), torch.randn(90, 24)),
    ),
    (
        "scatter",
        {"table": 50, "width": 24, "lookups": 90},
        Apply(lambda x, i, v: x.scatter_add(0, i, v)),
        (torch.randn(50, 24), torch.randint(50, (90, 24)), torch.randn(90, 24)),
    ),
    *(
        (f"{name}_outer", {"outer": 3, "columns": 5, "inner": 40}, Apply(reduced), image(3, 5, 40))
        for name, reduced in (
            ("sum", lambda x: x.sum(1)),
            ("mean", lambda x: x.mean(1)),
            ("amax", lambda x: x.amax(1)),
        )
    ),
    (
        "lstm",
        {"hidden": 32, "steps": 6, "batch": 4, "input": 16},
        Output(nn.LSTM(16, 32, batch_first=True)),
        image(4, 6, 16),
    ),
]


@pytest.mark.parametrize(
    ("operator", "shape", "module", "inputs"), PAIRS, ids=[p[0] for p in PAIRS]
)
def test_same_kernel_dimensions_and_terms(operator, shape, module, inputs):
    own = case_graph([Case("x", operator, shape)])
    workload = capture(module.eval(), inputs, batch_dimension=None)
    graph = workload.lower(PassShape(batch=workload.default.batch), precision("fp32")).graph
    row = int(np.flatnonzero(graph.kind == own.kind[0])[0])
    assert kernel_names(graph, is_training=False)[row] == kernel_names(own, is_training=False)[0]
    context = Context(
        48.0 * 2**10, 2.0**20, 2.0**25, 0.0, is_training=False, page_fault_bytes=2.0**25
    )
    captured, measured = kernel_terms(graph, context)[row], kernel_terms(own, context)[0]
    assert captured == pytest.approx(
        measured, rel=0.08, abs=1100
    )  # statistics, ids and initial states are small extras


def test_backward_products_of_a_linear_layer():
    own = case_graph(
        [
            Case("x", "mm_nn", {"m": 24, "n": 36, "k": 48}),
            Case("x", "mm_tn", {"m": 48, "n": 36, "k": 24}),
        ]
    )
    module = nn.Sequential(nn.Linear(36, 36), nn.Linear(36, 48))
    workload = capture(module, (torch.randn(24, 36),), True, "adamw", batch_dimension=None)
    graph = captured_training(workload, PassShape(batch=workload.default.batch), precision("fp32"))
    names = kernel_names(graph, is_training=True).tolist()
    expected = kernel_names(own, is_training=True).tolist()
    assert expected == ["mm_nn", "mm_tn"]
    for name, dims in zip(expected, own.dims, strict=True):
        rows = [i for i, n in enumerate(names) if n == name]
        assert any((graph.dims[i] == dims).all() for i in rows)
    update = Case("x", "adamw", {"parameters": 36 * 37 + 48 * 37, "tensors": 4})
    own, row = case_graph([update]), names.index("adamw")
    assert (own.dims[0] == graph.dims[row]).all()
    assert (own.flop[0], own.bytes[0]) == (
        graph.flop[row],
        pytest.approx(graph.bytes[row], rel=0.01),
    )


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_the_gradient_of_a_resampled_image(mode):
    operator = f"upsample_{mode}2d_backward"
    own = case_graph([Case("x", operator, {"batch": 2, "channels": 8, "side": 14, "factor": 3})])
    module = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Upsample(scale_factor=3, mode=mode))
    workload = capture(module, (torch.randn(2, 3, 14, 14),), True, "adamw", batch_dimension=None)
    graph = captured_training(workload, PassShape(batch=workload.default.batch), precision("fp32"))
    row = kernel_names(graph, is_training=True).tolist().index(operator)
    assert (own.dims[0] == graph.dims[row]).all()
    assert own.bytes[0] == pytest.approx(graph.bytes[row])


@pytest.mark.parametrize("tied", [False, True])
def test_rows_of_a_table_that_no_index_names_are_idle_in_the_update(tied):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(1000, 16), nn.Linear(16, 1000)
            if tied:
                self.head.weight = self.table.weight

        def forward(self, words):
            return self.head(self.table(words))

    workload = capture(
        Reader(), (torch.randint(1000, (4, 25)),), True, "adamw", batch_dimension=None
    )
    graph = captured_training(workload, PassShape(batch=workload.default.batch), precision("fp32"))
    idle = int(graph.dims[-1, 3])
    assert idle == (0 if tied else int(1000 * np.exp(-0.1) * 16))


def test_an_update_of_idle_parameters_is_the_same_kernel():
    shape = {"parameters": 640, "tensors": 4}
    busy, idle = (case_graph([Case("x", name, shape)]) for name in ("adamw", "adamw_idle"))
    names = {kernel_names(graph, is_training=True)[0] for graph in (busy, idle)}
    assert names == {"adamw"}
    assert idle.dims[0].tolist()[:4] == [*busy.dims[0].tolist()[:3], 640]
    assert idle.bytes[0] == busy.bytes[0]


def test_weights_are_told_from_activations():
    row = captured_row(Case("x", "addmm", {"m": 24, "n": 48, "k": 36}, "bf16"))
    assert row.weight_bytes == 2 * (48 * 36 + 48)
    assert row.read_bytes == 2 * 24 * 36
    assert row.write_bytes == 2 * 24 * 48


def test_what_a_compiler_joins_moves_what_enters_and_leaves():
    row = captured_row(Case("x", "compiled_layer_norm", {"rows": 40, "columns": 128}))
    alone = captured_row(Case("x", "native_layer_norm", {"rows": 40, "columns": 128}))
    assert (row.kind, row.dims, row.name) == (alone.kind, alone.dims, "compiled_layer_norm")
    assert row.read_bytes == 2 * alone.read_bytes  # the sum of two operands
    assert row.write_bytes == alone.write_bytes
    assert row.flop == alone.flop + 40 * 128


@pytest.mark.parametrize(
    "operator", ["mm_nn", "mm_tn", "relu", "gelu_backward", "lstm", "lstm_backward"]
)
def test_gradients_belong_to_the_backward_pass(operator):
    sizes = ("m", "n", "k", "elements", "batch", "steps", "input", "hidden")
    row = captured_row(Case("x", operator, dict.fromkeys(sizes, 16)))
    assert row.phase == ("forward" if operator in {"relu", "lstm"} else "backward")


def test_a_frameworks_own_work_has_no_row():
    assert captured_row(Case("framework", "compiled_call", {"count": 1})) is None


def test_a_measurement_keeps_its_row(tmp_path):
    case = Case("x", "lstm", {"batch": 2, "steps": 3, "input": 8, "hidden": 16}, "bf16")
    written = Measurement(case, 1e-3, 0.0, 0, {}, row=captured_row(case))
    with RunFile(tmp_path / "run.jsonl", {}, {"device": "cpu"}) as file:
        file.append(written)
    (read,) = read_run(tmp_path / "run.jsonl").rows
    assert read == written
    graph = measured_graph([read])
    assert graph.flop[0] == 2 * 2 * 3 * 4 * 16 * (8 + 16)
    assert graph.dtype[0] == Dtype.BF16


def test_the_gradient_of_a_pooling_reads_places_and_not_its_input():
    own = case_graph(
        [
            Case(
                "x",
                "max_pool2d_with_indices_backward",
                {"batch": 4, "channels": 8, "side": 32, "kernel": 2},
            )
        ]
    )
    module = nn.Sequential(nn.Conv2d(3, 8, 1), nn.MaxPool2d(2))
    workload = capture(module, (torch.randn(4, 3, 32, 32),), True, "adamw", batch_dimension=None)
    graph = captured_training(workload, PassShape(batch=workload.default.batch), precision("fp32"))
    row = kernel_names(graph, is_training=True).tolist().index("max_pool2d_with_indices_backward")
    assert (own.read_bytes[0], own.write_bytes[0]) == (
        graph.read_bytes[row],
        graph.write_bytes[row],
    )


def test_gradients_of_a_transposed_convolution_are_a_convolutions():
    module = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ConvTranspose2d(8, 4, 2, 2))
    workload = capture(module, (torch.randn(2, 3, 16, 16),), True, "adamw", batch_dimension=None)
    graph = captured_training(workload, PassShape(batch=workload.default.batch), precision("fp32"))
    data, weight = (
        next(i for i, name in enumerate(graph.name) if name.endswith(part))
        for part in ("grad_input", "grad_weight")
    )
    assert (graph.dims[data] == graph.dims[weight]).all()
    assert graph.dims[weight, [1, 2, 5, 8]].tolist() == [
        4,
        8,
        32,
        16,
    ]  # from 4 channels at 32 to 8 at 16
