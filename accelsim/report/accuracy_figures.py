"""Parity plots: predicted against measured time of every answered row of a suite, on logarithmic axes.

The line is perfect prediction; the band is the median 90 % interval of the rows shown. Operator suites have a panel per
device, since their rows are many; model suites have one panel with a colour per device. Needs matplotlib (extra `plots`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from accelsim.calibration.validation.score import Scoreboard, ScoredRows, SuiteScore
from accelsim.errors import MissingDependencyError
from accelsim.report.output import write_file

__all__ = ["write_parity_plots"]

#: Colours that stay apart for colour-blind readers (Okabe and Ito, 2008), then the same with another marker.
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS: Final = ("o", "^", "s", "D")
#: Points drawn per panel at most; more only hide each other.
_MAX_POINTS = 6000
_PANEL_COLUMNS = 4
_SEED = 0


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
        panels = _panels(score)
        if panels:
            path = folder / f"{score.suite.name}.png"
            write_file(path, partial(_save, _figure(Figure, score, panels)), force=force)
            written.append(path)
    return written


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110, format="png")


def _panels(score: SuiteScore) -> list[tuple[str, list[ScoredRows]]]:
    answered = [part for part in score.rows if not part.refusal and len(part)]
    if not answered:
        return []
    if score.suite.group_key == "model":
        return [("", answered)]
    devices = dict.fromkeys(part.device for part in answered)
    return [(device, [part for part in answered if part.device == device]) for device in devices]


def _figure(make: Any, score: SuiteScore, panels: Sequence[tuple[str, list[ScoredRows]]]) -> Any:
    columns = min(len(panels), _PANEL_COLUMNS)
    lines = -(-len(panels) // columns)
    size = (7.5, 6.0) if len(panels) == 1 else (3.2 * columns, 3.1 * lines + 0.6)
    figure = make(figsize=size, layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    limits = _limits([part for _, parts in panels for part in parts])
    for axis, (title, parts) in zip(axes.flat, panels, strict=False):
        _draw(axis, title, parts, limits, is_alone=len(panels) == 1)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.supxlabel("measured time, s")
    figure.supylabel("predicted time, s")
    mape = score.figures.mape_fraction or 0.0
    figure.suptitle(f"{score.suite.name} ({score.tier}): {score.figures.rows_answered:,} rows, MAPE {100 * mape:.1f} %")
    return figure


def _limits(parts: Sequence[ScoredRows]) -> tuple[float, float]:
    values = np.concatenate([column for part in parts for column in (part.measured_s, part.predicted_s)])
    return float(values.min()) / 1.5, float(values.max()) * 1.5


def _draw(axis: Any, title: str, parts: Sequence[ScoredRows], limits: tuple[float, float], *, is_alone: bool) -> None:
    spread = float(np.median(np.concatenate([part.high_s / part.predicted_s for part in parts])))
    ends = np.array(limits)
    axis.fill_between(ends, ends / spread, ends * spread, color="#dddddd", linewidth=0, label="90 % interval")
    axis.plot(ends, ends, color="#555555", linewidth=1)
    groups: dict[str, list[ScoredRows]] = {}
    for part in parts:
        groups.setdefault(part.device, []).append(part)
    for index, (device, own) in enumerate(groups.items()):
        measured = np.concatenate([part.measured_s for part in own])
        predicted = np.concatenate([part.predicted_s for part in own])
        chosen = _sample(len(measured))
        axis.scatter(
            measured[chosen],
            predicted[chosen],
            s=14 if is_alone else 2,
            alpha=0.8 if is_alone else 0.25,
            color=_COLOURS[index % len(_COLOURS)],
            marker=_MARKERS[index // len(_COLOURS) % len(_MARKERS)],
            linewidths=0,
            label=device,
        )
    axis.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
    if title:
        axis.set_title(f"{title}: {_median_error(parts)}", fontsize=9)
    if is_alone:
        axis.legend(fontsize=8, frameon=False)


def _sample(count: int) -> Any:
    if count <= _MAX_POINTS:
        return slice(None)
    return np.random.default_rng(_SEED).choice(count, _MAX_POINTS, replace=False)


def _median_error(parts: Sequence[ScoredRows]) -> str:
    errors = np.concatenate([np.abs(part.predicted_s / part.measured_s - 1.0) for part in parts])
    return f"median error {100 * float(np.median(errors)):.0f} %"
