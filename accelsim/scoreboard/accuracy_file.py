"""The accuracy report as a file: JSON with a line per group, whose fields stand once above them.

A report has about a thousand groups of the same twenty fields; naming the fields in each of them
would take most of the file.
"""

from __future__ import annotations

import json
from pathlib import Path

from accelsim.files.datafile import read_json
from accelsim.files.formats import plain_values
from accelsim.plain import Document, Values

_MAX_BYTES = 20_000_000


def accuracy_text(report: Values) -> str:
    """Text of the file.

    Args:
        report: Result of `accelsim.scoreboard.scoreboard_dict`.
    """
    packed = {name: _packed(suite) for name, suite in report["suites"].items()}
    suites = ",\n".join(f"{_compact(name)}: {text}" for name, text in packed.items())
    rest = {key: value for key, value in report.items() if key != "suites"}
    tail = "".join(f",\n{_compact(key)}: {_compact(value)}" for key, value in rest.items())
    return f'{{"suites": {{\n{suites}\n}}{tail}}}\n'


def evidence_text(report: Values) -> str:
    """Text of the file that estimates quote from, a line per board and setting.

    Args:
        report: Result of `accelsim.scoreboard.evidence_dict`.
    """
    runs = ",\n".join(_compact(run) for run in report["runs"])
    return f'{{"runs":[\n{runs}\n],\n"spreads":{spreads_text(report["spreads"])}}}\n'


def spreads_text(spreads: Values) -> str:
    """Spreads by place, a line each."""
    lines = ",\n".join(f"{_compact(key)}:{_compact(entry)}" for key, entry in spreads.items())
    return f"{{\n{lines}\n}}"


def read_accuracy(path: Path) -> Document:
    """The report that `accuracy_text` wrote.

    Args:
        path: The file.

    Raises:
        ProfileError: If it cannot be read.
    """
    report = read_json(path, max_bytes=_MAX_BYTES)
    for suite in report["suites"].values():
        fields = suite.pop("fields")
        suite["groups"] = [dict(zip(fields, row, strict=True)) for row in suite["groups"]]
    return report


def _packed(suite: Values) -> str:
    """A suite with the fields of its groups apart from their values."""
    groups = suite["groups"]
    fields = list(groups[0]) if groups else []
    rows = ",\n".join(_compact([group[field] for field in fields]) for group in groups)
    head = {key: value for key, value in suite.items() if key != "groups"} | {"fields": fields}
    return f'{_compact(head)[:-1]}, "groups": [\n{rows}\n]}}'


def _compact(value: object) -> str:
    return json.dumps(plain_values(value), allow_nan=False, separators=(",", ":"))
