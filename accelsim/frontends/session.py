"""What a live page asks, and the process that answers it; nothing outlives the page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from time import perf_counter

from accelsim.capacity.scenario_template import TEMPLATE
from accelsim.errors import AccelsimError
from accelsim.files.datafile import parse_yaml
from accelsim.frontends.controls import QUESTIONS, command_line, controls, restored
from accelsim.frontends.worker import EndedError, Shown, Worker
from accelsim.plain import Document


class Session:
    """One open page: what was asked, and the process that answers.

    Args:
        question: One of `QUESTIONS`.
        pairs: Names and texts of the link.
        files: Files of learned runs that may be chosen.
        folder: Where whole pages are written; nothing of it is left when the page is closed.
    """

    def __init__(
        self,
        question: str,
        pairs: Sequence[tuple[str, str]],
        files: Sequence[Path],
        folder: Path,
    ) -> None:
        self.question = question
        self.known = controls(question, [str(file) for file in files])
        start = dict(QUESTIONS[question][1])
        if "scenario" in self.known:
            start["scenario"] = TEMPLATE
        linked, compared, self.refused = restored(pairs, self.known)
        self.scenarios: list[Document] = [linked or start, *([compared] if compared else [])]
        self.edited = 0
        self.shown: list[Shown | str] = []
        self.is_dirty = True
        self.begun_s: float | None = None
        self.note = ""
        self.worker = Worker(files)
        self._folder = folder

    def set(self, name: str, value: object) -> None:
        """Take a value from a control; its default is not kept."""
        values = self.scenarios[self.edited]
        control = self.known[name]
        if control.kind is int and isinstance(value, float):
            value = int(value)
        if value in (None, "", []) or (value == control.default and name not in values):
            values.pop(name, None)
        else:
            values[name] = value
        self.is_dirty = True

    def line(self, values: Document) -> str:
        """The command that gives the same answer."""
        return command_line(self.question, values, self.known)

    async def answer(self) -> None:
        """Answer all scenarios."""
        self.is_dirty, self.begun_s, self.note = False, perf_counter(), ""
        answers = [await self._answer(values) for values in self.scenarios]
        self.begun_s = None
        if None not in answers:
            self.shown = [answer for answer in answers if answer is not None]

    async def _answer(self, values: Document) -> Shown | str | None:
        """An answer, or why there is none; None where it was ended."""
        try:
            return await self._ask(values)
        except EndedError:
            return None
        except AccelsimError as error:
            return str(error)

    async def _ask(self, values: Document, report: Path | None = None) -> Shown:
        """The answer to a scenario, which a page is written of where a file is named."""
        arguments = dict(values)
        if isinstance(arguments.get("scenario"), str):
            arguments["scenario"] = parse_yaml(arguments["scenario"], "scenario")
        question = (QUESTIONS[self.question][0], arguments, self.line(values))
        return await self.worker.ask(question, partial(setattr, self, "note"), report)

    async def whole_page(self) -> Path:
        """The page that `--report` writes of the scenario that is edited."""
        file = self._folder / f"{token_urlsafe(12)}.html"
        await self._ask(self.scenarios[self.edited], file)
        return file
