"""Whatever is read is used or refused by a typed error: no other exception leaves.

``FUZZ_SECONDS`` is the time spent on each kind of input; without it a few calls are made.
``FUZZ_SEED`` starts the damage elsewhere.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from accelsim.errors import AccelsimError

from .inputs import KINDS
from .mutations import damaged, spoiled

_SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
_SEED = int(os.environ.get("FUZZ_SEED", "0"))
_FEW_CALLS = 20
_SLOW_S = 20.0


def outcome(kind: str, text: str, folder: Path) -> str:
    """What reading a text comes to: "used", "refused", or the exception that should not be."""
    began = time.process_time()
    try:
        KINDS[kind].read(folder, text)
        result = "used"
    except (AccelsimError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        result = "refused" if str(error) else "an error without words"
    except Exception as error:  # noqa: BLE001  (what is looked for)
        result = f"{type(error).__name__}: {error}"
    spent = time.process_time() - began
    return result if spent < _SLOW_S or not _SECONDS else f"{spent:.0f} s"


@pytest.mark.parametrize("kind", KINDS)
def test_the_valid_input_is_used(kind, tmp_path):
    assert outcome(kind, KINDS[kind].write(KINDS[kind].valid), tmp_path) == "used"


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_are_used_or_refused(kind, tmp_path, capfd):
    draw = random.Random(f"{kind} {_SEED}")
    end, calls, failures = time.monotonic() + _SECONDS, 0, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers may be lost on the way to a refusal
        while calls < _FEW_CALLS or time.monotonic() < end:
            document = damaged(KINDS[kind].valid, draw)
            text = KINDS[kind].write(document)
            if draw.random() < 0.3:
                text = spoiled(text, draw)
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
