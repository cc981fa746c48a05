"""Graphs made from the columns of tables, their rooflines, and the order in which operators are
issued.
"""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.dtype import Dtype
from accelsim.scoreboard.columns import issued_time_s, roofline_s
from accelsim.scoreboard.gpu_models import issue_order
from accelsim.scoreboard.names import gpu_of
from accelsim.workloads.operator import OperatorKind
from tools.scoreboard.operator_columns import (
    Window,
    attention_graph,
    conv_graph,
    gemm_graph,
    recurrent_graph,
    vector_graph,
)


def column(*values: float):
    return np.array(values, dtype=float)


def test_gemm_columns_count_flop_and_bytes_once():
    graph = gemm_graph(
        column(2, 1),
        column(3, 3),
        column(5, 5),
        column(7, 7),
        Dtype.FP32,
        batched=np.array([True, False]),
    )
    assert graph.flop.tolist() == [2 * 2 * 3 * 5 * 7, 2 * 3 * 5 * 7]
    assert graph.bytes.tolist() == [4 * 2 * (21 + 35 + 15), 4 * (21 + 35 + 15)]
    assert graph.weight_bytes.tolist() == [0, 4 * 35]
    assert graph.kind.tolist() == [OperatorKind.BATCHED_GEMM, OperatorKind.GEMM]


def test_vector_columns_follow_the_operator():
    graph = vector_graph(
        np.array(["add", "relu", "softmax", "ln"]), column(4, 4, 4, 4), column(8, 8, 8, 8)
    )
    assert graph.bytes.tolist() == [4 * 32 * 3, 4 * 32 * 2, 4 * 32 * 2, 4 * 32 * 2]
    kinds = [
        OperatorKind.ELEMENTWISE,
        OperatorKind.ELEMENTWISE,
        OperatorKind.SOFTMAX,
        OperatorKind.LAYER_NORM,
    ]
    assert graph.kind.tolist() == kinds
    assert graph.dims[2, :2].tolist() == [4, 8]


def test_convolution_columns_agree_with_resnet_conv1():
    sizes = (column(1), (column(3), column(64)), (column(224), column(224)))
    window = Window((column(7), column(7)), (column(3), column(3)), column(2))
    graph = conv_graph(OperatorKind.CONV, *sizes, window, Dtype.FP32)
    assert graph.flop[0] == 2 * 112 * 112 * 64 * 3 * 49
    out = dict(zip(("out_h", "out_w"), graph.dims[0, [8, 9]].tolist(), strict=True))
    assert out == {"out_h": 112, "out_w": 112}
    for kind in (OperatorKind.CONV_BACKWARD_DATA, OperatorKind.CONV_BACKWARD_WEIGHT):
        gradient = conv_graph(kind, *sizes, window, Dtype.FP32)
        assert gradient.flop[0] == graph.flop[0]
        assert gradient.bytes[0] == graph.bytes[0]


def test_recurrent_columns_count_the_gates():
    lstm = recurrent_graph(OperatorKind.LSTM, column(2), column(3), column(16), Dtype.FP32)
    rnn = recurrent_graph(OperatorKind.RNN, column(2), column(3), column(16), Dtype.FP32)
    assert lstm.flop[0] == 4 * rnn.flop[0] == 4 * 2 * 2 * 3 * 2 * 16 * 16


def test_a_causal_roofline_counts_visible_pairs_only():
    device = gpu_of("h100_sxm")
    sizes = (column(1), (column(32), column(32)), (column(4096), column(4096)), column(128))
    causal = attention_graph(*sizes, column(0), Dtype.BF16, Dtype.BF16)
    whole = causal.flop[0] / device.peak_flop_per_s[Dtype.BF16]
    assert roofline_s(causal, device)[0] == pytest.approx(whole / 2, rel=1e-3)


def test_a_format_without_a_rate_has_no_roofline():
    graph = gemm_graph(
        column(1), column(8), column(8), column(8), Dtype.FP64, batched=np.array([False])
    )
    device = gpu_of("a10")
    expected = np.isnan(roofline_s(graph, device)[0])
    assert expected == (Dtype.FP64 not in device.peak_flop_per_s)


def test_issued_time_lies_between_its_bounds():
    time_s, dispatch_s = column(1, 2, 3), column(1, 1, 1)
    assert issued_time_s(time_s, dispatch_s) == 1 + 6
    assert issued_time_s(column(0, 0, 1), column(5, 5, 5)) == 16
    assert issued_time_s(column(), column()) == 0


def test_layers_run_as_a_whole_and_backward_in_reverse():
    repeat, backward = column(1, 3, 3, 1, 1, 3), np.array([False, False, False, False, True, True])
    assert issue_order(repeat, backward).tolist() == [0, 1, 2, 1, 2, 1, 2, 3, 5, 5, 5, 4]
