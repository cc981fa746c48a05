"""What the documentation shows, as it is printed now.

A page is read from top to bottom in an empty folder. A block with a title (``yaml title="x.yaml"``)
is a file that is written there. A block that begins with ``$ accelsim`` is run, and the lines below
each command are what it prints, cut at ``…``. A block of Python is run too; comments at its end are
what it prints. Text says so (``text``), and what is not run why (``title="Not run in the tests:
it needs a GPU"``). Tests hold the first run of a page, and what is stored beside examples, to what
is printed now: words and units exactly, numbers to about two digits, so that a small step of a
model rewrites nothing. Of a page's other runs they compare words and units.
``python -m tools.documented FILE...`` writes today's output into the pages, and beside the scripts,
that say something else.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_BLOCK: Final = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
_TITLE: Final = re.compile(r'title="([\w.-]+)"')
_NOT_RUN: Final = re.compile(r'title="Not run in the tests: [^"]+"')
#: A line of a shell that starts a program of this project.
_COMMAND: Final = re.compile(r"^(accelsim|python -m|pip) ", re.MULTILINE)
_PROMPT: Final = "$ accelsim "
_CUT: Final = "…"
#: A number that is no part of a name or a date.
_NUMBER: Final = re.compile(r"(?<![\w.-])(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w-]|\.\d)")
#: Numbers that lie so near each other say the same.
_NEAR: Final = 0.1
#: A unit after a number, with its prefix; and times of a minute and more.
_UNIT: Final = re.compile(r"(?<=\d )(?:[EPTGMkmµnp]?(s|J|Wh?|B|FLOP|g)|min|h|d|[EPTGMk])\b")
#: What a sweep took, which hangs on the machine.
_TOOK: Final = re.compile(r"(?<= new, in )[\d.]+ m?s$", re.MULTILINE)
#: Frames and rules, whose widths follow the numbers inside.
_FRAME: Final = str.maketrans(dict.fromkeys("│─╭╮╰╯", " "))
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
    unmarked_blocks = []
    for about, body in _BLOCK.findall(text):
        is_text = about.startswith("text") and not _COMMAND.search(body)
        is_run = about == "python" or body.startswith(_PROMPT) or bool(_TITLE.search(about))
        if not (is_run or is_text or _NOT_RUN.search(about)):
            unmarked_blocks.append(body.partition("\n")[0])
    return unmarked_blocks


def page_differences(stored: str, printed: str) -> list[str]:
    """What the runs of a page say that those printed now do not: of the first with its numbers.

    Args:
        stored: The page as it is.
        printed: The same as `todays_page` has it.
    """
    pairs = zip(_BLOCK.findall(stored), _BLOCK.findall(printed), strict=True)
    runs = [
        (old, new)
        for (about, old), (_, new) in pairs
        if about == "python" or old.startswith(_PROMPT)
    ]
    of_blocks = [
        differences(old, new, has_numbers=index == 0) for index, (old, new) in enumerate(runs)
    ]
    return [line for lines in of_blocks for line in lines]


def differences(stored: str, printed: str, *, has_numbers: bool = True) -> list[str]:
    """What a text that is stored says and one that is printed does not, in words; empty where they
    agree. Spaces, frames and where lines break say nothing; numbers agree within 10 %, or one in
    their last digit where they have more than one or are per cents.

    Args:
        stored: As a page or a file has it.
        printed: As it is printed now.
        has_numbers: Whether numbers are compared, and the prefixes of their units.
    """
    if not has_numbers:
        stored, printed = (_plain_units(text) for text in (stored, printed))
    before, after = (
        [" ".join(part.split()) for part in _pieces(text)] for text in (stored, printed)
    )
    differences = []
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        same = old == new
        if index % 2 and not same:
            same = not has_numbers or _is_near(
                old, new, is_percent=before[index + 1].startswith("%")
            )
        if not same:
            differences.append(f"{before[index - 1][-40:]} [{old[:80]}] is now [{new[:80]}]")
            if not index % 2:  # what follows is something else
                return differences
    return (
        differences
        if len(before) == len(after)
        else [*differences, f"{len(after) - len(before)} parts more"]
    )


def _plain_units(text: str) -> str:
    """A text whose units have no prefixes, so that a number may be of any size."""
    line = " ".join(text.translate(_FRAME).split())
    return _UNIT.sub(lambda unit: unit[1] or ("s" if unit[0] in {"min", "h", "d"} else ""), line)


def _pieces(text: str) -> list[str]:
    """Words and numbers in turn, words first and last."""
    return _NUMBER.split(_TOOK.sub("some time", text.translate(_FRAME)))


def _is_near(old: str, new: str, *, is_percent: bool) -> bool:
    first, second = (float(number.replace(",", "")) for number in (old, new))
    decimals = len(old.partition("e")[0].partition(".")[2])
    is_count = len(old) == 1 and not is_percent
    last_digit = 0.0 if is_count or "e" in old else 10.0**-decimals
    allowed = max(_NEAR * max(abs(first), abs(second)), 1.001 * last_digit)
    return abs(first - second) <= allowed


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
            if ended.code not in {0, None} and not out.getvalue():  # an answer may say no
                raise RuntimeError(f"{command}: {told.getvalue()}") from None
    return [line.rstrip() for line in out.getvalue().splitlines()]


def main() -> None:
    """Write today's output into the pages that are named, and beside the scripts."""
    for name in sys.argv[1:]:
        path = Path(name)
        is_script = path.suffix == ".py"
        stored = path.with_suffix(".txt") if is_script else path
        text = stored.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            today = _script(path) if is_script else todays_page(text, Path(folder))
        if differences(text, today):
            stored.write_text(today, encoding="utf-8")
            print(f"{stored}: rewritten")


def _script(path: Path) -> str:
    """What a script prints."""
    words = [sys.executable, str(path)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout  # noqa: S603


if __name__ == "__main__":
    main()
