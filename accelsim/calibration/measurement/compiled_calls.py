"""Calls of operators that a compiler generates: what ``torch.compile`` fuses elementwise chains,
norms and softmax into.

Rows are a dynamic dimension, so that one compilation serves many shapes; columns are fixed, as they
are in a model. The first call compiles, which happens here, before anything is timed.

Reference: PyTorch, "torch.compile" and "Dynamic shapes" (``torch._dynamo.mark_dynamic``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from accelsim.calibration.measurement.operands import Operands, builds
from accelsim.calibration.measurement.timing import Call

#: Compilations kept of one function: columns, formats and thread counts each need their own.
_MOST_COMPILATIONS = 64
#: Operators of this module that are timed as kernels.
COMPILED_OPERATORS = ("compiled_elementwise", "compiled_layer_norm", "compiled_softmax")


def _elementwise(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x * 0.5 + y) * y


def _layer_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x + y, (x.shape[-1],), weight, bias)


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x * 0.125, -1)


def _compiled(function: Callable[..., Tensor], *operands: Tensor) -> Call:
    """A call of the compiled function; compiles it for the operands' columns, format and the thread
    count. Of shapes alone the function itself, whose work is the same.
    """
    if operands[0].is_meta:
        return partial(function, *operands)
    from torch._dynamo import config, mark_dynamic, mark_static
    from torch._inductor import config as generator

    config.recompile_limit = _MOST_COMPILATIONS
    generator.compile_threads = 1  # a pool of compilers would go on beside the measurements
    for x in operands:
        if x.dim() > 1 or len(operands) == 2:
            mark_dynamic(x, 0)
        if x.dim() > 1:
            mark_static(x, 1)
    call = partial(torch.compile(function), *operands)
    call()
    return call


#: What is compiled, and operands; the last is what it takes to enter compiled code: guards, and a
#: loop over next to nothing.
_CALLS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "compiled_elementwise": (_elementwise, "elements; elements"),
    "compiled_layer_norm": (
        _layer_norm,
        "rows columns; rows columns; weight: columns; weight: columns",
    ),
    "compiled_softmax": (_softmax, "rows columns"),
    "compiled_call": (_elementwise, "16; 16"),
}


@builds(*_CALLS)
def _compiled_call(source: Operands) -> Call:
    function, operands = _CALLS[source.operator]
    return _compiled(function, *map(source.operand, operands.split("; ")))


def why_not_compiled(device: str) -> str | None:
    """Why this machine cannot compile; None where it can.

    Args:
        device: "cpu" or "cuda:N".
    """
    x = torch.zeros(16, device=device)
    try:
        with torch.no_grad():
            _compiled(_elementwise, x, x.clone())()
    except Exception as error:  # noqa: BLE001  (the last resort: a line instead of a traceback)
        first_line = next(iter(str(error).strip().splitlines()), "")
        return f"{type(error).__name__}: {first_line[:160]}"
    return None
