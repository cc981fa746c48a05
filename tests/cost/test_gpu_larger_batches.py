"""A kernel's time never falls as its batch grows, on any GPU, whatever tables of kernels say."""

from dataclasses import replace

import numpy as np
import pytest

from accelsim import catalog
from accelsim.cost.registry import operator_costs, tier_parameters
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from tests.cost.gpu_rows import K, gemm, graph

SIZES = [*range(1, 17), 18, 20, 22, 24, 28, 32, 33, 34, 35, 36, 40, 44, 48, 56, 64, 68, 69, 70, 71]
SIZES += [80, 96, 112, 128, 143, 144, 202, 203, 204, 205, 206, 207, 208, 256, 257, 258, 259, 260]
GPUS = [
    device
    for device in map(catalog.device, catalog.device_names())
    if device.device_class == "gpu" and "/" not in device.name
]


def products(n, k, groups=1, kind=K.GEMM):
    """One product, or one per group, of as many rows; weights are read once."""
    sizes = [(groups, m, n, k) for m in SIZES]
    weights = np.full(len(sizes), 2.0 * groups * n * k)
    rows = [(kind, (g, m, n, k), 2.0 * m * n * k, 2.0 * m * (n + k)) for g, m, n, k in sizes]
    return replace(graph(rows, Dtype.BF16), weight_bytes=weights)


def attentions(q_len, keys, biased=False):
    """Of 12 heads 64 wide, with a bias on the scores that all sequences share."""
    rows = []
    for batch in SIZES:
        cache = 2.0 * batch * 12 * (q_len + 2 * keys + q_len) * 64
        bias = 2.0 * 12 * q_len * keys * biased
        dims = (batch, 12, 12, q_len, keys, 64, 64, 0, 0, 0)
        rows.append((K.ATTENTION, dims, 4.0 * batch * 12 * q_len * keys * 64, cache + bias))
    return graph(rows, Dtype.BF16)


@pytest.mark.parametrize(
    "rows",
    [
        products(768, 768),
        products(32000, 4096),
        products(2880, 2880, groups=64, kind=K.GROUPED_GEMM),
        attentions(1, 576),
        attentions(512, 512, biased=True),
        graph(
            [gemm(197, 197, 64, batch, Dtype.BF16, K.BATCHED_GEMM) for batch in SIZES], Dtype.BF16
        ),
    ],
    ids=["narrow", "wide", "experts", "decode", "biased", "batched"],
)
def test_kernels_never_take_less_time_for_more(rows):
    fell = {}
    for device in GPUS:
        has_bf16 = Dtype.BF16 in {**device.matrix_flop_per_s, **device.vector_flop_per_s}
        dtype = np.full(len(rows), int(Dtype.BF16 if has_bf16 else Dtype.FP16), dtype=np.int8)
        found = replace(rows, dtype=dtype)
        time_s = operator_costs(found, device, Execution.GRAPH, tier_parameters(device)).time_s
        if (np.diff(time_s) < -1e-9 * time_s[1:]).any():
            fell[device.name] = float((time_s[1:] / time_s[:-1]).min())
    assert not fell
    assert len(GPUS) > 60
