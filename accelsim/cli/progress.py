"""A progress bar on a terminal's standard error; in a pipe or a log a line every few seconds of
long work; nothing where the user asked for quiet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from accelsim.plain import Document

if TYPE_CHECKING:
    from rich.progress import Progress

_WIDEST_LABEL = 60
#: Width from which there is room for the bar and what is being done.
_ROOMY = 80
#: Seconds before the first line in a pipe, and between two.
_FIRST_LINE_S, _LINE_S = 2.0, 10.0


class Report(Protocol):
    """Tells the bar how far the work has come."""

    def __call__(
        self, count: float, total: float | None, label: str, new_title: str | None = None
    ) -> None:
        """Set the bar.

        Args:
            count: Work done.
            total: All of it; None while it is unknown.
            label: What is being done now.
            new_title: What the bar is about from now on; as before where None.
        """


def _lines(title: str, unit: str) -> Report:
    """Writes a line of how far the work has come after `_FIRST_LINE_S`, then each `_LINE_S`."""
    start = monotonic()
    last = start + _FIRST_LINE_S - _LINE_S

    def report(count: float, total: float | None, label: str, new_title: str | None = None) -> None:
        nonlocal last
        now = monotonic()
        if now - last < _LINE_S:
            return
        last = now
        of_all = "" if total is None else f" of {total:,.0f}"
        counted = f"{count:,.0f}{of_all} {unit}".rstrip() if unit else label
        sys.stderr.write(f"{new_title or title}: {counted}, {now - start:.0f} s\n")
        sys.stderr.flush()

    return report


@contextmanager
def progress_bar(
    title: str, *, unit: str = "", quiet: bool = False, ticks: bool = True
) -> Iterator[Report]:
    """A bar with the time left, or that passed where no end is known; gone when the work is done.

    Args:
        title: What the bar is about.
        unit: What is counted ("rows"); empty shows no count.
        quiet: Whether nothing is shown.
        ticks: Whether a thread draws it between reports.
    """
    if quiet or sys.stderr is None:
        yield lambda _count, _total, _label, _title=None: None
    elif not sys.stderr.isatty():
        yield _lines(title, unit)
    else:
        with _bar(unit, ticks=ticks) as bar:
            yield _bar_report(bar, title, unit, ticks=ticks)


def _bar(unit: str, *, ticks: bool) -> Progress:
    """The bar; a narrow terminal has room for what counts."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Clock(TimeRemainingColumn):
        """Time left; time passed where no end is known."""

        def render(self, task: Task) -> Text:
            if task.total is not None:
                return super().render(task)
            return Text(f"{task.elapsed or 0:.0f} s", style="progress.elapsed")

    console = Console(stderr=True)
    title, count, label = (
        TextColumn(f"{{task.{field}}}", markup=False)
        for field in ("description", "fields[count]", "fields[label]")
    )
    counted, clock = (count,) if unit else (), Clock(compact=True)
    left = TextColumn("{task.fields[left]}", style="dim")
    wide = (title, BarColumn(bar_width=20), *counted, clock, left, label)
    columns = wide if console.width >= _ROOMY else (title, *counted, clock)
    return Progress(*columns, console=console, transient=True, auto_refresh=ticks)


def _bar_report(bar: Progress, title: str, unit: str, *, ticks: bool) -> Report:
    """Tells a bar how far the work has come."""
    suffix = f" {unit}" if bar.console.width >= _ROOMY else ""
    blank: Document = {"label": "", "count": "", "left": ""}
    task = bar.add_task(title, total=None, **blank)

    def report(count: float, total: float | None, label: str, new_title: str | None = None) -> None:
        nonlocal task
        if new_title is not None and new_title != bar.tasks[-1].description:
            bar.remove_task(task)  # a new clock: the speed of other work says nothing of this
            task = bar.add_task(new_title, total=total, **blank)
        fields = {**blank, "label": label[:_WIDEST_LABEL]}
        if total is not None:
            fields |= {"count": f"{count:,.0f}/{total:,.0f}{suffix}", "left": "left"}
        bar.update(task, completed=count, total=total, refresh=not ticks, **fields)

    return report
