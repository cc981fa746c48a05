"""The operator suite: which shapes are measured, space-filling in the logarithm of each dimension.

Shapes are points of a Halton sequence (Halton, 1960; bases 2, 3, 5 ...) mapped to logarithmic
ranges; a point whose work or memory is out of bounds is left out and the next one taken, so that
every family keeps its count. Dimensions that models use in multiples (channels, heads) are rounded
to them, every fourth point to odd sizes. The order interleaves families, so that a run cut short
has measured something of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.cpu_plans import CPU_PLANS
from accelsim.calibration.measurement.plan import Plan
from accelsim.calibration.measurement.shape_rules import (
    attention_allowed,
    attention_finish,
    conv_allowed,
    conv_finish,
    elements_allowed,
    gather_allowed,
    gemm_allowed,
    gemm_bytes,
    gemm_flop,
    other_conv,
    patches,
    recurrent_allowed,
)

__all__ = ["FAMILIES", "operator_suite"]


_GEMM = {"m": (17, 4096, 16), "n": (16, 8192, 64), "k": (16, 8192, 64)}
_GEMV = {"m": (1, 16, 1), "n": (64, 16384, 64), "k": (64, 8192, 64)}
_IMAGE = {
    "channels_in": (8, 1024, 16),
    "channels_out": (8, 1024, 16),
    "side": (4, 224, 2),
    "batch": (1, 16, 1),
}
_ROWS = {"rows": (1, 65536, 1), "columns": (16, 8192, 16)}
_SMALL_CONV = {
    "channels_in": (8, 512, 16),
    "channels_out": (8, 512, 16),
    "side": (4, 128, 2),
    "batch": (1, 8, 1),
}
_MATRICES = {"batch": (1, 16, 1), "rows": (16, 1024, 16), "columns": (16, 1024, 16)}
_ONE = {"elements": (64, 40_000_000, 64)}
_LIGHT = (
    "relu",
    "add",
    "mul",
    "div",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "hardswish",
    "add_bias",
    "mul_scalar",
)
_BACKWARD = (
    "threshold_backward",
    "gelu_backward",
    "silu_backward",
    "sigmoid_backward",
    "tanh_backward",
)

#: The suite, family by family.
FAMILIES: Sequence[Plan] = (
    Plan("gemm", ("addmm",), _GEMM, 44, allowed=gemm_allowed, cold=True),
    Plan("gemm", ("mm_nn",), _GEMM | {"m": (1, 4096, 16)}, 36, allowed=gemm_allowed),
    Plan("gemm", ("mm_tn",), _GEMM | {"k": (1, 4096, 16)}, 36, allowed=gemm_allowed),
    Plan("gemv", ("addmm",), _GEMV, 40, allowed=gemm_allowed, cold=True),
    Plan(
        "batched_gemm",
        ("bmm",),
        {"m": (1, 1024, 16), "n": (8, 1024, 16), "k": (8, 512, 16), "batch": (2, 256, 2)},
        48,
        allowed=lambda s: gemm_flop(s) <= 3e9 and gemm_bytes(s) <= 200e6,
    ),
    Plan(
        "convolution",
        ("convolution",),
        _IMAGE | {"window": (2, 6, 1), "strides": (1, 3, 1), "first": (1, 10, 1)},
        64,
        finish=conv_finish,
        allowed=conv_allowed,
        cold=True,
    ),
    Plan(
        "convolution_1x1",
        ("convolution",),
        _IMAGE | {"strides": (1, 3, 1)},
        44,
        fixed={"kernel": 1},
        finish=conv_finish,
        allowed=conv_allowed,
        cold=True,
    ),
    # kernels that few of the points above reach: steps of two, single small images, and the wide,
    # small layers of networks
    Plan(
        "convolution_1x1",
        ("convolution",),
        {
            "channels_in": (16, 1024, 16),
            "channels_out": (16, 1024, 16),
            "side": (7, 112, 1),
            "batch": (1, 8, 1),
        },
        10,
        fixed={"kernel": 1, "strides": 3},
        finish=conv_finish,
        allowed=conv_allowed,
        cold=True,
        devices=("cpu",),
    ),
    Plan(
        "convolution_1x1",
        ("convolution",),
        {
            "channels_in": (128, 1280, 32),
            "channels_out": (128, 1280, 32),
            "side": (5, 28, 1),
            "batch": (1, 8, 1),
        },
        10,
        fixed={"kernel": 1},
        finish=conv_finish,
        allowed=conv_allowed,
        cold=True,
        devices=("cpu",),
    ),
    Plan(
        "convolution",
        ("convolution",),
        {"channels_in": (64, 512, 32), "channels_out": (64, 512, 32), "side": (5, 14, 1)},
        10,
        fixed={"kernel": 3, "batch": 1},
        finish=conv_finish,
        allowed=conv_allowed,
        cold=True,
        devices=("cpu",),
    ),
    Plan(
        "convolution_depthwise",
        ("convolution",),
        {
            "channels_in": (16, 1024, 16),
            "side": (7, 160, 1),
            "batch": (1, 16, 1),
            "window": (2, 5, 1),
            "strides": (1, 3, 1),
        },
        48,
        fixed={"depthwise": 1},
        finish=conv_finish,
        allowed=conv_allowed,
    ),
    Plan(
        "convolution_other",
        ("convolution", "convolution_1d", "convolution_transpose"),
        _SMALL_CONV | {"window": (2, 5, 1)},
        22,
        finish=other_conv,
        allowed=conv_allowed,
    ),
    # groups of 4, 8, 16 and 32 channels, which the library's generated code takes
    Plan(
        "convolution_other",
        ("convolution",),
        {
            "width": (2, 5, 1),
            "groups": (2, 64, 2),
            "side": (5, 56, 1),
            "batch": (1, 8, 1),
            "strides": (1, 3, 1),
        },
        12,
        fixed={"kernel": 3},
        finish=conv_finish,
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    Plan(
        "convolution_depthwise",
        ("convolution_1d_depthwise",),
        {
            "channels": (16, 1024, 16),
            "length": (16, 4096, 2),
            "batch": (1, 8, 1),
            "half": (1, 15, 1),
        },
        14,
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=lambda s: 1e4 <= s["batch"] * s["channels"] * s["length"] <= 6e6,
        devices=("cpu",),
    ),
    Plan(
        "convolution_other",
        ("convolution",),
        {
            "channels_out": (64, 1024, 64),
            "side": (64, 256, 16),
            "batch": (1, 8, 1),
            "patch": (2, 4, 1),
        },
        10,
        fixed={"channels_in": 3, "groups": 1},
        finish=patches,
        allowed=conv_allowed,
    ),
    Plan(
        "convolution_backward",
        ("convolution_backward.grad_input", "convolution_backward.grad_weight"),
        _SMALL_CONV | {"window": (1, 4, 1), "strides": (1, 3, 1)},
        32,
        finish=conv_finish,
        allowed=conv_allowed,
    ),
    Plan(
        "convolution_backward",
        ("convolution_backward.grad_input", "convolution_backward.grad_weight"),
        {
            "channels_in": (16, 512, 16),
            "side": (7, 112, 1),
            "batch": (1, 8, 1),
            "strides": (1, 3, 1),
        },
        16,
        fixed={"depthwise": 1, "kernel": 3},
        finish=conv_finish,
        allowed=conv_allowed,
    ),
    # depthwise gradients that have no generated kernel
    Plan(
        "convolution_backward",
        ("convolution_backward.grad_input",),
        {
            "channels_in": (16, 1024, 16),
            "side": (7, 80, 1),
            "batch": (1, 6, 1),
            "window": (2, 6, 1),
        },
        8,
        fixed={"depthwise": 1, "strides": 3},
        finish=conv_finish,
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    Plan(
        "convolution_backward",
        ("convolution_backward.grad_weight",),
        {
            "channels_in": (16, 1024, 16),
            "side": (7, 56, 1),
            "batch": (1, 6, 1),
            "window": (5, 6, 1),
            "strides": (1, 3, 1),
        },
        8,
        fixed={"depthwise": 1},
        finish=conv_finish,
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    Plan(
        "attention",
        ("scaled_dot_product_attention",),
        {
            "q_len": (16, 2048, 16),
            "heads": (2, 32, 2),
            "head_dim": (32, 128, 32),
            "batch": (1, 16, 1),
            "masked": (1, 2, 1),
        },
        44,
        fixed={"kv_len": 1},
        finish=attention_finish,
        allowed=attention_allowed,
    ),
    Plan(
        "attention",
        ("scaled_dot_product_attention",),
        {
            "kv_len": (16, 4096, 16),
            "heads": (2, 32, 2),
            "head_dim": (32, 128, 32),
            "batch": (1, 32, 1),
        },
        20,
        fixed={"q_len": 1, "causal": 0},
        allowed=attention_allowed,
    ),
    Plan(
        "attention",
        ("scaled_dot_product_attention_backward",),
        {
            "q_len": (16, 1024, 16),
            "heads": (2, 32, 2),
            "head_dim": (32, 128, 32),
            "batch": (1, 16, 1),
            "masked": (1, 2, 1),
        },
        20,
        finish=attention_finish,
        fixed={"kv_len": 1},
        allowed=lambda s: (
            attention_allowed(s)
            and s["q_len"] ** 2 * s["batch"] * s["heads"] * s["head_dim"] <= 5e8
        ),
    ),
    Plan("softmax", ("_softmax",), _ROWS, 32, allowed=elements_allowed(12e6)),
    Plan(
        "softmax",
        ("_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
        _ROWS,
        16,
        allowed=elements_allowed(12e6),
    ),
    # rows shorter than a vector: classes of a small head, experts of a router
    Plan(
        "softmax",
        ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
        {"rows": (32, 16384, 1), "columns": (2, 31, 1)},
        4,
        devices=("cpu",),
    ),
    Plan("layer_norm", ("native_layer_norm",), _ROWS, 32, allowed=elements_allowed(12e6)),
    Plan(
        "layer_norm",
        ("native_layer_norm_backward", "_fused_rms_norm"),
        _ROWS,
        22,
        allowed=elements_allowed(12e6),
    ),
    Plan(
        "batch_norm",
        ("native_batch_norm", "native_batch_norm_train", "native_batch_norm_backward"),
        {"channels": (8, 1024, 8), "side": (4, 112, 2), "batch": (1, 16, 1)},
        20,
        finish=lambda s: s | {"pixels": s.pop("side") ** 2},
        allowed=elements_allowed(12e6),
    ),
    Plan(
        "group_norm",
        ("native_group_norm",),
        {"channels": (32, 1024, 32), "side": (4, 64, 2), "batch": (1, 8, 1)},
        32,
        finish=lambda s: (
            s | {"channels": 32 * max(1, s["channels"] // 32), "pixels": s.pop("side") ** 2}
        ),
        allowed=elements_allowed(8e6),
    ),
    Plan("elementwise", _LIGHT, _ONE, 12),
    Plan("elementwise", _BACKWARD, _ONE, 10),
    Plan(
        "elementwise",
        (
            "native_dropout",
            "native_dropout_backward",
            "zeros",
            "hardtanh",
            "hardsigmoid",
            "leaky_relu",
            "elu",
            "sub",
        ),
        _ONE,
        10,
    ),
    Plan("elementwise", ("to_bf16", "neg", "rsqrt", "pow", "exp"), _ONE, 9),
    Plan(
        "elementwise",
        ("gelu_tanh", "gelu_tanh_backward", "mish", "sin", "log"),
        _ONE,
        10,
        devices=("cpu",),
    ),
    Plan("elementwise", ("where",), {"elements": (64, 4_000_000, 64)}, 10, devices=("cpu",)),
    Plan("elementwise", ("add_strided",), _MATRICES, 12, allowed=elements_allowed(12e6)),
    Plan("copy", ("clone_strided",), _MATRICES, 14, allowed=elements_allowed(12e6)),
    Plan("reduction", ("sum", "mean", "amax"), _ROWS, 16, allowed=elements_allowed(12e6)),
    Plan("reduction", ("var",), _ROWS, 12, allowed=elements_allowed(12e6), devices=("cpu",)),
    Plan("reduction", ("sum_rows", "mean_spatial"), _ROWS, 16, allowed=elements_allowed(12e6)),
    Plan(
        "pooling",
        ("max_pool2d_with_indices",),
        {"channels": (8, 512, 8), "side": (8, 128, 2), "batch": (1, 16, 1), "kernel": (2, 3, 1)},
        16,
        allowed=lambda s: 4e5 <= s["channels"] * s["side"] ** 2 * s["batch"] <= 6e6,
    ),
    Plan(
        "pooling",
        (
            "max_pool2d_with_indices",
            "avg_pool2d",
            "_adaptive_avg_pool2d",
            "max_pool2d_with_indices_backward",
        ),
        {"channels": (8, 512, 8), "side": (8, 128, 2), "batch": (1, 16, 1), "kernel": (2, 3, 1)},
        16,
        allowed=lambda s: s["channels"] * s["side"] ** 2 * s["batch"] <= 6e6,
    ),
    Plan(
        "pooling",
        ("max_pool1d",),
        {
            "channels": (8, 512, 8),
            "length": (16, 4096, 2),
            "batch": (1, 16, 1),
            "kernel": (2, 4, 1),
        },
        8,
        allowed=lambda s: s["channels"] * s["length"] * s["batch"] <= 4e6,
        devices=("cpu",),
    ),
    Plan(
        "resampling",
        ("upsample_nearest2d", "upsample_bilinear2d"),
        {"channels": (8, 512, 8), "side": (4, 64, 2), "batch": (1, 8, 1), "factor": (2, 8, 1)},
        22,
        allowed=lambda s: s["batch"] * s["channels"] * (s["side"] * s["factor"]) ** 2 <= 4e6,
        devices=("cpu",),
    ),
    Plan(
        "resampling",
        ("upsample_nearest2d_backward", "upsample_bilinear2d_backward"),
        {"channels": (2, 128, 2), "side": (4, 64, 2), "batch": (1, 8, 1), "factor": (2, 4, 1)},
        10,
        allowed=lambda s: s["batch"] * s["channels"] * (s["side"] * s["factor"]) ** 2 <= 4e6,
        devices=("cpu",),
    ),
    Plan(
        "embedding",
        ("embedding",),
        {"table": (64, 1_000_000, 8), "width": (8, 1024, 8), "lookups": (1, 65536, 1)},
        34,
        allowed=gather_allowed,
    ),
    Plan(
        "embedding",
        ("embedding_dense_backward",),
        {"table": (64, 100_000, 8), "width": (8, 1024, 8), "lookups": (1, 16384, 1)},
        14,
        allowed=gather_allowed,
        dtypes=("fp32", "bf16"),
    ),
    Plan(
        "embedding_bag",
        ("_embedding_bag",),
        {
            "table": (64, 1_000_000, 8),
            "width": (8, 256, 8),
            "bags": (1, 4096, 1),
            "per_bag": (1, 64, 1),
        },
        32,
        finish=lambda s: s | {"lookups": s["bags"] * s.pop("per_bag")},
        allowed=gather_allowed,
    ),
    Plan(
        "recurrent",
        ("lstm", "gru"),
        {
            "hidden": (16, 1024, 16),
            "steps": (4, 256, 2),
            "batch": (1, 64, 1),
            "input": (16, 1024, 16),
        },
        32,
        allowed=recurrent_allowed,
    ),
    Plan(
        "recurrent",
        ("lstm_train", "lstm_backward"),
        {
            "hidden": (16, 512, 16),
            "steps": (4, 128, 2),
            "batch": (1, 64, 1),
            "input": (16, 512, 16),
        },
        18,
        allowed=lambda s: recurrent_allowed(s) and s["steps"] * s["batch"] * s["hidden"] <= 1e6,
    ),
    Plan(  # step by step through single operators
        "recurrent",
        ("gru_train", "gru_backward"),
        {
            "hidden": (16, 512, 16),
            "steps": (4, 128, 2),
            "batch": (1, 64, 1),
            "input": (16, 512, 16),
        },
        14,
        allowed=lambda s: recurrent_allowed(s) and s["steps"] * s["batch"] * s["hidden"] <= 1e6,
        devices=("cpu",),
    ),
    Plan(
        "optimizer",
        ("adamw", "sgd"),
        {"parameters": (1000, 20_000_000, 64), "tensors": (1, 128, 1)},
        16,
        allowed=lambda s: s["parameters"] >= 16 * s["tensors"],
    ),
    # rows of tables that no index names have gradients of zero
    Plan(
        "optimizer",
        ("adamw_idle",),
        {"parameters": (10_000, 8_000_000, 64), "tensors": (1, 16, 1)},
        6,
        devices=("cpu",),
    ),
    Plan(
        "copy",
        ("clone", "cat"),
        {"rows": (2, 4096, 1), "middle": (2, 32, 2), "columns": (16, 512, 16)},
        18,
        allowed=elements_allowed(12e6),
    ),
    Plan(
        "copy",
        ("pixel_shuffle",),
        {"channels": (1, 64, 1), "side": (8, 160, 2), "batch": (1, 4, 1), "factor": (2, 4, 1)},
        8,
        allowed=lambda s: s["batch"] * s["channels"] * (s["side"] * s["factor"]) ** 2 <= 4e6,
        devices=("cpu",),
    ),
    Plan(
        "copy",
        ("constant_pad_nd",),
        {"channels": (3, 512, 4), "side": (7, 224, 1), "batch": (1, 8, 1), "pad": (1, 3, 1)},
        10,
        allowed=lambda s: s["batch"] * s["channels"] * s["side"] ** 2 <= 4e6,
        devices=("cpu",),
    ),
    Plan("copy", ("copy",), _ROWS, 18, allowed=elements_allowed(12e6)),
    Plan(
        "routing",
        ("topk",),
        {"rows": (1, 8192, 1), "columns": (4, 96, 4)},
        14,
        allowed=elements_allowed(4e6),
    ),
    Plan(
        "routing",
        ("index", "gather"),
        {"rows": (1, 8192, 1), "columns": (8, 1024, 8)},
        14,
        allowed=elements_allowed(4e6),
    ),
    Plan(
        "framework",
        ("module_call", "plain_chain", "gradient_chain"),
        {},
        1,
        fixed={"count": 64},
        devices=("cpu",),
        dtypes=("fp32",),
    ),
    Plan(
        "transfer",
        ("host_to_device", "device_to_host"),
        {"elements": (256, 67_108_864, 64)},
        16,
        devices=("cuda",),
        dtypes=("fp32",),
    ),
    *CPU_PLANS,
)


def operator_suite(
    device: str,
    dtypes: Sequence[str],
    threads: Sequence[int],
    executions: Sequence[str] = ("eager",),
    families: Sequence[Plan] | None = None,
) -> list[Case]:
    """Every case of a calibration, most informative first.

    Args:
        device: "cpu" or "cuda".
        dtypes: Formats to measure.
        threads: Thread counts; the first is measured in full, the others on a part of the shapes.
            (0,) on a GPU.
        executions: "eager", and on a GPU "graph" for the operators that a graph can hold.
        families: What to measure; `FAMILIES` where None.

    Returns:
        Cases with unique keys, families interleaved: the first tenth of the list already spans
        every family.
    """
    from accelsim.calibration.measurement.gpu_suite import gpu_plans, runs_on_gpu

    ranked: list[tuple[float, int, Case]] = []
    plans = [plan for plan in (families or FAMILIES) if device in plan.devices]
    for number, plan in enumerate(plans if device == "cpu" else gpu_plans(plans)):
        for operator in plan.operators:
            for case, rank in _cases(plan, operator, dtypes, threads, executions):
                if device == "cpu" or runs_on_gpu(case):
                    ranked.append((rank, number, case))
    ranked.sort(key=lambda entry: entry[:2])
    return list({case.key: case for _, _, case in ranked}.values())


def _cases(
    plan: Plan,
    operator: str,
    dtypes: Sequence[str],
    threads: Sequence[int],
    executions: Sequence[str],
) -> Iterator[tuple[Case, float]]:
    """Cases of one operator with a rank from 0 (first) to about 1.5."""
    for position, shape in enumerate(plan.shapes(operator)):
        place = position / plan.count
        for dtype in (d for d in dtypes if plan.dtypes is None or d in plan.dtypes):
            for order, count in enumerate(threads):
                if (
                    order and position % 3 == 1
                ):  # two thirds; halves would follow the sequence's first base
                    continue
                for execution in executions:
                    base = Case(
                        plan.family, operator, shape, dtype, count, cold=False, execution=execution
                    )
                    yield base, place + 0.01 * order
                    if plan.cold:
                        yield (
                            Case(
                                plan.family,
                                operator,
                                shape,
                                dtype,
                                count,
                                cold=True,
                                execution=execution,
                            ),
                            place + 0.005,
                        )
