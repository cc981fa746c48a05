"""No file that a user gives takes more than a gigabyte, whatever is in it, or hangs a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .bounded import FILES, READERS

ROOT = Path(__file__).resolve().parents[2]
#: Files given in every run, and to every reader where time was given to look for faults.
_FEW = ("zero", "fifo", "sparse", "mappings")
_MOST_BYTES = 10**9


def test_no_file_takes_more_than_a_gigabyte(tmp_path):
    kinds = tuple(FILES) if os.environ.get("FUZZ_SECONDS") else _FEW
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bounded", str(tmp_path), ",".join(kinds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(kinds) * sum(len(suffixes) for suffixes, _ in READERS.values())
    wrong = [line for line in lines if not line["outcome"].startswith("2 error: ")]
    assert not wrong
    assert max(line["peak_bytes"] for line in lines) < _MOST_BYTES
