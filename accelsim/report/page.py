"""Reports as pages: one HTML file that holds its figures, their data as tables, and their script.

The page opens from disk and asks no server for anything; its content security policy forbids it.
Whatever stands in a name is escaped. Figures need plotly (extra `report`).
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import compress

from accelsim import __version__
from accelsim.errors import MissingDependencyError
from accelsim.files.formats import visible
from accelsim.files.output import write_text
from accelsim.frozen import frozen
from accelsim.plain import Document, Rows, Values
from accelsim.quantity import duration, number, say
from accelsim.report.columns import Cell, columns

if TYPE_CHECKING:
    from markupsafe import Markup

_SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_TRANSPARENT = "rgba(0,0,0,0)"
#: Level of zlib: higher ones save 1 % in twice the time.
_PACKING = 5
_GRID = "#d5dce2"
_HEIGHT = 460
#: Name of a trace that a phone has room for in one line.
_WIDEST_NAME = 40
#: Decades below which a logarithmic axis has ticks at 2 and 5, and decades with ticks beside those
#: of the data, as sliders move these.
_SHORT_DECADES = 3
_SPARE_DECADES = 3
#: Rows of a table at most.
MAX_ROWS = 200


@frozen
class DataTable:
    """What a figure shows, in numbers.

    Attributes:
        titles: Column titles; those of numbers start with ``>``.
        rows: Texts and numbers.
    """

    titles: tuple[str, ...]
    rows: Sequence[Sequence[str | Cell]]

    @classmethod
    def of(
        cls, column_text: str, rows: Rows, *, most: int = MAX_ROWS, summed: str = ""
    ) -> DataTable:
        """The first rows under columns, and one that says how many more there are.

        Args:
            column_text: The columns, as `accelsim.report.columns.columns` takes them.
            rows: Figures by name.
            most: Rows shown.
            summed: Figure whose sum over the others is said; none if empty.
        """
        shown = columns(column_text)
        cells = [[column.cell(row) for column in shown] for row in rows[:most]]
        if others := rows[most:]:
            total = {summed: sum(row.get(summed) or 0.0 for row in others)}
            sums = [column.cell(total) if column.figure == summed else "" for column in shown[1:]]
            cells.append([f"{len(others):,} more", *sums])
        return cls(tuple(column.mark.strip("~") + column.title for column in shown), cells)


@frozen
class Section:
    """A part of a page: a table, and the figure drawn from it.

    Attributes:
        name: Id of its table.
        title: Heading.
        table: Its data.
        text: What it says, and what it leaves out.
        figure: Data and layout in plotly's terms; None for a table alone.
        calculator: What the page's sliders compute its table and figure from again; None where
            nothing moves.
    """

    name: str
    title: str
    table: DataTable
    text: str = ""
    figure: Document | None = None
    calculator: Values | None = None

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        columns: str,
        rows: Rows,
        text: str = "",
        figure: Document | None = None,
        **limits: Any,
    ) -> Section:
        """A part with the first rows under columns; see `DataTable.of`, which takes the limits."""
        return cls(name, title, DataTable.of(columns, rows, **limits), text, figure)


@frozen
class Page:
    """A report.

    Attributes:
        title: Heading.
        decision: What it comes to, in sentences; the first is the answer.
        sections: Its parts in order.
        command: Command that makes it again.
        warnings: What to know before trusting it.
    """

    title: str
    decision: tuple[str, ...]
    sections: tuple[Section, ...]
    command: str
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        title: str,
        decision: Iterable[str],
        sections: Iterable[Section | None],
        command: str,
        warnings: Iterable[str] = (),
    ) -> Page:
        """A page of the sections that have something to show, each warning once."""
        shown = (
            section for section in sections if section and (section.table.rows or section.figure)
        )
        return cls(title, tuple(decision), tuple(shown), command, tuple(dict.fromkeys(warnings)))


def write_page(page: Page, path: Path, *, force: bool = False) -> None:
    """Write a page as one file.

    Args:
        page: The report.
        path: HTML file.
        force: Whether an existing file may be replaced.

    Raises:
        MissingDependencyError: If plotly is not installed.
        OutputError: If the file exists or cannot be written.
    """
    write_text(path, page_html(page), force=force)


def page_html(page: Page) -> str:
    """A page as HTML text.

    Raises:
        MissingDependencyError: If plotly is not installed.
    """
    from jinja2 import Environment
    from markupsafe import Markup

    environment = Environment(autoescape=True, finalize=_shown, trim_blocks=True)
    source = files(__package__)
    template = source.joinpath("page.html").read_text("utf-8")
    fragments, drawing = _fragments(page.sections)
    is_used = {
        "page.js": any(section.calculator is not None for section in page.sections),
        "draw.js": bool(drawing),
    }
    scripts = [source.joinpath(name).read_text("utf-8") for name in is_used if is_used[name]]
    return environment.from_string(template).render(
        page=page,
        sections=zip(page.sections, fragments, strict=True),
        scripts=[Markup(script) for script in scripts],  # noqa: S704  (the page's own)
        packed=_packed(drawing),
        script_hashes=_hashes(scripts + drawing),
        # plotly fills an empty style element by its own rules, and sets styles of elements
        style_hashes=_hashes([*_STYLE.findall(template), ""]),
        as_data=_as_data,
        version=__version__,
    )


def _hashes(texts: Iterable[str]) -> Markup:
    """What a content security policy lets run: these texts alone (W3C, CSP level 3)."""
    from markupsafe import Markup

    digests = (b64encode(sha256(text.encode()).digest()).decode() for text in texts)
    return Markup(" ".join(f"'sha256-{digest}'" for digest in digests) or "'none'")  # noqa: S704


def _packed(scripts: Sequence[str]) -> str:
    """Scripts as `draw.js` unpacks them: a third of their size."""
    return b64encode(compress(json.dumps(scripts).encode(), _PACKING)).decode() if scripts else ""


def _as_data(value: object) -> Markup:
    """JSON that stands in a script element and cannot end it (OWASP, XSS prevention)."""
    from markupsafe import Markup

    text = json.dumps(value, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704  (no sign of markup is left)


def _fragments(sections: Iterable[Section]) -> tuple[list[Markup], list[str]]:
    """Figures as HTML, empty where a section has none; and their scripts, plotly's own of 4.8 MB
    first.
    """
    from markupsafe import Markup

    try:
        from plotly.graph_objects import Figure
        from plotly.io import to_html
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingDependencyError("plotly", "report") from None
    config = {"displaylogo": False, "responsive": True}
    fragments: list[Markup] = []
    scripts: list[str] = []
    for section in sections:
        text = ""
        if section.figure is not None:
            text = to_html(
                Figure(section.figure),  # brings what a template's name stands for
                config,
                full_html=False,
                div_id=f"figure-{section.name}",
                include_plotlyjs=False,
            )
            scripts += _SCRIPT.findall(text)
        fragments.append(Markup(_SCRIPT.sub("", text)))  # noqa: S704  (plotly's own)
    return fragments, [get_plotlyjs(), *scripts] if scripts else []


def _shown(value: object) -> object:
    """Control characters of names as escapes; markup as it is."""
    return visible(value) if type(value) is str else value


def label(text: str) -> str:
    """A name as plotly may draw it: its pseudo-HTML is shown, not obeyed."""
    return escape(visible(text))


def trace(
    name: str,
    x: Iterable[object],
    y: Iterable[object],
    mode: str = "markers",
    text: Iterable[object] | None = None,
    **attributes: object,
) -> Document:
    """Points or a line of a figure.

    Args:
        name: What they are; shown, not obeyed, as their texts are.
        x: Of each.
        y: Of each.
        mode: "markers", "lines" or both.
        text: Of each; none if None.
        attributes: What else plotly knows of them.
    """
    texts = {} if text is None else {"text": [label(str(point)) for point in text]}
    shown = label(name).replace(", ", ",<br>" if len(name) > _WIDEST_NAME else ", ")
    drawn = {"type": "scatter", "mode": mode, "name": shown, "x": list(x), "y": list(y)}
    return drawn | attributes | texts


def points(
    name: str,
    rows: Iterable[Values],
    x: str,
    y: str,
    mode: str = "markers",
    text: str = "",
    **attributes: object,
) -> Document:
    """Rows as points of a figure.

    Args:
        name: What they are.
        rows: Figures by name.
        x: Figure of the axis that lies.
        y: Of the one that stands.
        mode: See `trace`.
        text: Of a point, as `accelsim.quantity.say` takes it; none if empty.
        attributes: See `trace`.
    """
    rows = list(rows)
    across, up = ([row[figure] for row in rows] for figure in (x, y))
    texts = [say(text, row) for row in rows] if text else None
    return trace(name, across, up, mode, texts, **attributes)


def limit_line(name: str, x: Iterable[float], y: Iterable[float]) -> Document:
    """A limit across what is drawn."""
    return trace(name, x, y, "lines", line={"dash": "dash", "color": "#d65f5f"})


def figure(
    data: Sequence[Document], x: str = "", y: str = "", log: str = "", **layout: object
) -> Document:
    """A figure in the colours of the page.

    Args:
        data: Traces.
        x: Title of the axis that lies, with its unit.
        y: Title of the one that stands.
        log: Axes that are logarithmic, as "xy"; those whose title begins with a time are of
            seconds.
        layout: What differs from the page's own layout.
    """
    defaults = {
        "template": "none",
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "height": _HEIGHT,
        "margin": {"t": 20, "r": 15, "b": 50, "l": 60},
        "hovermode": "closest",
        "modebar": {"bgcolor": _TRANSPARENT},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "xaxis": axis(x, **_log_ticks(data, "x", x) if "x" in log else {}),
        "yaxis": axis(y, **_log_ticks(data, "y", y) if "y" in log else {}),
    }
    return {"data": list(data), "layout": defaults | layout}


def _log_ticks(data: Iterable[Document], name: str, title: str) -> Document:
    """A logarithmic axis with ticks at 1, 2, 5 and 10, or at 1 and 10 where it is long."""
    values = _positive(data, name) or [1.0]
    low, high = (math.floor(math.log10(end(values))) for end in (min, max))
    steps = (1, 2, 5) if high - low < _SHORT_DECADES else (1,)
    decades = range(low - _SPARE_DECADES, high + 1 + _SPARE_DECADES)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    write = duration if "time" in title else number
    return {"type": "log", "tickvals": ticks, "ticktext": [_tick(write(tick)) for tick in ticks]}


def _positive(data: Iterable[Document], name: str) -> list[float]:
    """Numbers above 0 that traces have on an axis."""
    values = (value for drawn in data for value in drawn[name])
    return [value for value in values if isinstance(value, int | float) and value > 0]


def _tick(text: str) -> str:
    """A number with its unit, without zeros at its end."""
    digits, _, unit = text.partition(" ")
    plain = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{plain} {unit}".rstrip()


def axis(title: str, **attributes: object) -> Document:
    """An axis with its title; money has no prefixes."""
    return {
        "title": {"text": title},
        "gridcolor": _GRID,
        "automargin": True,
        "zeroline": False,
        "exponentformat": "none" if "USD" in title else "SI",
        **attributes,
    }
