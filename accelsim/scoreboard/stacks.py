"""Software of another time: how much longer whole networks took on it than the model of kernels
says.

The model's kernels and times to issue an operator are those of cuDNN 7 to 9 and PyTorch. Torch7
with cuDNN 4 and 5 ran the same networks slower: bias and batch norm were kernels of their own, and
convolutions had fewer algorithms. The ratio of an older stack is the geometric mean over cards of
the ratio of their measured to predicted times, each card weighing the same; a card's own rows never
enter its ratio.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from accelsim.files.datafile import data_root, read_mapping


def stack_ratio(stack: str, device: str) -> float:
    """Measured over modelled time of a software stack, from devices other than this; 1 where
    nothing is known.

    Args:
        stack: "torch7 cudnn 5.1"; empty for today's.
        device: Catalogue name.
    """
    if not stack:
        return 1.0
    entry = _stacks().get(stack) or {}
    return float(entry.get("without", {}).get(device, entry.get("value", 1.0)))


@cache
def _stacks() -> dict[str, Any]:
    path = data_root() / "calibration" / "class" / "gpu-stacks.yaml"
    return dict(read_mapping(path)["stacks"]) if path.is_file() else {}
