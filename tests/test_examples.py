"""The example scripts print what is stored beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_prints_its_stored_output(script):
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == script.with_suffix(".txt").read_text(encoding="utf-8")


def test_there_are_examples():
    assert len(list(EXAMPLES.glob("*.py"))) >= 3
