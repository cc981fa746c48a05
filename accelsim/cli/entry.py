"""Entry point: turns every error into one line and an exit code.

0: done. 2: wrong input or usage, with one line on standard error. 3: the answer is that nothing
fits. 1: an error of accelsim itself; the line says how to see its traceback. 130, 143: interrupted
by Ctrl-C or by SIGTERM; the line says what is kept.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import TextIOWrapper
from typing import NoReturn

from accelsim.errors import AccelsimError, AccelsimWarning

#: Set to 1 to see tracebacks.
TRACEBACK_VARIABLE = "ACCELSIM_TRACEBACK"
_INPUT_ERROR = 2
#: Exit codes of an answer that something got worse, and that nothing fits.
WORSE, DOES_NOT_FIT = 1, 3
_OWN_ERROR = 1
#: Objects made between two collections, more than the imports of a command make: at Python's 700
#: they spend a tenth of its time on them.
_GARBAGE_THRESHOLD = 500_000
#: Tells pydantic not to search all installed packages for plugins, of which accelsim needs none.
_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
#: Words of the command that runs, for what it writes.
ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("ARGUMENTS", default=())
#: What the command that runs leaves behind if it is interrupted, and how to go on.
KEPT: ContextVar[Callable[[], str]] = ContextVar("KEPT")
#: Files that the command that runs has written.
WRITTEN: ContextVar[list[str]] = ContextVar("WRITTEN")
#: Set by the shell that asks how a command goes on.
_COMPLETED = "_ACCELSIM_COMPLETE"
#: Characters of a word that an error repeats, more than names and paths have.
_LONGEST_WORD = 400
#: Exit codes after Ctrl-C and after SIGTERM.
INTERRUPTED, TERMINATED = 130, 143


def main(
    arguments: Sequence[str] | None = None, program: str = "accelsim", command: str = ""
) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: Arguments after the program's name; those of the process where None.
        program: Its name, as users type it.
        command: The one command of a program that has no others; all where empty.

    Raises:
        SystemExit: Always, with the exit code.
    """
    _set_up_process()
    argv = sys.argv[1:] if arguments is None else list(arguments)
    ARGUMENTS.set((*program.split(), *argv))
    written: list[str] = []
    WRITTEN.set(written)
    KEPT.set(
        lambda: f"{', '.join(written) or 'nothing'} was written; the same command starts again"
    )
    try:
        _run(argv, program, command)
    except AccelsimError as error:
        _fail(error, _INPUT_ERROR)
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(INTERRUPTED)
    except SystemExit as ended:
        if ended.code in {INTERRUPTED, TERMINATED}:  # the parser's own, or `terminable`
            _say_interrupted()
        raise
    except Exception as error:  # noqa: BLE001  (the last resort: a line instead of a traceback)
        _fail(error, _OWN_ERROR)
    sys.exit(0)


def _run(argv: list[str], program: str, command: str) -> None:
    """Run the command that the arguments name.

    Imports are here, so that Ctrl-C during them ends in a code, too.
    """
    from accelsim.cli.command_list import COMMANDS, help_page

    if not command and argv in (["--help"], ["-h"]):
        print(help_page())  # noqa: T201
        return
    from accelsim.cli.app import command_list, command_tree, single_command

    if command:
        single_command(command)(args=argv, prog_name=program)
    if " ".join(argv[:2]) in COMMANDS:  # a command of two words
        argv = [" ".join(argv[:2]), *argv[2:]]
    name = argv[0] if argv else ""
    is_run = name in COMMANDS or name == "--" or _COMPLETED in os.environ
    app = command_tree(name) if is_run else command_list()
    app(args=argv, prog_name="accelsim")


def _set_up_process() -> None:
    """What a command does to its process: text it cannot show, garbage, plugins, warnings."""
    if isinstance(sys.stdout, TextIOWrapper):
        # what the terminal's encoding lacks; standard error replaces it already
        sys.stdout.reconfigure(errors="replace")
    gc.set_threshold(_GARBAGE_THRESHOLD)
    # else the interpreter searches all that is left for garbage: a sixth of the time of an estimate
    atexit.register(gc.freeze)
    os.environ.setdefault(_NO_PLUGINS, "__all__")
    warnings.showwarning = _caution  # type: ignore[assignment]


@contextmanager
def terminable() -> Iterator[None]:
    """Have SIGTERM end what is done here in order, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_interrupted(left_behind: str) -> NoReturn:
    """End as by Ctrl-C.

    Args:
        left_behind: What is left behind, and how to go on.

    Raises:
        KeyboardInterrupt: Always.
    """
    KEPT.set(lambda: left_behind)
    raise KeyboardInterrupt


def end_if_partial(warnings: Iterable[str]) -> None:
    """End as by Ctrl-C where a result was cut short by it.

    Args:
        warnings: Those of the result, which say so.

    Raises:
        KeyboardInterrupt: If it was.
    """
    for warning in warnings:
        if "interrupted" in warning:
            end_interrupted(f"the result is partial: {warning}")


def _caution(
    message: Warning | str, category: type[Warning], filename: str, line: int, *_: object
) -> None:
    """Show a warning of accelsim's as a line; others as Python does."""
    if not issubclass(category, AccelsimWarning):
        sys.stderr.write(warnings.formatwarning(message, category, filename, line))
        return
    from accelsim.files.formats import visible

    tell(visible(f"caution: {message}"))


def _say_interrupted() -> None:
    from accelsim.files.formats import visible

    tell(visible(f"interrupted: {KEPT.get()()}"))


def error_text(error: Exception) -> str:
    """One line that says what was wrong: the input, or accelsim itself."""
    from accelsim.files.formats import visible

    text = str(error)
    if not isinstance(error, AccelsimError):
        hint = f"Set {TRACEBACK_VARIABLE}=1 to see where, and report it."
        text = f"{type(error).__name__}: {text}. This is a fault of accelsim. {hint}"
    shortened = (w if len(w) <= _LONGEST_WORD else f"{w[:60]}…" for w in text.split())
    return visible(" ".join(shortened))


def _fail(error: Exception, code: int) -> NoReturn:
    if os.environ.get(TRACEBACK_VARIABLE, "") not in {"", "0"}:
        raise error
    tell(f"error: {error_text(error)}", fg="red")
    sys.exit(code)


def tell(text: str, fg: str | None = None, *, dim: bool | None = None) -> None:
    """Say something on standard error; lines of a terminal break between words.

    Args:
        text: What.
        fg: Its colour, as `typer.secho` takes it.
        dim: Whether it is dim.
    """
    import typer

    if sys.stderr is not None and sys.stderr.isatty():
        from shutil import get_terminal_size
        from textwrap import TextWrapper

        width = get_terminal_size().columns
        lines = TextWrapper(width, break_long_words=False, break_on_hyphens=False)
        text = "\n".join(map(lines.fill, text.splitlines()))
    typer.secho(text, err=True, fg=fg, dim=dim)
