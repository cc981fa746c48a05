"""What the documentation shows, as it is printed now.

A page is read from top to bottom in an empty folder. A block with a title (``yaml title="x.yaml"``)
is a file that is written there. A block that begins with ``$ accelsim`` is run, and the lines below
each command are what it prints, cut at ``…``. A block of Python is run too; comments at its end are
what it prints. Text says so (``text``), and what is not run why (``title="Not run in the tests:
it needs a GPU"``). ``python -m tools.documented PAGE...`` writes today's output into pages; a test
holds them to it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["main", "todays_page", "unmarked_blocks"]

_BLOCK: Final = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
_TITLE: Final = re.compile(r'title="([\w.-]+)"')
_NOT_RUN: Final = re.compile(r'title="Not run in the tests: [^"]+"')
#: A line of a shell that starts a program of this project.
_COMMAND: Final = re.compile(r"^(accelsim|python -m|pip) ", re.MULTILINE)
_PROMPT: Final = "$ accelsim "
_CUT: Final = "…"
#: Lines of an output that a page shows where it does not say.
_SHOWN: Final = 16
_WIDTH: Final = "100"
#: Ages of prices are those of this day, 2026-11-22.
_TODAY: Final = "1795305600"


def todays_page(text: str, folder: Path) -> str:
    """A page with what its blocks print now.

    Args:
        text: The page.
        folder: Empty folder to run in.

    Returns:
        The same text where nothing changed.
    """
    names: dict[str, Any] = {}

    def today(found: re.Match[str]) -> str:
        about, body = found[1], found[2]
        title = _TITLE.search(about)
        if title is not None:
            (folder / title[1]).write_text(body, encoding="utf-8")
        elif about == "python":
            body = _python(body, names)
        elif body.startswith(_PROMPT):
            body = _commands(body)
        return f"```{about}\n{body}```"

    with contextlib.chdir(folder), _environment({"COLUMNS": _WIDTH, "SOURCE_DATE_EPOCH": _TODAY}):
        return _BLOCK.sub(today, text)


def unmarked_blocks(text: str) -> list[str]:
    """First lines of the blocks that are neither run nor text nor say why they are not run.

    Args:
        text: A page.
    """
    found = []
    for about, body in _BLOCK.findall(text):
        is_text = about.startswith("text") and not _COMMAND.search(body)
        is_run = about == "python" or body.startswith(_PROMPT) or bool(_TITLE.search(about))
        if not (is_run or is_text or _NOT_RUN.search(about)):
            found.append(body.partition("\n")[0])
    return found


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Any:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _python(body: str, names: dict[str, Any]) -> str:
    """A block of Python with what it prints as comments at its end."""
    lines = body.splitlines()
    while lines and lines[-1].startswith("# "):
        lines.pop()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n".join(lines), "<page>", "exec"), names)  # noqa: S102  (our own page)
    shown = [f"# {line}" for line in printed.getvalue().splitlines()]
    return "\n".join([*lines, *shown]) + "\n"


def _commands(body: str) -> str:
    """A block of commands with what each prints below it."""
    made: list[str] = []
    for part in re.split(r"^(?=\$ )", body, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        while command.endswith("\\"):
            command += "\n" + shown.pop(0)
        printed = _printed(command)
        count = _shown_count(shown, len(printed))
        made += [command, *printed[:count]]
        made += [_CUT] if count < len(printed) else []
    return "\n".join(made) + "\n"


def _shown_count(shown: list[str], printed: int) -> int:
    """Lines to show: all where all were shown, as many as before where the page cuts."""
    if not shown:
        return min(printed, _SHOWN)
    return len(shown) - 1 if shown[-1] == _CUT else printed


def _printed(command: str) -> list[str]:
    from accelsim.cli import main as accelsim_main

    words = shlex.split(command.replace("\\\n", ""))[2:]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            accelsim_main(words)
        except SystemExit as ended:
            if ended.code not in {0, None}:
                raise RuntimeError(f"{command}: {told.getvalue()}") from None
    return [line.rstrip() for line in out.getvalue().splitlines()]


def main() -> None:
    """Write today's output into the pages that are named."""
    for name in sys.argv[1:]:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            today = todays_page(text, Path(folder))
        if today != text:
            path.write_text(today, encoding="utf-8")
            print(f"{name}: rewritten")


if __name__ == "__main__":
    main()
