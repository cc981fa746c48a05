"""A chart of a result as a picture, drawn by matplotlib where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from accelsim.errors import InvalidValueError
from accelsim.files.formats import visible
from accelsim.files.output import write_file
from accelsim.frozen import frozen


@frozen
class Bars:
    """Bars of one figure.

    Attributes:
        title: Of the chart.
        axis: What the bars say, with its unit.
        labels: Of each bar.
        values: Of each bar; 0 where unknown.
        ends: Low and high end of each one's interval, its value where it has none; empty for none.
    """

    title: str
    axis: str
    labels: Sequence[str]
    values: Sequence[float]
    ends: Sequence[tuple[float, float]] = ()


def check_chart(path: Path) -> None:
    """Refuse a picture that cannot be drawn here, before any work is done.

    Raises:
        InvalidValueError: If matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        remedy = "Run: pip install matplotlib, or write .html, .md, .csv or .json."
        raise InvalidValueError("out", str(path), "a format that can be written here", remedy)


def write_chart(path: Path, bars: Bars, *, force: bool = False) -> None:
    """Write a chart as PNG.

    Args:
        path: File to write.
        bars: What it shows.
        force: Whether an existing file may be replaced.

    Raises:
        OutputError: If the file exists or cannot be written.
    """
    from matplotlib.figure import Figure

    count = len(bars.labels)
    drawing = Figure(figsize=(8, 1.2 + 0.35 * count), layout="constrained")
    axes = drawing.subplots()
    whiskers = [
        (value - low, high - value)
        for value, (low, high) in zip(bars.values, bars.ends, strict=bool(bars.ends))
    ]
    spread = list(zip(*whiskers, strict=True)) or None
    axes.barh(range(count), bars.values, xerr=spread, capsize=3, color="#4477aa")
    axes.set_yticks(range(count), [visible(name).replace("$", r"\$") for name in bars.labels])
    axes.invert_yaxis()
    axes.set_xlabel(bars.axis)
    axes.set_title(visible(bars.title).replace("$", r"\$"))
    write_file(path, lambda temporary: drawing.savefig(temporary, format="png"), force=force)
