"""Where a command's result goes: a format, and the terminal or a file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from accelsim.cli.entry import WRITTEN, tell
from accelsim.cli.options import with_help
from accelsim.cli.progress import Report, progress_bar
from accelsim.cli.report_file import check_report, command_text
from accelsim.errors import InvalidValueError, OutputError
from accelsim.files.formats import OutputFormat
from accelsim.frozen import frozen
from accelsim.option import option
from accelsim.plain import Rows
from accelsim.result import Result

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from accelsim.capacity.assignment import Assignment
    from accelsim.report.chart import Bars
    from accelsim.report.page import Page

T = TypeVar("T")
R = TypeVar("R", bound=Result)
#: Width of tables that go to a file or a pipe.
_FILE_WIDTH = 100
#: Text of tables is shown as it is.
_PLAIN: Mapping[str, Any] = dict.fromkeys(("markup", "emoji", "highlight"), False)
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
        if self.picture is not None:
            from accelsim.report.chart import check_chart

            check_chart(self.picture)

    def progress(
        self, title: str, unit: str = "", *, is_shown: bool = True
    ) -> AbstractContextManager[Report]:
        """A progress bar of work that takes long; nothing where quiet."""
        return progress_bar(title, unit=unit, quiet=self.quiet or not is_shown)

    def emit(
        self,
        result: T,
        view: Callable[[T], RenderableType] | str,
        *,
        rows: Rows | None = None,
        columns: Sequence[str] = (),
        note: str = "",
        page: Callable[[Any, str], Page] | None = None,
        chart: Callable[[], Bars] | None = None,
    ) -> None:
        """Write a result in the chosen format, and its page where one is wanted.

        Args:
            result: What JSON holds, or a result, whose plain values it holds.
            view: Makes the table, called for tables only; or the columns that it shows of the rows.
            rows: What CSV holds, where that is not the result.
            columns: CSV columns to write even without rows.
            note: What a reader of the table should know; left out when quiet.
            page: Makes the page of the plain values and the command; `result_page` where None.
            chart: Makes what a picture shows.
        """
        data: Any = result.to_dict() if isinstance(result, Result) else result
        flat = rows if rows is not None else [data] if isinstance(data, Mapping) else data
        if self.report is not None:
            self._write_page(data, self.report, page)
        if self.picture is not None:
            self._draw_chart(self.picture, chart)
        elif self.output_format is OutputFormat.JSON:
            from accelsim.files.formats import json_text

            self._write(json_text(data))
        elif self.output_format is OutputFormat.CSV:
            from accelsim.files.formats import csv_text

            self._write(csv_text(flat, columns))
        else:
            from accelsim.report.listing import Listing

            self._draw(Listing.of(view, flat) if isinstance(view, str) else view(result), note)

    def emit_learned(
        self,
        result: R,
        view: Callable[[R], RenderableType],
        plain: Result | None,
        **how: Any,
    ) -> None:
        """Write a result, and before it what the user's own runs changed of it.

        Args:
            result: The result.
            view: Makes its table.
            plain: The result without those runs; None where none were asked for.
            how: What else `emit` takes.
        """
        if plain is None:
            self.emit(result, view, **how)
            return
        from rich.console import Group

        from accelsim.report.learning import changes, changes_view

        changed = changes(plain.metrics, result.metrics)

        def table(_: object) -> RenderableType:
            return Group(changes_view(changed), "", view(result))

        self.emit(result.to_dict() | {"learned": changed}, table, **how)

    def _write_page(self, data: Any, path: Path, page: Callable[[Any, str], Page] | None) -> None:
        from accelsim.files.formats import plain_values
        from accelsim.report.page import write_page
        from accelsim.report.result_page import result_page

        with self.progress("writing the page"):
            drawn = (page or result_page)(plain_values(data), command_text())
            write_page(drawn, path, force=self.force)
        self.wrote(path, "; open it in a browser")

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
    def picture(self) -> Path | None:
        """The file where it is a picture."""
        is_picture = self.out is not None and self.out.suffix.lower() == ".png"
        return self.out if is_picture else None

    def _draw_chart(self, path: Path, chart: Callable[[], Bars] | None) -> None:
        from accelsim.report.chart import write_chart

        if chart is None:
            allowed = "a name ending in .json, .csv, .md or .txt"
            raise InvalidValueError("out", str(path), allowed, "This command has no chart.")
        write_chart(path, chart(), force=self.force)
        self.wrote(path)

    def _write(self, text: str) -> None:
        if self.out is None:
            _print(text)
            return
        from accelsim.files.output import write_text

        write_text(self.out, text, force=self.force)
        self.wrote(self.out)

    def _draw(self, view: RenderableType, note: str) -> None:
        if self.output_format is OutputFormat.MARKDOWN:
            from accelsim.report.markdown import markdown

            self._write(markdown(view))
            return
        from rich.console import Console

        if self.out is None and sys.stdout is not None and sys.stdout.isatty():
            _show(Console(**_PLAIN), view)
        else:
            self._write(_plain_text(view, self.out is None))
        if self.out is None:
            self.note(note)


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
        name, writer = values.popitem()
        writer = _with_page(_named_format(writer))
        if hands_over and writer.out is not None and not writer.out.suffix:
            writer = replace(writer, out=None, folder=writer.out)
        writer.check()
        command(**{name: writer}, **values)

    output, *others = signature(command, eval_str=True).parameters.values()
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*others, output)]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return with_help(run)


#: `with_output` of a command whose result can be carried out.
with_handover = partial(with_output, hands_over=True)


def _named_format(writer: ResultWriter) -> ResultWriter:
    """The writer of the format that a file's name ends in, where none was asked for."""
    suffix = "" if writer.out is None else writer.out.suffix.lower().removeprefix(".")
    if writer.output_format is OutputFormat.TABLE and suffix in {"json", "csv", "md"}:
        return replace(writer, output_format=OutputFormat(suffix))
    return writer


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
    except BrokenPipeError:
        # the reader has gone: nothing more to say, also not when the interpreter flushes at exit
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
        segment if segment.control else Segment(visible(segment.text), segment.style)
        for segment in console.render(view)
    ]
    console.print(Segments(drawn), end="")


def _plain_text(view: RenderableType, is_piped: bool) -> str:
    """A table without colour or blanks at line ends; a pipe keeps the width that the user's
    environment names.
    """
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "") if is_piped else ""
    width = int(columns) if columns.isdigit() and int(columns) > 0 else _FILE_WIDTH
    console = Console(
        file=io.StringIO(), width=width, no_color=True, force_terminal=False, **_PLAIN
    )
    with console.capture() as captured:
        _show(console, view)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))
