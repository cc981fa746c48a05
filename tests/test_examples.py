"""The example scripts print about what is stored beside them; scenarios and sweeps are valid."""

import runpy
from pathlib import Path

import pytest

from accelsim.capacity.scenario import load_scenario
from accelsim.exploration.sweeps.spec import load_sweep
from tools.documented import differences

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_prints_its_stored_output(script, capfd):
    runpy.run_path(str(script), run_name="__main__")
    stored = script.with_suffix(".txt").read_text(encoding="utf-8")
    assert differences(stored, capfd.readouterr().out) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_questions_are_valid(path):
    load = load_sweep if path.stem.endswith("_sweep") else load_scenario
    assert load(path).name.replace("-", "_") == path.stem


def test_there_are_examples():
    assert len(list(EXAMPLES.glob("*.py"))) >= 16
    assert len(list(EXAMPLES.glob("*.yaml"))) >= 11
