"""Arithmetic of elementwise functions.

Estimates: the polynomial and special-function counts of the usual kernels.
"""

from __future__ import annotations

_FLOP_OF_NAMES = {
    2: """relu6 hardtanh leaky_relu _prelu_kernel rsqrt addcmul addcdiv native_dropout
        _fused_dropout""",
    3: "hardsigmoid lerp",
    4: """hardswish sigmoid exp expm1 log log1p sin cos pow _weight_norm_interface""",
    5: "silu glu",
    6: "elu celu log_sigmoid_forward tanh softplus erf",
    8: "gelu",
    10: "mish",
    20: "_thnn_fused_gru_cell",
    28: "_thnn_fused_lstm_cell",
}
#: FLOP per element by function or ATen operator; 1 where not listed.
POINTWISE_FLOP = {name: flop for flop, text in _FLOP_OF_NAMES.items() for name in text.split()}
