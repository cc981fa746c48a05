"""Operator rows and scaled boards for the tests of the GPU model."""

from collections.abc import Sequence

import numpy as np

from accelsim import catalog
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.hardware.profile import GpuProfile
from accelsim.hardware.sourced import Sourced
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, MAX_DIMENSIONS, OperatorKind, Phase

K = OperatorKind
Row = tuple[OperatorKind, Sequence[int], float, float]  # kind, dims, flop, bytes


def gpu(name: str) -> GpuProfile:
    profile = catalog.device(name)
    assert isinstance(profile, GpuProfile)
    return profile


def graph(
    rows: Sequence[Row], dtype: Dtype = Dtype.FP32, phase: Phase = Phase.FORWARD
) -> OperatorGraph:
    """Rows with their bytes read and nothing written."""
    count = len(rows)
    dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    for index, (kind, values, _, _) in enumerate(rows):
        assert len(values) == len(DIMENSIONS[kind]) or kind in {
            OperatorKind.COPY,
            OperatorKind.ELEMENTWISE,
            OperatorKind.OPTIMIZER,
            OperatorKind.REDUCTION,
        }
        dims[index, : len(values)] = values
    zeros = np.zeros(count)
    return OperatorGraph(
        kind=np.array([kind for kind, *_ in rows], dtype=np.int16),
        dims=dims,
        dtype=np.full(count, int(dtype), dtype=np.int8),
        phase=np.full(count, int(phase), dtype=np.int8),
        flop=np.array([flop for *_, flop, _ in rows], dtype=np.float64),
        read_bytes=np.array([moved for *_, moved in rows], dtype=np.float64),
        write_bytes=zeros,
        weight_bytes=zeros,
        saved_bytes=zeros,
        name=tuple(f"{kind.label}{index}" for index, (kind, *_) in enumerate(rows)),
        path=("",) * count,
        dependency_offset=np.zeros(count + 1, dtype=np.int64),
        dependency=np.zeros(0, dtype=np.int64),
    )


def gemm(
    m: int, n: int, k: int, batch: int = 1, dtype: Dtype = Dtype.FP32, kind: OperatorKind = K.GEMM
) -> Row:
    moved = float(DTYPE_BYTES[dtype]) * batch * (m * k + k * n + m * n)
    return kind, (batch, m, n, k), 2.0 * batch * m * n * k, moved


def conv(
    batch: int,
    c: int,
    k: int,
    side: int,
    window: int = 3,
    *,
    groups: int = 1,
    stride: int = 1,
    dtype: Dtype = Dtype.FP32,
    kind: OperatorKind = K.CONV,
) -> Row:
    out = -(-side // stride)
    dims = (batch, c, k, groups, 1, side, side, 1, out, out, 1, window, window, stride, 1)
    positions = side * side if kind is K.CONV_TRANSPOSE else out * out
    flop = 2.0 * batch * positions * k * (c // groups) * window * window
    moved = batch * (c * side * side + k * out * out) + k * (c // groups) * window * window
    return kind, dims, flop, moved * float(DTYPE_BYTES[dtype])


def attention(
    batch: int,
    heads: int,
    q_len: int,
    kv_len: int,
    *,
    kv_heads: int | None = None,
    head_dim: int = 128,
    causal: bool = False,
    window: int = 0,
    dtype: Dtype = Dtype.FP16,
    kind: OperatorKind = K.ATTENTION,
) -> Row:
    shared = kv_heads or heads
    dims = (batch, heads, shared, q_len, kv_len, head_dim, head_dim, int(causal), window, 0)
    moved = float(DTYPE_BYTES[dtype]) * batch * head_dim * (2 * heads * q_len + 2 * shared * kv_len)
    return kind, dims, 4.0 * batch * heads * q_len * kv_len * head_dim, moved


def every_kind(batch: int = 4, dtype: Dtype = Dtype.FP32) -> list[Row]:
    """One row of every kind a GPU runs, with sizes in proportion to `batch`."""
    width = float(DTYPE_BYTES[dtype])
    elements = batch * 65536
    streaming: list[Row] = [
        (kind, (batch * 64, 1024), 8.0 * elements, 2 * width * elements)
        for kind in (K.LAYER_NORM, K.RMS_NORM, K.BATCH_NORM, K.GROUP_NORM, K.SOFTMAX, K.REDUCTION)
    ]
    recurrent: list[Row] = [
        (
            kind,
            (batch, 20, 256, 512, 1),
            2.0 * batch * 20 * gates * 512 * 768,
            width * (gates * 512 * 768 + batch * 15360),
        )
        for kind, gates in ((K.RNN, 1), (K.LSTM, 4), (K.GRU, 3))
    ]
    return [
        gemm(batch * 128, 1024, 512, dtype=dtype),
        gemm(128, 256, 64, batch=batch * 8, dtype=dtype, kind=K.BATCHED_GEMM),
        (
            K.GROUPED_GEMM,
            (8, batch * 64, 512, 256),
            2.0 * batch * 64 * 512 * 256,
            width * (8 * 512 * 256 + batch * 49152),
        ),
        attention(batch, 8, 256, 256, dtype=dtype),
        attention(batch, 8, 256, 256, dtype=dtype, kind=K.ATTENTION_BACKWARD),
        *(
            conv(batch, 64, 128, 28, dtype=dtype, kind=kind)
            for kind in (K.CONV, K.CONV_BACKWARD_DATA)
        ),
        *(
            conv(batch, 64, 128, 28, dtype=dtype, kind=kind)
            for kind in (K.CONV_TRANSPOSE, K.CONV_BACKWARD_WEIGHT)
        ),
        *streaming,
        *recurrent,
        (K.ELEMENTWISE, (elements, 2, 1), float(elements), 3 * width * elements),
        (K.POOLING, (batch, 64, 1024, 256, 4), batch * 65536.0, width * batch * 81920),
        (K.COPY, (elements,), 0.0, 2 * width * elements),
        (K.EMBEDDING, (batch * 128, 256, 30000), 0.0, 2 * width * batch * 32768),
        (K.EMBEDDING_BAG, (batch * 128, 64, 100000, batch), batch * 8192.0, width * batch * 8256),
        (K.SCATTER, (batch * 128, 256, 30000), batch * 32768.0, 2 * width * batch * 32768),
        (K.MOE_ROUTING, (batch * 64, 8, 2), batch * 4096.0, width * batch * 640),
        (K.OPTIMIZER, (batch * 100000, 2, 60), batch * 1e6, 20.0 * batch * 100000),
        (K.TREE_ENSEMBLE, (batch * 1000, 30, 100, 6), batch * 7e5, batch * 1.2e5),
        (K.TREE_HISTOGRAM, (batch * 1000, 30, 10, 6, 256), batch * 2e6, batch * 1.2e5),
        (K.HOST_TO_DEVICE, (batch * 150528, 1), 0.0, batch * 150528.0),
        (K.DEVICE_TO_HOST, (batch * 4000, 1), 0.0, batch * 4000.0),
    ]


def times(value: Sourced[float], factor: float) -> Sourced[float]:
    return value.model_copy(update={"value": value.value * factor})


def with_bandwidth(board: GpuProfile, factor: float) -> GpuProfile:
    assert board.memory.bandwidth_bytes_per_s is not None
    faster = times(board.memory.bandwidth_bytes_per_s, factor)
    return board.model_copy(
        update={"memory": board.memory.model_copy(update={"bandwidth_bytes_per_s": faster})}
    )


def with_rates(board: GpuProfile, factor: float) -> dict[str, object]:
    return {
        "vector_flop_per_s": {d: times(r, factor) for d, r in board.vector_flop_per_s.items()},
        "matrix_flop_per_s": {d: times(r, factor) for d, r in board.matrix_flop_per_s.items()},
        "matrix_fp32_accumulate_flop_per_s": {
            d: times(r, factor) for d, r in board.matrix_fp32_accumulate_flop_per_s.items()
        },
    }


def with_clock(board: GpuProfile, factor: float) -> GpuProfile:
    update = {"boost_clock_hz": times(board.boost_clock_hz, factor), **with_rates(board, factor)}
    return board.model_copy(update=update)


def with_sms(board: GpuProfile, factor: int) -> GpuProfile:
    count = board.sm_count.model_copy(update={"value": board.sm_count.value * factor})
    return board.model_copy(update={"sm_count": count, **with_rates(board, float(factor))})
