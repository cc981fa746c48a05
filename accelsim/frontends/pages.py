"""The live pages in a browser: a page a question, its controls beside its answer.

All that a page asks is in its address, which restores it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from time import perf_counter
from typing import Any

from nicegui import Client, app, background_tasks, ui
from nicegui.elements.mixins.value_element import ValueElement
from nicegui.events import ValueChangeEventArguments
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request

from accelsim.errors import AccelsimError
from accelsim.frontends.controls import MAIN, QUESTIONS, Control, linked
from accelsim.frontends.session import Session
from accelsim.frontends.worker import Shown
from accelsim.plain import Rows, Values, grouped
from accelsim.quantity import words, written
from accelsim.report.page import Section

_TITLES = {"device": "Device", "train": "Training", "serve": "Serving", "plan": "Plan"}
_HOST = "127.0.0.1"
#: Seconds between two looks at whether something moved, and until an answer shows its progress.
_TICK_S = 0.1
_SLOW_S = 0.4
#: A slider of counts moves by powers of two, up to this one.
_LARGEST_POWER = 16
_NAMES = ("A", "B")
#: Parts of a distribution that stand in the folded table of figures alone.
_FURTHER = frozenset(("mean", "p90", "p95", "p99.9"))
_COLOURS = ("#2f7fd6", "#e08a1e")
_STYLE = """
.metrics { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.metrics td, .metrics th { padding: .2rem .5rem; border-bottom: 1px solid #8884; text-align: left; }
.metrics .n { text-align: right; white-space: nowrap; }
.metrics small { display: block; white-space: nowrap; }
.track { position: relative; height: .9rem; min-width: 6rem; }
.track i { position: absolute; height: .35rem; top: .3rem; border-radius: 3px; opacity: .55; }
.track b { position: absolute; width: 3px; height: .9rem; }
.sides { flex-wrap: nowrap; }
.controls { width: 22rem; flex: none; gap: .2rem; }
.answer { min-width: 0; flex: 1; gap: .5rem; }
.drawn { overflow-x: auto; }
.js-plotly-plot text { fill: currentColor !important; }
.js-plotly-plot .gridlayer path, .js-plotly-plot .zerolinelayer path { stroke: #8886 !important; }
@media (max-width: 60rem) {
  .sides { flex-wrap: wrap; }
  .controls, .answer { width: 100%; flex: auto; }
}
"""


def run(port: int, files: Sequence[Path], *, show: bool) -> None:
    """Serve the pages on this machine alone until it is interrupted.

    Args:
        port: Port of 127.0.0.1.
        files: Files of learned runs that may be chosen.
        show: Whether a browser is opened.
    """
    with tempfile.TemporaryDirectory(prefix="accelsim-ui-") as folder:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[_HOST, "localhost"])
        app.add_static_files("/whole", folder)
        for question in QUESTIONS:
            _add_page(question, files, Path(folder))
        ui.page("/")(lambda: ui.navigate.to(f"/{next(iter(QUESTIONS))}"))
        ui.run(host=_HOST, port=port, title="accelsim", dark=None, show=show, reload=False)


def _add_page(question: str, files: Sequence[Path], folder: Path) -> None:
    """The page of a question."""

    def page(request: Request) -> None:
        session = Session(question, request.query_params.multi_items(), files, folder)
        ui.context.client.on_delete(session.worker.end)
        _View(session)

    ui.page(f"/{question}", title=f"accelsim: {_TITLES[question]}")(page)


class _View:
    """What a page shows of its session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        ui.add_css(_STYLE)
        with ui.header().classes("items-center q-py-xs"):
            ui.label("accelsim").classes("text-bold")
            for question, title in _TITLES.items():
                ui.link(title, f"/{question}").classes("text-white")
        for refused in session.refused:
            with ui.card().classes("bg-warning w-full").props("role=alert"):
                ui.label(refused)
        with ui.row().classes("sides w-full"):
            with ui.column().classes("controls"):
                self._switch()
                self._controls()
            with ui.column().classes("answer"):
                self._progress()
                self._answer()
        ui.timer(_TICK_S, self._look)

    def _switch(self) -> None:
        """Which of two scenarios the controls are of."""

        def second(is_on: bool) -> None:
            scenarios = self._session.scenarios
            scenarios[1:] = [dict(scenarios[0])] if is_on else []
            self._edit(int(is_on))

        two = len(self._session.scenarios) > 1
        with ui.row().classes("items-center"):
            ui.switch("Two scenarios", value=two, on_change=lambda event: second(event.value))
            self._which = ui.toggle(
                dict(enumerate(_NAMES)), value=0, on_change=lambda event: self._edit(event.value)
            )
            self._which.set_visibility(two)

    def _edit(self, which: int) -> None:
        self._session.edited, self._session.is_dirty = which, True
        self._which.set_visibility(len(self._session.scenarios) > 1)
        self._which.value = which
        self._controls.refresh()

    @ui.refreshable_method
    def _controls(self) -> None:
        """All options, by the group that they are of; those that are asked first are open."""
        values = self._session.scenarios[self._session.edited]
        for group, shown in grouped(
            self._session.known.values(), lambda control: control.group
        ).items():
            is_open = group == MAIN or any(control.name in values for control in shown)
            with ui.expansion(group, value=is_open).classes("w-full"):
                for control in shown:
                    self._control(control, values.get(control.name, control.default))

    def _control(self, control: Control, value: Any) -> None:
        """One option: a field, and a slider where it is a count or has bounds."""

        def take(event: ValueChangeEventArguments[Any]) -> None:
            self._session.set(control.name, event.value)

        label = control.name.replace("_", " ")
        field: ValueElement[Any]
        if control.kind is bool:
            field = ui.switch(label, value=bool(value), on_change=take)
        elif control.name == "scenario":
            field = ui.textarea(label, value=value, on_change=take).props(
                "autogrow input-style=font-family:monospace"
            )
        elif control.choices:
            options = dict.fromkeys([*control.choices, *([value] if value else [])])
            field = ui.select(
                list(options),
                label=label,
                value=value,
                with_input=True,
                new_value_mode="add-unique",
                clearable=True,
                on_change=take,
            )
        elif control.kind in (int, float):
            field = ui.number(label, value=value, on_change=take).props("clearable")
            self._slider(control, field)
        elif control.kind is list:
            text = "|".join(value or ())
            field = ui.input(f"{label} (several: between |)", value=text)
            field.on_value_change(
                lambda event: self._session.set(
                    control.name, control.value(event.value) if event.value else None
                )
            )
        else:
            field = ui.input(label, value=value, on_change=take).props("clearable debounce=300")
        field.classes("w-full").tooltip(control.about)

    def _slider(self, control: Control, field: ui.number) -> None:
        """A slider beside a number: over its bounds, or by powers of two."""
        low, high = control.within or (0.0, math.inf)
        if control.kind is float and math.isfinite(high):
            ui.slider(min=low, max=high, step=(high - low) / 100).bind_value(field)
            return
        if control.kind is int:
            ui.slider(
                min=0,
                max=_LARGEST_POWER,
                value=math.log2(max(field.value or 1, 1)),
                on_change=lambda event: field.set_value(2 ** int(event.value)),
            ).props(f'aria-label="{control.name}, powers of two"')

    def _progress(self) -> None:
        """How long an answer has taken, and the way to end it."""

        def cancel() -> None:
            self._session.worker.restart()
            ui.notify("Ended; what was shown stays.")

        with ui.row().classes("items-center w-full") as self._busy:
            ui.spinner()
            self._doing = ui.label()
            ui.button("Cancel", on_click=cancel).props("flat dense")
        self._busy.set_visibility(False)

    async def _look(self) -> None:
        """Answer again where something moved; show what an answer that takes long is doing."""
        session = self._session
        if session.begun_s is not None:
            took_s = perf_counter() - session.begun_s
            self._busy.set_visibility(took_s > _SLOW_S)
            self._doing.text = f"{took_s:.0f} s {session.note}"
            return
        if not session.is_dirty:
            return
        background_tasks.create(self._again(ui.context.client))

    async def _again(self, client: Client) -> None:
        await self._session.answer()
        with client:
            self._busy.set_visibility(False)
            query = linked(self._session.scenarios, self._session.known)
            ui.navigate.history.replace(f"/{self._session.question}?{query}")
            self._answer.refresh()

    @ui.refreshable_method
    def _answer(self) -> None:
        """The decision, figures with their intervals, pictures and tables, and how to repeat it."""
        session = self._session
        answers = [answer for answer in session.shown if isinstance(answer, Shown)]
        for name, answer in zip(_NAMES, session.shown, strict=False):
            _decision(answer, f"{name}: " if len(session.shown) > 1 else "")
        if not session.shown:
            ui.label("The first answer takes a second or two.")
        figures = _metrics([answer.metrics for answer in answers])
        ui.html(figures, sanitize=False).classes("w-full drawn")
        for name, answer in zip(_NAMES, answers, strict=False):
            self._sections(answer.page.sections, f"{name}: " if len(answers) > 1 else "")
        self._repeat()

    def _sections(self, sections: Sequence[Section], prefix: str) -> None:
        """Parts of a page; the first that has a picture is open, but that of a device."""
        drawn = [section for section in sections if section.figure is not None]
        is_folded = self._session.question == "device" or not drawn
        for section in sections:
            is_open = not is_folded and section is drawn[0]
            _folded(prefix + section.title, section, is_open=is_open)

    def _repeat(self) -> None:
        """The command, the scenario file, the link and the whole page."""

        async def open_page() -> None:
            try:
                file = await self._session.whole_page()
                ui.navigate.to(f"/whole/{file.name}", new_tab=True)
            except AccelsimError as error:
                ui.notify(str(error), type="warning")

        with ui.row().classes("items-center"):
            ui.button("Timeline and all pictures", on_click=open_page).props("outline")
            ui.label("The address of this page restores it.").classes("text-caption")
        for values in self._session.scenarios:
            ui.code(self._session.line(values), language="bash").classes("w-full")


def _decision(answer: Shown | str, prefix: str) -> None:
    """What an answer comes to, or why there is none."""
    if isinstance(answer, str):
        with ui.card().classes("bg-warning w-full").props("role=alert"):
            ui.label(prefix + answer)
        return
    for index, line in enumerate(answer.page.decision):
        ui.label(prefix + line).classes("" if index else "text-h6")
    for warning in answer.page.warnings:
        ui.label(f"{prefix}Note: {warning}").classes("text-caption")


def _folded(title: str, section: Section, *, is_open: bool) -> None:
    """A section of a page, made when it is opened."""
    with ui.expansion(title, value=is_open).classes("w-full") as fold:
        inside = ui.column().classes("w-full drawn")

    def fill() -> None:
        if inside.default_slot.children:
            return
        with inside:
            if section.text:
                ui.label(section.text)
            if section.figure is not None:
                ui.plotly(section.figure).classes("w-full")
            _table(section)

    fold.on_value_change(lambda event: fill() if event.value else None)
    if is_open:
        fill()


def _table(section: Section) -> None:
    """Its rows; those of numbers to the right."""
    columns = [
        {
            "name": str(index),
            "label": title.lstrip(">~"),
            "field": str(index),
            "align": "right" if title.startswith(">") else "left",
        }
        for index, title in enumerate(section.table.titles)
    ]
    rows = [{str(at): str(cell) for at, cell in enumerate(row)} for row in section.table.rows]
    ui.table(rows=rows, columns=columns, pagination=20).props("dense flat").classes("w-full")


def _metrics(answers: Rows) -> str:
    """Figures of the answers with bars of their intervals, on one axis for each figure."""
    if not answers:
        return ""
    titles = _NAMES[: len(answers)] if len(answers) > 1 else ("value",)
    heads = "".join(f"<th class=n>{title}</th>" for title in titles)
    lines = [f"<tr><th>figure</th>{heads}<th>90 % interval</th></tr>"]
    for name in dict.fromkeys(name for metrics in answers for name in metrics):
        if name.partition(".")[2] in _FURTHER:
            continue
        lines.append(_metric(name, [metrics.get(name) or {} for metrics in answers]))
    return f"<table class=metrics>{''.join(lines)}</table>"


def _metric(name: str, figures: Rows) -> str:
    """A row of a figure; empty where no answer knows it."""
    values = [figure.get("value") for figure in figures]
    if not any(value is not None for value in values):
        return ""
    cells = "".join(f"<td class=n>{escape(written(name, value))}</td>" for value in values)
    ends = [escape(_ends(name, figure)) for figure in figures if _is_ranged(figure)]
    bars = f"{_track(figures)}<small>{'; '.join(ends)}</small>"
    return f"<tr><td>{escape(words(name))}</td>{cells}<td>{bars}</td></tr>"


def _is_ranged(figure: Values) -> bool:
    return figure.get("low") is not None and figure["low"] < figure["high"]


def _ends(name: str, figure: Values) -> str:
    return f"{written(name, figure['low'])} to {written(name, figure['high'])}"


def _track(figures: Rows) -> str:
    """Intervals over one axis from 0."""
    ranged = [figure for figure in figures if _is_ranged(figure)]
    most = max((figure["high"] for figure in ranged), default=0.0)
    if not most or min(figure["low"] for figure in ranged) < 0:
        return ""
    marks = []
    for figure, colour in zip(figures, _COLOURS, strict=False):
        if _is_ranged(figure):
            low, value, high = (100 * figure[end] / most for end in ("low", "value", "high"))
            marks.append(
                f'<i style="left:{low:.1f}%;width:{high - low:.1f}%;background:{colour}"></i>'
                f'<b style="left:{value:.1f}%;background:{colour}"></b>'
            )
    return f"<div class=track>{''.join(marks)}</div>"
