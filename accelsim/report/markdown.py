"""A view as Markdown: its tables as tables, the rest as paragraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from accelsim.files.formats import visible
from accelsim.report.listing import Listing


def markdown(view: RenderableType) -> str:
    """A view of `accelsim.report` as Markdown text (GitHub's tables).

    Args:
        view: Texts, listings and grids, in groups and panels.
    """
    return "\n\n".join(block for block in _blocks(view) if block) + "\n"


def _blocks(view: RenderableType) -> Iterator[str]:
    if isinstance(view, Group):
        for member in view.renderables:
            yield from _blocks(member)
    elif isinstance(view, Panel):
        yield f"## {_cell(view.title or '')}"
        yield from _blocks(view.renderable)
    elif isinstance(view, Listing):
        yield _table(view.headers, [header in view.right for header in view.headers], view.rows)
    else:
        yield _plain_table(view) if isinstance(view, Table) else _text(str(view))


def _plain_table(view: Table) -> str:
    columns = [list(column.cells) for column in view.columns]
    headers = [column.header for column in view.columns]
    return _table(headers, [False] * len(headers), list(zip(*columns, strict=True)))


def _table(
    headers: Iterable[object], is_right: Sequence[bool], rows: Iterable[Sequence[object]]
) -> str:
    rule = ["---:" if right else "---" for right in is_right]
    titles, *cells = ([_cell(cell) for cell in row] for row in (headers, *rows))
    lines = [titles, rule, *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: object) -> str:
    text = cell.plain if isinstance(cell, Text) else str(cell)
    return _text(text).replace("|", "\\|").replace("\n", "<br>")


def _text(text: str) -> str:
    """Text whose signs of HTML are shown, not obeyed."""
    return escape(visible(text).strip(), quote=False)
