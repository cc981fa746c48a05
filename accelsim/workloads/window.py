"""Sizes of windows that slide over images: convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.errors import InvalidValueError


def per_axis(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One value for each of `rank` axes, where one stands for all of them."""
    return tuple(value) if isinstance(value, Sequence) else (value,) * rank


def three_axes(values: Sequence[int]) -> tuple[int, int, int]:
    """Depth, height and width; axes that are missing in front count 1."""
    padded = (1,) * (3 - len(values)) + tuple(values)
    return padded[0], padded[1], padded[2]


def window_outputs(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Places of a window along an axis.

    Dumoulin and Visin, A guide to convolution arithmetic, arXiv:1603.07285.

    Raises:
        InvalidValueError: If the window does not fit once.
    """
    count = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    if count < 1:
        raise InvalidValueError(
            "input size", size, f"at least {dilation * (kernel - 1) + 1 - 2 * padding}"
        )
    return count


def transposed_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Length of an axis behind a transposed convolution.

    Dumoulin and Visin, A guide to convolution arithmetic, arXiv:1603.07285.
    """
    return (size - 1) * stride - 2 * padding + kernel


def pooled_size(size: int, kernel: int, stride: int, padding: int, *, ceil: bool) -> int:
    """Length of an axis behind a pool; below 1 where the window does not fit.

    Rounded up, a last window counts only if it begins inside the axis or the padding before it
    (``torch.nn.MaxPool2d``). Sizes rounded down follow Dumoulin and Visin, arXiv:1603.07285.
    """
    span = size + 2 * padding - kernel
    count = span // stride + 1
    is_partial = ceil and span % stride > 0 and count * stride < size + padding
    return count + is_partial
