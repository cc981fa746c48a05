"""Faults that are put into modules are small, one at a time, and of the module's code."""

import random
from pathlib import Path

from tools.mutants import MODULES, mutants

SOURCE = """
@frozen(eq=False)
def share(count: int | None = 3) -> float | None:
    \"\"\"At least 0.\"\"\"
    return min(count, 1) - 2.0 if count >= 4 else None
"""


def test_each_fault_changes_one_expression_and_neither_annotations_nor_decorators():
    assert sorted(mutant.fault for mutant in mutants(SOURCE)) == sorted(
        [
            "3 -> 4",
            "3 -> 6",
            "min(count, 1) - 2.0 -> min(count, 1) + 2.0",
            "min(count, 1) - 2.0 -> min(count, 1)",
            "min -> max",
            "1 -> 2",
            "2.0 -> 3.0",
            "2.0 -> 4.0",
            "count >= 4 -> count > 4",
            "4 -> 5",
            "4 -> 8",
        ]
    )
    (dropped,) = (m for m in mutants(SOURCE) if m.fault.endswith("min(count, 1)"))
    assert dropped.line == 5
    assert dropped.source == SOURCE.replace("min(count, 1) - 2.0", "(min(count, 1))")


def test_every_fault_can_be_imported():
    root = Path(__file__).resolve().parents[2] / "accelsim"
    for end in MODULES:
        (path,) = (one for one in root.rglob(Path(end).name) if str(one).endswith(end))
        drawn = mutants(path.read_text("utf-8"))
        assert len({mutant.source for mutant in drawn}) == len(drawn) > 100
        for mutant in random.Random(1).sample(drawn, 20):
            compile(mutant.source, end, "exec")
