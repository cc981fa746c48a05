"""Which parameters a row is predicted with: those that ship, or others that it had no part in.

Fits may have used the rows that are scored. ``python -m tools.scoreboard`` hands in parameters
fitted without a row's chip, board or model, which are none of the package's.
"""

# ruff: noqa: ARG002  (what ships is the same for every row)

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelsim.catalog.stacks import Stack
    from accelsim.cost.gpu import GpuParameters
    from accelsim.plain import Values
    from accelsim.scoreboard.scores import Scoreboard


class Parameters:
    """The parameters that ship, whatever rows shaped them."""

    def class_set(self, chip: str) -> GpuParameters | None:
        """GPU parameters fitted without a chip's rows; None where there are none."""
        return None

    def stack(self, stack: Stack, board: str) -> Stack:
        """A stack whose ratios and spreads a board's rows had no part in."""
        return stack

    def spreads(self, origin: str) -> Values | None:
        """Spreads of measured runs without those of a board, a trained model, or a served model and
        its engine; None for those that ship.
        """
        return None

    def older_stack_ratio(self, stack: str, card: str) -> float:
        """Measured over modelled time of a software stack of another time, from other cards."""
        return 1.0

    def publish(self, board: Scoreboard) -> None:
        """Keep what a scoreboard says of its rows left out, as its report becomes the one that
        ships.
        """


_handed_in = [Parameters()]


def hand_in(parameters: Parameters) -> None:
    """Predict rows with other parameters from now on."""
    _handed_in[:] = [parameters]


def parameters() -> Parameters:
    """Those that were handed in, else those that ship."""
    return _handed_in[0]
