"""Whatever is read or called is used or refused by a typed error: no other exception leaves, no
call takes more than its time and memory, and nothing is lost or left half written.

``FUZZ_SECONDS`` is the time spent on each kind of input; without it a few calls are made.
``FUZZ_SEED`` starts the damage elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelsim.errors import AccelsimError

from .calls import CALLS
from .feeds import FEEDS
from .inputs import KINDS
from .mutations import damaged, spoiled
from .stored import STORED

ALL = {**KINDS, **FEEDS, **STORED, **CALLS}
_SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
_SEED = int(os.environ.get("FUZZ_SEED", "0"))
_FEW_CALLS, _FEW_LONG = 20, 4
#: Calls of kinds that take a mistake worst, where time was given: files of other people's programs.
_MANY_CALLS = {"gguf": 20_000}
#: Most that one call may take: seconds of the processor, and bytes beside what is there already.
_SLOW_S, _MOST_BYTES = 30.0, 2 * 10**9


class _TooLong(BaseException):
    """A call has taken its time; no handler of the package may hold it."""


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Ends a call that takes too long, and refuses it memory beyond its bound."""

    def end(*_: object) -> None:
        raise _TooLong

    held = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) * 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    signal.signal(signal.SIGPROF, end)
    resource.setrlimit(resource.RLIMIT_DATA, (held + _MOST_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, _SLOW_S if _SECONDS else 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def outcome(kind: str, text: str, root: Path) -> str:
    """What reading a text comes to: "used", "refused", or what should not be."""
    folder, beside = root / "case", root / "thesis.txt"
    folder.mkdir()
    beside.write_text("mine")
    try:
        with contextlib.chdir(folder), _bounded():
            ALL[kind].read(folder, text)
        result = "used"
    except AccelsimError as error:
        result = "refused" if str(error) else "an error without words"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (what is looked for)
        place = traceback.extract_tb(error.__traceback__)[-1]
        result = f"{Path(place.filename).name} {place.lineno}: {type(error).__name__}: {error}"
    found = {path.name: path for path in root.iterdir()}
    if found.keys() != {"case", "thesis.txt"} or beside.read_text() != "mine":
        return f"wrote outside: {sorted(found)}"
    left = [path.name for path in folder.rglob(".*-*") if path.is_file()]
    return f"left half written: {left}" if left else result


@pytest.fixture(autouse=True)
def _errors_are_raised(monkeypatch):
    monkeypatch.setenv("ACCELSIM_TRACEBACK", "1")


@pytest.mark.parametrize("kind", ALL)
def test_the_valid_input_is_used(kind, tmp_path):
    assert outcome(kind, ALL[kind].write(ALL[kind].valid), tmp_path) == "used"


@pytest.mark.parametrize("kind", ALL)
def test_damaged_inputs_are_used_or_refused(kind, tmp_path, capfd):
    draw = random.Random(f"{kind} {_SEED}")
    few = _FEW_LONG if kind in {**CALLS, **STORED} else _FEW_CALLS
    few = _MANY_CALLS.get(kind, few) if _SECONDS else few
    end, calls, failures = time.monotonic() + _SECONDS, 0, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers may be lost on the way to a refusal
        while calls < few or time.monotonic() < end:
            text = _text(kind, draw)
            with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
                result = outcome(kind, text, Path(folder))
            calls += 1
            if result not in {"used", "refused"}:
                failures.setdefault(result[:200], text)
    if _SECONDS:
        with capfd.disabled():
            sys.stdout.write(f"\n{kind}: {calls:,} calls, {len(failures)} failures\n")
    shown = "\n\n".join(f"{what}\n{text[:2000]}" for what, text in failures.items())
    assert not failures, shown


def _text(kind: str, draw: random.Random) -> str:
    """A document drawn at random, damaged; some whole, some with their text spoiled, too."""
    _, write, _, drawn = ALL[kind]
    document = ALL[kind].valid if drawn is None else drawn(draw)
    if drawn is None or draw.random() < 0.3:
        document = damaged(document, draw)
    text = write(document)
    return spoiled(text, draw) if draw.random() < (0.3 if drawn is None else 0.1) else text
