"""Published figures of workloads beside those of their lowered graphs."""

from __future__ import annotations

from dataclasses import asdict

from accelsim.dtype import PRECISIONS
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.model import Lowered, PassShape, Published, Workload
from accelsim.workloads.operator import Phase


@frozen
class FigureCheck:
    """A published figure and ours.

    Attributes:
        workload: Workload name.
        quantity: "parameters" or "flop".
        published: The published value.
        ours: What the lowered graph has.
        tolerance_fraction: Allowed relative difference.
        source: Where it was published.
    """

    workload: str
    quantity: str
    published: float
    ours: float
    tolerance_fraction: float
    source: str

    @property
    def difference_fraction(self) -> float:
        """(ours - published) / published."""
        return self.ours / self.published - 1.0

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance."""
        return abs(self.difference_fraction) <= self.tolerance_fraction

    def to_dict(self) -> Document:
        """Plain values."""
        return asdict(self) | {
            "difference_fraction": self.difference_fraction,
            "agrees": self.agrees,
        }


def forward_pass(workload: Workload, shape: PassShape) -> Lowered:
    """One forward pass in fp32, as model sizes are counted."""
    return workload.lower(shape, PRECISIONS["fp32"], Phase.FORWARD)


def check_figures(workload: Workload) -> list[FigureCheck]:
    """Compare every published figure of a workload with its lowered graph.

    Raises:
        InputError: If the workload cannot be lowered.
    """
    return [_check(workload, figure) for figure in workload.published]


def _check(workload: Workload, figure: Published) -> FigureCheck:
    lowered = forward_pass(workload, figure.shape)
    ours = lowered.parameter_count if figure.quantity == "parameters" else lowered.graph.model_flop
    name, quantity, value = workload.name, figure.quantity, figure.value
    return FigureCheck(name, quantity, value, float(ours), figure.tolerance_fraction, figure.source)
