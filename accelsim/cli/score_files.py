"""Files that ``accelsim validate`` writes beside its result: every row, the report, and plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from accelsim.validation import Scoreboard

__all__ = ["REPORT_NAME", "ScoreFiles", "plot_formats"]

#: File name of a report, without its suffix.
REPORT_NAME: Final = "ACCURACY"
#: Package that writes each kind of plot.
_PLOTTERS: Final = {"png": "matplotlib", "html": "plotly"}


def plot_formats(text: str) -> tuple[str, ...]:
    """Kinds of plots of a list like "png,html".

    Raises:
        InvalidValueError: If one is unknown, or there is none.
    """
    from accelsim.errors import InvalidValueError

    names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not names or not set(names) <= set(_PLOTTERS):
        raise InvalidValueError("--plots-format", text, "png, html, or both as png,html")
    return names


@dataclass(frozen=True, slots=True)
class ScoreFiles:
    """What is asked for.

    Attributes:
        rows: CSV file of every row; None for none.
        report: Folder of the report; None for none.
        plots: Folder of the plots; None for none.
        formats: Kinds of plots.
        force: Whether existing files may be replaced.
    """

    rows: Path | None
    report: Path | None
    plots: Path | None
    formats: tuple[str, ...]
    force: bool

    def check(self) -> None:
        """Refuse what cannot be written before anything is scored.

        Raises:
            OutputError: If a folder is missing or a file exists.
            MissingDependencyError: If what draws the plots is not installed.
        """
        from importlib.util import find_spec

        from accelsim.errors import MissingDependencyError, OutputError
        from accelsim.report.output import check_output

        if self.rows is not None:
            check_output(self.rows, force=self.force)
        for folder in (self.report, self.plots):
            if folder is not None and not folder.is_dir():
                raise OutputError(f"{str(folder)!r} is not a folder. Create it first.")
        if self.report is not None:
            for suffix in ("md", "json"):
                check_output(self.report / f"{REPORT_NAME}.{suffix}", force=self.force)
        for name in self.formats if self.plots is not None else ():
            if find_spec(_PLOTTERS[name]) is None:
                raise MissingDependencyError(_PLOTTERS[name], "plots")

    def write(self, board: Scoreboard, found: Mapping[str, Any]) -> None:
        """Write everything that was asked for.

        Args:
            board: A validation's result.
            found: The same as plain data.
        """
        from accelsim.report.formats import csv_blocks, json_text
        from accelsim.report.output import write_text
        from accelsim.validation import markdown, row_columns, row_names

        if self.rows is not None:
            write_text(
                self.rows, csv_blocks(row_names(board), row_columns(board)), force=self.force
            )
        if self.report is not None:
            write_text(self.report / f"{REPORT_NAME}.json", json_text(found), force=self.force)
            write_text(self.report / f"{REPORT_NAME}.md", markdown(found), force=self.force)
        if self.plots is not None:
            self._draw(board, self.plots)

    def _draw(self, board: Scoreboard, folder: Path) -> None:
        if "png" in self.formats:
            from accelsim.report.accuracy_figures import write_parity_plots

            write_parity_plots(board, folder, force=self.force)
        if "html" in self.formats:
            from accelsim.report.accuracy_pages import write_parity_pages

            write_parity_pages(board, folder, force=self.force)
