"""A progress bar on a terminal's standard error; in a pipe or a log a line every few seconds of
long work; nothing where the user asked for quiet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol, cast

from accelsim.plain import Document

_WIDEST_LABEL = 60
#: Width from which there is room for the bar and what is being done.
_ROOMY = 80
#: Seconds before the first line in a pipe, and between two.
_FIRST_LINE_S, _LINE_S = 2.0, 10.0


class Report(Protocol):
    """Tells the bar how far the work has come."""

    def __call__(
        self, done: float, total: float | None, label: str, title: str | None = None
    ) -> None:
        """Set the bar.

        Args:
            done: Work done.
            total: All of it; None while it is unknown.
            label: What is being done now.
            title: What the bar is about from now on; as before where None.
        """


def _lines(title: str, unit: str) -> Report:
    """Writes a line of how far the work has come after `_FIRST_LINE_S`, then each `_LINE_S`."""
    start = monotonic()
    last = start + _FIRST_LINE_S - _LINE_S

    def report(done: float, total: float | None, label: str, about: str | None = None) -> None:
        nonlocal last
        now = monotonic()
        if now - last < _LINE_S:
            return
        last = now
        of_all = "" if total is None else f" of {total:,.0f}"
        counted = f"{done:,.0f}{of_all} {unit}".rstrip() if unit else label
        sys.stderr.write(f"{about or title}: {counted}, {now - start:.0f} s\n")
        sys.stderr.flush()

    return cast("Report", report)


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
        yield lambda _done, _total, _label, _title=None: None
        return
    if not sys.stderr.isatty():
        yield _lines(title, unit)
        return
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
    title_column, count_column, label_column = (
        TextColumn(f"{{task.{field}}}", markup=False)
        for field in ("description", "fields[count]", "fields[label]")
    )
    left = (Clock(compact=True), TextColumn("{task.fields[left]}", style="dim"))
    counted = (count_column,) if unit else ()
    is_roomy = console.width >= _ROOMY  # a narrow terminal has room for what counts
    wide = (title_column, BarColumn(bar_width=20), *counted, *left, label_column)
    columns = wide if is_roomy else (title_column, *counted, left[0])
    with Progress(*columns, console=console, transient=True, auto_refresh=ticks) as bar:
        words = f" {unit}" if is_roomy else ""
        fields: Document = {"label": "", "count": "", "left": ""}
        task = bar.add_task(title, total=None, **fields)

        def report(done: float, total: float | None, label: str, title: str | None = None) -> None:
            nonlocal task
            if title is not None and title != bar.tasks[-1].description:
                bar.remove_task(task)  # a new clock: the speed of other work says nothing of this
                task = bar.add_task(title, total=total, **fields)
            shown: Document = {"label": label[:_WIDEST_LABEL], "count": "", "left": ""}
            if total is not None:
                shown |= {"count": f"{done:,.0f}/{total:,.0f}{words}", "left": "left"}
            bar.update(task, completed=done, total=total, refresh=not ticks, **shown)

        yield report
