"""A process that answers one session of the live pages, and can be ended in the middle of it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from accelsim.errors import AccelsimError
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.report.page import Page


class EndedError(AccelsimError):
    """An answer was ended before it came."""


@frozen
class Shown:
    """An answer as a live page shows it.

    Attributes:
        metrics: Its figures with their intervals.
        page: Decision, tables and pictures.
        cpu_s: CPU time that it took.
    """

    metrics: Document
    page: Page
    cpu_s: float


class Worker:
    """Answers one question at a time.

    Args:
        files: The only files that it reads beside the package's and the user's own.
    """

    def __init__(self, files: Sequence[Path] = ()) -> None:
        self._files = tuple(files)
        self._one_at_a_time = asyncio.Lock()
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, self._files), daemon=True)
        self._process.start()
        far_end.close()

    async def ask(
        self,
        question: tuple[str, Document, str],
        note: Callable[[str], None],
        report: Path | None = None,
    ) -> Shown:
        """The answer to a question; from a new process if the last one died by itself.

        Args:
            question: Command, arguments and command line.
            note: Takes what the command says while it runs.
            report: File that the whole page is written to; none where None.

        Raises:
            AccelsimError: If the command refuses the arguments; `EndedError` if it was ended.
        """
        async with self._one_at_a_time:
            if not self._pipe.closed and not self._process.is_alive():
                self.restart()
            pipe = self._pipe
            with suppress(EOFError, OSError):
                pipe.send((*question, report))
                while True:
                    kind, content = await asyncio.to_thread(pipe.recv)
                    if kind == "note":
                        note(content)
                    elif kind == "refused":
                        raise AccelsimError(content)
                    else:
                        return content  # type: ignore[no-any-return]
            if pipe.closed:
                raise EndedError("ended before the answer came")
            raise AccelsimError("The process that answers died. Change an option to ask again.")

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def restart(self) -> None:
        """End what it does and be ready for the next question."""
        self.end()
        self._start()


class _Notes(io.StringIO):
    """Text that goes to the other side as it is written."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def write(self, text: str) -> int:
        if line := text.strip("\r\n "):
            self._pipe.send(("note", line))
        return len(text)


def _serve(pipe: Connection, files: Sequence[Path]) -> None:
    """What the process does until the other side is gone."""
    from accelsim.cli.entry import error_text
    from accelsim.frontends.tools import reading_below

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with reading_below(*files), suppress(EOFError, OSError):
        while True:
            name, arguments, command, report = pipe.recv()
            try:
                shown = _shown(name, arguments, command, report, _Notes(pipe))
                message: tuple[str, Shown | str] = ("shown", shown)
            except Exception as error:  # noqa: BLE001  (whatever it is, the page shows a line)
                message = ("refused", error_text(error))
            pipe.send(message)


def _shown(
    name: str, arguments: Document, command: str, report: Path | None, notes: io.StringIO
) -> Shown:
    from accelsim.frontends.tools import answer
    from accelsim.report.result_page import result_page

    begin = os.times()
    document = json.loads(answer(name, arguments, notes, report))
    page = result_page(document, command)
    end = os.times()
    metrics = document.get("metrics") or {}
    return Shown(metrics, page, end.user + end.system - begin.user - begin.system)
