"""Parity plots as pictures: predicted against measured value of a suite's answered rows, on
logarithmic axes.

The line is perfect prediction; the band is the median 90 % interval of the rows shown. Operator
suites have a panel per device, since their rows are many; model suites have one panel with a colour
per device. Needs matplotlib (extra `plots`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from accelsim.errors import MissingDependencyError
from accelsim.report.output import write_file
from accelsim.report.parity import COLOURS, Series, limits, parity_series, sampling_note, title
from accelsim.validation.score import Scoreboard, SuiteScore

__all__ = ["write_parity_plots"]

#: With the colours: what comes after them has another marker.
_MARKERS: Final = ("o", "^", "s", "D")
#: Points drawn per device at most; more only hide each other.
_MAX_POINTS: Final = 6000
_PANEL_COLUMNS: Final = 4
_BAND, _EDGE = "#bbbbbb", "#d55e00"


def write_parity_plots(board: Scoreboard, folder: Path, *, force: bool = False) -> list[Path]:
    """Write one PNG per suite that has answered rows.

    Args:
        board: A validation's result.
        folder: Existing folder.
        force: Whether existing files may be replaced.

    Returns:
        The files written.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
        OutputError: If a file exists or cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "plots") from None
    written: list[Path] = []
    for score in board.suites:
        series = parity_series(score)
        if series:
            path = folder / f"{score.suite.name}.png"
            write_file(path, partial(_save, _figure(Figure, score, series)), force=force)
            written.append(path)
    return written


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110, format="png")


def _figure(make: Any, score: SuiteScore, series: Sequence[Series]) -> Any:
    is_alone = score.suite.group_key == "model" or len(series) == 1
    panels = [list(series)] if is_alone else [[one] for one in series]
    columns = min(len(panels), _PANEL_COLUMNS)
    lines = -(-len(panels) // columns)
    figure = make(
        figsize=(9.8, 6.0) if is_alone else (3.2 * columns, 3.1 * lines + 0.9), layout="constrained"
    )
    axes = figure.subplots(lines, columns, squeeze=False)
    ends = np.array(limits(series))
    for axis, shown in zip(axes.flat, panels, strict=False):
        _draw(axis, shown, ends, is_alone=is_alone)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    along, up = f"measured {score.suite.quantity}", f"predicted {score.suite.quantity}"
    if is_alone:  # beside the axis, which is square and narrower than the figure
        axes[0, 0].set(xlabel=along, ylabel=up)
        axes[0, 0].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False)
    else:
        figure.supxlabel(along)
        figure.supylabel(up)
    note = sampling_note(series, _MAX_POINTS)
    figure.suptitle(title(score) + (f"\n{note}" if note else ""), fontsize=11)
    return figure


def _draw(axis: Any, series: Sequence[Series], ends: Any, *, is_alone: bool) -> None:
    ratio = float(np.median(np.concatenate([one.high / one.predicted for one in series])))
    axis.fill_between(
        ends, ends / ratio, ends * ratio, color=_BAND, alpha=0.5, linewidth=0, label="90 % interval"
    )
    for index, one in enumerate(series):
        rows = one.sample(_MAX_POINTS)
        axis.scatter(
            one.measured[rows],
            one.predicted[rows],
            s=16 if is_alone else 2,
            alpha=0.8 if is_alone else 0.3,
            color=COLOURS[index % len(COLOURS)],
            marker=_MARKERS[index // len(COLOURS) % len(_MARKERS)],
            linewidths=0,
            label=one.device,
        )
    axis.plot(ends, ends, color="#333333", linewidth=0.8, zorder=3)
    if not is_alone:  # points hide a narrow band: its edges stay in sight
        for edge in (ends / ratio, ends * ratio):
            axis.plot(ends, edge, color=_EDGE, linewidth=0.6, zorder=3)
        error = 100 * float(np.median(np.abs(series[0].error)))
        axis.set_title(f"{series[0].device}: median error {error:.1f} %", fontsize=9)
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
