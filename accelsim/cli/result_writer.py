"""Where a command's result goes: a format, and the terminal or a file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from accelsim.cli.entry import WRITTEN, tell
from accelsim.cli.options import with_help
from accelsim.cli.progress import progress_bar
from accelsim.cli.report_file import check_report, command_text
from accelsim.errors import InvalidValueError, OutputError
from accelsim.files.formats import OutputFormat
from accelsim.frozen import frozen
from accelsim.option import option
from accelsim.plain import Document, Values

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from accelsim.capacity.assignment import Assignment
    from accelsim.report.chart import Bars
    from accelsim.report.page import Page
    from accelsim.result import Result

#: Width of tables that go to a file or a pipe.
_FILE_WIDTH = 100
#: Endings of formats that a table of text is not.
_OTHER_FORMATS = frozenset(
    (".pdf", ".svg", ".jpg", ".jpeg", ".xls", ".xlsx", ".parquet", ".yaml", ".yml", ".xml")
)


@frozen
class ResultWriter:
    """Writes one result.

    Attributes:
        folder: Where what carries it out is written, which `--out` of some commands names.
    """

    output_format: OutputFormat = option(
        "Format of the result.", OutputFormat.TABLE, flags="--format"
    )
    out: Path | None = option(
        "Write the result to this new file. Its ending sets the format: json, "
        "csv, md, html, png, else a table. For plan, serve and train, a name "
        "without an ending is a folder with what carries it out: engine lines, "
        "trainers' settings, SkyPilot.",
        metavar="FILE",
    )
    report: Path | None = option(
        "Also write a page (HTML): the decision, figures, their data and sources.", metavar="FILE"
    )
    force: bool = option("Let --out and --report replace an existing file.", False)
    quiet: bool = option("Print nothing but the result.", False, flags="--quiet -q")
    folder: Path | None = None

    def check(self) -> None:
        """Refuse a bad output path, or a missing library, before any work is done.

        Raises:
            InvalidValueError: If the result and its page are one file, or the file's name ends in
                another format's.
            MissingDependencyError: If a page is wanted and plotly is not installed.
            OutputError: If a file or a folder with files exists, or cannot be written.
        """
        if self.folder is not None:
            from accelsim.files.output import check_folder

            check_folder(self.folder, force=self.force)
        if self.out is not None:
            from accelsim.files.output import check_output

            if self.out.suffix.lower() in _OTHER_FORMATS:
                allowed = "a name ending in .json, .csv, .md, .html, .png or .txt"
                raise InvalidValueError("out", str(self.out), allowed)
            check_output(self.out, force=self.force)
        check_report(self.report, self.out, force=self.force)
        if self.is_picture:
            from accelsim.report.chart import check_chart

            check_chart(self.out)  # type: ignore[arg-type]

    @property
    def wants_rows(self) -> bool:
        """Whether the result is written as CSV."""
        return self.output_format is OutputFormat.CSV

    def emit(
        self,
        data: Values | Sequence[Values],
        view: Callable[[], RenderableType] | str,
        *,
        rows: Sequence[Values] | None = None,
        columns: Sequence[str] = (),
        note: str = "",
        page: Callable[[], Page] | None = None,
        chart: Callable[[], Bars] | None = None,
    ) -> None:
        """Write a result in the chosen format, and its page where one is wanted.

        Args:
            data: What JSON holds.
            view: Makes the table, called for tables only; or the columns that it shows of the rows.
            rows: What CSV holds, where that is not `data`.
            columns: CSV columns to write even without rows.
            note: What a reader of the table should know; left out when quiet.
            page: Makes the page; that of `data` where None.
            chart: Makes what a picture shows.
        """
        flat = rows if rows is not None else [data] if isinstance(data, Mapping) else data
        if self.report is not None:
            self._write_page(data, page)
        if self.is_picture:
            self._draw_chart(chart)
        elif self.output_format is OutputFormat.JSON:
            from accelsim.files.formats import json_text

            self._write(json_text(data))
        elif self.output_format is OutputFormat.CSV:
            from accelsim.files.formats import csv_text

            self._write(csv_text(flat, columns))
        elif self.output_format is OutputFormat.MARKDOWN:
            from accelsim.report.markdown import markdown

            self._write(markdown(_view(view, flat)))
        else:
            self._draw(_view(view, flat), note)

    def _write_page(self, data: Values | Sequence[Values], page: Callable[[], Page] | None) -> None:
        from accelsim.files.formats import plain_values
        from accelsim.report.page import write_page
        from accelsim.report.result_page import result_page

        if self.report is not None:
            with progress_bar("writing the page", quiet=self.quiet):
                made = page() if page else result_page(plain_values(data), command_text())
                write_page(made, self.report, force=self.force)
            self.wrote(self.report, "; open it in a browser")

    def hand_over(
        self, assignments: Sequence[Assignment], beside: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Write what carries a recommendation out, where a folder is asked for.

        Args:
            assignments: What runs where.
            beside: Texts of further files by name.
        """
        if self.folder is None:
            return
        from accelsim.handover.folder import hand_over

        hand_over(assignments, self.folder, command_text(), beside, force=self.force)
        self.wrote(self.folder, "; start with its README.md")

    def wrote(self, path: Path, hint: str = "") -> None:
        """Note a file that was written, and what to do with it."""
        WRITTEN.get([]).append(str(path))
        self.note(f"wrote {path}{hint}")

    def note(self, text: str) -> None:
        """Tell the user something beside the result, on standard error."""
        if not self.quiet and text:
            tell(text, dim=True)

    @property
    def is_picture(self) -> bool:
        """Whether the file is a picture."""
        return self.out is not None and self.out.suffix.lower() == ".png"

    def _draw_chart(self, chart: Callable[[], Bars] | None) -> None:
        from accelsim.report.chart import write_chart

        if self.out is None or chart is None:
            allowed = "a name ending in .json, .csv, .md or .txt"
            raise InvalidValueError("out", str(self.out), allowed, "This command has no chart.")
        write_chart(self.out, chart(), force=self.force)
        self.wrote(self.out)

    def _write(self, text: str) -> None:
        if self.out is None:
            _print(text)
            return
        from accelsim.files.output import write_text

        write_text(self.out, text, force=self.force)
        self.wrote(self.out)

    def _draw(self, view: RenderableType, note: str) -> None:
        from rich.console import Console

        if self.out is None and sys.stdout is not None and sys.stdout.isatty():
            _show(Console(markup=False, emoji=False, highlight=False), view)
        else:
            self._write(_plain_text(view, self.out is None))
        if self.out is None:
            self.note(note)


def with_changes(
    result: Result, view: Callable[[], RenderableType], plain: Result | None
) -> tuple[Document, Callable[[], RenderableType]]:
    """Data and table of a result, with what the user's own runs changed of it.

    Args:
        result: The result.
        view: Makes its table.
        plain: The same without those runs; None where none were asked for.
    """
    data = result.to_dict()
    if plain is None:
        return data, view
    from rich.console import Group

    from accelsim.report.learning import changes, changes_view

    changed = changes(plain.metrics, result.metrics)
    return data | {"learned": changed}, lambda: Group(changes_view(changed), "", view())


def with_output(command: Callable[..., None], *, hands_over: bool = False) -> Callable[..., None]:
    """Give a command its flags, and those that say where its result goes.

    Args:
        command: Takes a `ResultWriter` as its first argument, whose path was checked.
        hands_over: Whether ``--out`` may name a folder of what carries the result out.

    Returns:
        The command with ``--format``, ``--out``, ``--force`` and ``--quiet`` after its own flags.
    """

    @wraps(command)
    def run(**values: Any) -> None:
        first, writer = values.popitem()
        writer = _with_page(_named_format(writer))
        if hands_over and writer.out is not None and not writer.out.suffix:
            writer = replace(writer, out=None, folder=writer.out)
        writer.check()
        command(**{first: writer}, **values)

    output, *own = signature(command, eval_str=True).parameters.values()
    asked = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*own, output)]
    run.__signature__ = Signature(asked)  # type: ignore[attr-defined]
    return with_help(run)


#: `with_output` of a command whose result can be carried out.
with_handover = partial(with_output, hands_over=True)


def _view(view: Callable[[], RenderableType] | str, rows: Sequence[Values]) -> RenderableType:
    """The table of a result."""
    if not isinstance(view, str):
        return view()
    from accelsim.report.listing import Listing

    return Listing.of(view, rows)


def _named_format(writer: ResultWriter) -> ResultWriter:
    """The writer of the format that a file's name ends in, where none was asked for."""
    suffix = "" if writer.out is None else writer.out.suffix.lower().removeprefix(".")
    is_named = suffix in {OutputFormat.JSON, OutputFormat.CSV, OutputFormat.MARKDOWN}
    if not is_named or writer.output_format is not OutputFormat.TABLE:
        return writer
    return replace(writer, output_format=OutputFormat(suffix))


def _with_page(writer: ResultWriter) -> ResultWriter:
    """The writer of a page, and of the table to the terminal, where ``--out`` names a page.

    Raises:
        InvalidValueError: If two pages are asked for.
    """
    if writer.out is None or writer.out.suffix.lower() not in {".html", ".htm"}:
        return writer
    if writer.report is not None:
        allowed = "no page beside that of --report"
        raise InvalidValueError("out", str(writer.out), allowed, "Give one of them.")
    return replace(writer, out=None, report=writer.out)


def _print(text: str) -> None:
    """Write to standard output, which may be closed or a full disk.

    Raises:
        OutputError: If it cannot be written. A reader that has gone ends the process, with exit
            code 0.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed. Open it, or add --out FILE.")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (
        BrokenPipeError
    ):  # the reader has gone: nothing more to say, also not when the interpreter flushes at exit
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  (held open until exit)
        os._exit(0)
    except OSError as error:
        # What is still buffered would fail again, with a traceback, when the interpreter exits.
        sys.stdout = None
        raise OutputError(
            f"standard output cannot be written: {error.strerror}. Add --out FILE."
        ) from None


def _show(console: Console, view: RenderableType) -> None:
    """Print a view; control characters in names of other people's are shown, not obeyed."""
    from rich.segment import Segment, Segments

    from accelsim.files.formats import visible

    drawn = [
        part if part.control else Segment(visible(part.text), part.style)
        for part in console.render(view)
    ]
    console.print(Segments(drawn), end="")


def _plain_text(view: RenderableType, is_piped: bool) -> str:
    """A table without colour or blanks at line ends; a pipe keeps the width that the user's
    environment names.
    """
    from rich.console import Console

    named = os.environ.get("COLUMNS", "") if is_piped else ""
    width = int(named) if named.isdigit() and int(named) > 0 else _FILE_WIDTH
    console = Console(
        file=io.StringIO(),
        width=width,
        no_color=True,
        force_terminal=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        _show(console, view)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))
