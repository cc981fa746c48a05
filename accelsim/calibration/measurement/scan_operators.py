"""Calls of scans, sorts, spectra, comparisons, random numbers, and of what runs across the last
axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from accelsim.calibration.measurement.operands import ATEN, BUILDERS, Builder, Call, Source, builds

__all__: list[str] = []


def _of(function: Callable[[torch.Tensor], Any], *names: str) -> Builder:
    def build(source: Source) -> Call:
        x = source.values(*(source.shape[name] for name in names))
        return lambda: function(x)

    return build


_LINES, _STRETCHES = ("rows", "columns"), ("outer", "columns", "inner")
BUILDERS |= {
    "_softmax_across": _of(lambda x: torch.softmax(x, 1), *_STRETCHES),
    "_log_softmax_across": _of(lambda x: torch.log_softmax(x, 1), *_STRETCHES),
    "cumsum": _of(lambda x: x.cumsum(-1), *_LINES),
    "cumsum_across": _of(lambda x: x.cumsum(1), *_STRETCHES),
    "sort": _of(lambda x: x.sort(-1), *_LINES),
    "norm_outer": _of(lambda x: torch.linalg.vector_norm(x, dim=1), *_STRETCHES),
    "randn": _of(torch.randn_like, "elements"),
    "gt": _of(lambda x: x > 0, "elements"),
}


@builds("_softmax_backward_data_across", "_log_softmax_backward_data_across")
def _softmax_backward(source: Source) -> Call:
    sizes = [source.shape[name] for name in _STRETCHES]
    gradient, output = source.values(*sizes), torch.softmax(source.values(*sizes), 1)
    is_log = source.operator.startswith("_log")
    function = ATEN._log_softmax_backward_data if is_log else ATEN._softmax_backward_data  # noqa: SLF001
    return lambda: function(gradient, output, 1, source.dtype)


@builds("fft", "fft_across")
def _spectrum(source: Source) -> Call:
    """In 32 bits, as the library has no transform of fewer."""
    across = source.operator.endswith("across")
    x = source.values(
        *(source.shape[name] for name in (_STRETCHES if across else _LINES)), dtype=torch.float32
    )
    return lambda: torch.fft.rfft(x, dim=1)


@builds("upsample_bicubic2d")
def _bicubic(source: Source) -> Call:
    s = source.shape
    x, side = (
        source.values(s["batch"], s["channels"], s["side"], s["side"]),
        s["side"] * s["factor"],
    )
    return lambda: functional.interpolate(x, size=side, mode="bicubic")


@builds("reflection_pad2d", "reflection_pad2d_backward")
def _reflected(source: Source) -> Call:
    s = source.shape
    sides, pads = [s["batch"], s["channels"], s["side"], s["side"]], [s["pad"]] * 4
    x = source.values(*sides)
    if source.operator == "reflection_pad2d":
        return lambda: functional.pad(x, pads, mode="reflect")
    padded = s["side"] + 2 * s["pad"]
    gradient = source.values(*sides[:2], padded, padded)
    return lambda: ATEN.reflection_pad2d_backward(gradient, x, pads)
