"""The GPU model at tier `spec` against single operators that were measured, and against closed
forms.
"""

import numpy as np
import pytest
from gpu_rows import K, attention, conv, gemm, gpu, graph
from hypothesis import given
from hypothesis import strategies as st

from accelsim.cost.gpu import GpuMachine, GpuParameters, cost_gpu
from accelsim.cost.gpu.machine import join_times
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from accelsim.scoreboard.tiers import choose
from tools.scoreboard.gpu_operators import KernelPrediction

#: DeepBench (Baidu, results/train, 2016-2018): (board, dtype, m, n, k, ms): every 40th of each
#: board's GEMMs by time.
GEMMS = [
    ("v100-sxm2-16gb", Dtype.FP16, 4608, 16, 1536, 0.037),
    ("v100-sxm2-16gb", Dtype.FP16, 1760, 7133, 1760, 0.452),
    ("v100-sxm2-16gb", Dtype.FP16, 3072, 24000, 1024, 1.61),
    ("v100-sxm2-16gb", Dtype.FP32, 6144, 16, 2048, 0.088),
    ("v100-sxm2-16gb", Dtype.FP32, 512, 8, 500000, 1.827),
    ("v100-sxm2-16gb", Dtype.FP32, 1024, 24000, 2816, 10.821),
    ("t4", Dtype.FP16, 2560, 128, 2560, 0.067),
    ("t4", Dtype.FP16, 1760, 7133, 1760, 1.06),
    ("t4", Dtype.FP16, 3072, 24000, 1024, 4.13),
    ("p100-pcie-16gb", Dtype.FP32, 2048, 128, 2048, 0.149),
    ("p100-pcie-16gb", Dtype.FP32, 1760, 7133, 1760, 5.014),
    ("p100-pcie-16gb", Dtype.FP32, 1024, 48000, 1530, 16.785),
    ("gtx-1080-ti", Dtype.FP32, 2560, 16, 2560, 0.162),
    ("gtx-1080-ti", Dtype.FP32, 1760, 7000, 1760, 3.983),
    ("gtx-1080-ti", Dtype.FP32, 3072, 24000, 1024, 13.539),
]
#: DeepBench again, forward: (board, dtype, batch, channels in, channels out, image side, window,
#: ms): every 30th, square.
CONVOLUTIONS = [
    ("v100-sxm2-16gb", Dtype.FP16, 16, 512, 512, 7, 1, 0.022),
    ("v100-sxm2-16gb", Dtype.FP16, 16, 64, 256, 56, 1, 0.048),
    ("v100-sxm2-16gb", Dtype.FP32, 8, 128, 512, 28, 1, 0.075),
    ("v100-sxm2-16gb", Dtype.FP32, 16, 128, 128, 28, 3, 0.158),
    ("v100-sxm2-16gb", Dtype.FP32, 8, 128, 256, 56, 3, 0.668),
    ("t4", Dtype.FP16, 8, 64, 64, 112, 1, 0.111),
    ("p100-pcie-16gb", Dtype.FP32, 16, 128, 128, 28, 3, 0.283),
    ("p100-pcie-16gb", Dtype.FP32, 8, 128, 256, 56, 3, 1.18),
    ("gtx-1080-ti", Dtype.FP32, 8, 256, 1024, 14, 1, 0.099),
    ("gtx-1080-ti", Dtype.FP32, 16, 2048, 512, 7, 1, 0.213),
    ("gtx-1080-ti", Dtype.FP32, 8, 64, 128, 112, 3, 0.884),
]
#: Best measured matmul rates, TFLOP/s (S. Bekman, ML Engineering, compute/accelerator/README.md,
#: "maximum achievable matmul FLOPS"); the NVIDIA rows took no part in any fit.
BEST_RATES = [
    ("a100-sxm-40gb", Dtype.BF16, 1024, 10240, 5120, 271.2),
    ("a100-pcie-80gb", Dtype.BF16, 2048, 5120, 6144, 252.9),
    ("gh200-96gb", Dtype.BF16, 1024, 15360, 4096, 828.6),
    ("gh200-96gb", Dtype.FP8, 1024, 14336, 14336, 1535.0),
    ("h200-sxm-141gb", Dtype.FP8, 1280, 4096, 12032, 1453.4),
    ("b300-sxm", Dtype.BF16, 12288, 18432, 1024, 1769.0),
    ("mi300x", Dtype.BF16, 10240, 15360, 8192, 668.4),
    ("mi325x", Dtype.BF16, 13312, 10240, 8192, 784.9),
    ("mi355x", Dtype.BF16, 12288, 8192, 8192, 1565.0),
]


def log_errors(
    cases: list[tuple[str, Dtype, tuple[object, ...], float]],
) -> np.ndarray:
    """As DeepBench ran them."""
    found = [
        KernelPrediction(graph([row], dtype), gpu(name), Execution.GRAPH)
        .costs(GpuParameters.class_wide())
        .time_s[0]
        for name, dtype, row, _ in cases
    ]
    return np.log(np.array(found) / np.array([seconds for *_, seconds in cases]))


def test_measured_gemms() -> None:
    cases = [
        (name, dtype, gemm(m, n, k, dtype=dtype), ms * 1e-3) for name, dtype, m, n, k, ms in GEMMS
    ]
    errors = log_errors(cases)
    assert np.median(np.abs(errors)) < 0.2
    assert np.abs(errors).max() < 0.6


def test_measured_convolutions() -> None:
    cases = [
        (name, dtype, conv(batch, c, k, side, window, dtype=dtype), ms * 1e-3)
        for name, dtype, batch, c, k, side, window, ms in CONVOLUTIONS
    ]
    errors = log_errors(cases)
    assert np.median(np.abs(errors)) < 0.2
    assert np.abs(errors).max() < 0.6


@pytest.mark.parametrize(("name", "dtype", "m", "n", "k", "tflop_per_s"), BEST_RATES)
def test_best_measured_matmul_rates(
    name: str, dtype: Dtype, m: int, n: int, k: int, tflop_per_s: float
) -> None:
    board = gpu(name)
    costs = cost_gpu(
        graph([gemm(m, n, k, dtype=dtype)], dtype),
        board,
        parameters=choose(board, "best").parameters,
    )
    assert 2.0 * m * n * k / costs.time_s[0] == pytest.approx(tflop_per_s * 1e12, rel=0.25)


@pytest.mark.parametrize(
    ("name", "bytes_per_s", "tolerance"),
    [
        ("v100-pcie-32gb", 822e9, 0.15),
        ("a100-pcie-40gb", 1395e9, 0.15),
        ("p100-pcie-16gb", 542e9, 0.3),  # 0.74 of its data sheet, the least of all HBM boards
        ("t4", 235e9, 0.15),
    ],
)
def test_measured_streaming_bandwidth(name: str, bytes_per_s: float, tolerance: float) -> None:
    """Slope of time over bytes of ReLU above 60 MB (NeuSight, ASPLOS 2025)."""
    rows = [(K.ELEMENTWISE, (n, 1, 1), float(n), 8.0 * n) for n in (10**8, 2 * 10**8)]
    first, second = cost_gpu(graph(rows), gpu(name)).time_s
    assert 8e8 / (second - first) == pytest.approx(bytes_per_s, rel=tolerance)


def test_resnet_training_power_of_a_p100() -> None:
    """Zeus traces (NSDI 2023): 160 W average at batch 32 to 128; the energy per byte was set on the
    V100 of that set.
    """
    from accelsim.catalog.workloads import workload
    from accelsim.dtype import precision
    from accelsim.workloads.model import PassShape
    from accelsim.workloads.training import OPTIMIZERS, training_graph

    lowered = workload("resnet-50").lower(PassShape(batch=64), precision("fp32"))
    step = training_graph(
        lowered.graph,
        lowered.parameter_count,
        lowered.parameter_tensor_count,
        precision("fp32"),
        OPTIMIZERS["sgd"],
    )
    costs = cost_gpu(step, gpu("p100-pcie-16gb"))
    machine = GpuMachine.of(gpu("p100-pcie-16gb"), GpuParameters.class_wide())
    assert machine.static_w + costs.total_energy_j / costs.total_time_s == pytest.approx(
        160.0, rel=0.15
    )


def test_wave_quantisation() -> None:
    """One tile more than the SMs take in one wave costs a second wave (NVIDIA, Matrix
    Multiplication Background).
    """
    board = gpu("a100-pcie-40gb")
    sms = board.sm_count.value
    tile = 128
    shapes = [
        gemm(tile * (sms + extra), tile, 65536, dtype=Dtype.FP16, kind=K.BATCHED_GEMM)
        for extra in (0, 12)
    ]
    full, spilled = cost_gpu(graph(shapes, Dtype.FP16), board).compute_s
    assert spilled > 1.3 * full


def test_skinny_gemm_reads_its_weights_at_memory_speed() -> None:
    costs = cost_gpu(
        graph([gemm(1, 8192, 8192, dtype=Dtype.FP16)], Dtype.FP16), gpu("h100-sxm-80gb")
    )
    assert costs.memory_s[0] > costs.compute_s[0]
    assert costs.time_s[0] == pytest.approx(8192 * 8192 * 2 / 3.35e12, rel=0.6)


def test_winograd_counts_its_own_multiplies() -> None:
    """A 3x3 stride-1 layer executes at most 1/2.25 of the direct multiplies, plus transforms; a
    strided one all.
    """
    plain, strided = conv(32, 256, 256, 56), conv(32, 256, 256, 56, stride=2)
    costs = cost_gpu(graph([plain, strided]), gpu("v100-pcie-32gb"))
    assert costs.flop[0] < plain[2]
    assert costs.flop[1] == pytest.approx(strided[2])


def test_depthwise_convolution_is_bound_by_memory_not_by_empty_tiles() -> None:
    dtype = Dtype.FP16
    depthwise = conv(64, 256, 256, 56, groups=256, dtype=dtype)
    costs = cost_gpu(graph([depthwise], dtype), gpu("v100-pcie-32gb"))
    assert costs.time_s[0] < 6 * depthwise[3] / 900e9


def test_causal_attention_takes_half_of_full_attention() -> None:
    rows = [attention(4, 32, 8192, 8192, causal=causal) for causal in (False, True)]
    full, causal = cost_gpu(graph(rows, Dtype.FP16), gpu("a100-pcie-40gb")).compute_s
    assert causal / full == pytest.approx(0.5, abs=0.03)


def test_decoding_reads_the_cache_at_memory_speed_and_groups_share_it() -> None:
    rows = [attention(64, 32, 1, 8192, kv_heads=heads) for heads in (32, 8)]
    every_head, grouped = cost_gpu(graph(rows, Dtype.FP16), gpu("a100-sxm-80gb")).time_s
    assert 3 < every_head / grouped < 4.2
    assert grouped == pytest.approx(rows[1][3] / 2.039e12, rel=0.4)


def test_attention_backward_does_five_products_for_two() -> None:
    pair = [attention(2, 16, 1024, 1024), attention(2, 16, 1024, 1024, kind=K.ATTENTION_BACKWARD)]
    costs = cost_gpu(graph(pair, Dtype.FP16), gpu("a100-pcie-40gb"))
    assert costs.flop[1] == pytest.approx(2.5 * costs.flop[0])


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1, 20))
def test_joined_time_lies_between_the_longer_and_the_sum(
    compute: float, memory: float, exponent: float
) -> None:
    joined = join_times(np.array([compute]), np.array([memory]), exponent)[0]
    assert max(compute, memory) * (1 - 1e-12) <= joined <= (compute + memory) * (1 + 1e-12)
