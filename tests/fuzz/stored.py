"""What is fuzzed of what commands store: pages of edited results, folders of edited sweeps."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import accelsim
from accelsim.capacity.breakeven import DeploymentOption, breakeven
from accelsim.errors import AccelsimError
from accelsim.exploration.saved import read_result
from accelsim.files.formats import plain_values
from accelsim.report.page import page_html
from accelsim.report.result_page import result_page
from accelsim.serving.loads.arrivals import Arrivals

from .calls import SCENARIO, SPEC, command, document_of
from .inputs import Kind, file_of


def _saved(folder: Path, text: str) -> str:
    saved = read_result(file_of(folder, "r.json", text))
    return page_html(result_page(saved, "accelsim report"))


def _results() -> dict[str, Any]:
    """Results as commands save them."""
    bought = DeploymentOption("t4", 0.0, 2e3, 1e3, 70.0)
    chip = DeploymentOption("chip", 1e7, 100.0, 1e4, 30.0)
    on_chips = accelsim.compare(["lenet-5"], ["t4", "tpu-v4"])
    load = Arrivals(rate_per_s=2.0, requests=10)
    found = {
        "estimate": accelsim.estimate("lenet-5", "t4").to_dict(),
        "comparison": on_chips.to_dict(),
        "training": accelsim.train("gpt2", cluster="dgx-h100").to_dict(),
        "serving": accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load).to_dict(),
        "capacity": accelsim.plan(SCENARIO).to_dict(),
        "breakeven": [one.to_dict() for one in breakeven(bought, [chip], demand_per_s=1e3)],
        "other": {"name": "x", "metrics": {"time_s": {"value": 2.0, "low": 1.0}}, "rows": [{}]},
    }
    return json.loads(json.dumps(plain_values(found)))


_RESULTS = _results()


_HELD = tempfile.TemporaryDirectory()


@cache
def _swept() -> Path:
    """A finished sweep."""
    accelsim.sweep(SPEC, Path(_HELD.name) / "points", workers=1)
    return Path(_HELD.name) / "points"


def _sql(folder: Path, *statement: Any) -> None:
    with contextlib.closing(sqlite3.connect(folder / "_index.sqlite")) as index, index:
        index.execute(*statement)


def _part(folder: Path) -> Path:
    return min((folder / "parts").glob("[0-9a-f]*.parquet"))


def _column(folder: Path, name: str, value: Any) -> None:
    """One value in all rows of a part, which its index is told."""
    table = pq.read_table(_part(folder), partitioning=None)
    filled = pa.array([value] * len(table))
    place = table.schema.get_field_index(name)
    found = (
        table.append_column(name, filled) if place < 0 else table.set_column(place, name, filled)
    )
    pq.write_table(found, _part(folder))
    digest = blake2b(_part(folder).read_bytes()).digest()
    _sql(folder, "update part set hash = ? where name = ?", (digest, _part(folder).name))


def _overwrite(folder: Path, name: str, at: int, text: str) -> None:
    path = _part(folder) if name == "part" else folder / name
    content = path.read_bytes()
    start = at % (len(content) + 1)
    raw = text.encode("utf-8", "surrogatepass")
    path.write_bytes(content[:start] + raw + content[start + len(raw) :])


def _copied(folder: Path, name: str) -> None:
    place = folder / "parts" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(_part(folder), place)


def _linked(folder: Path, name: str) -> None:
    (folder / "parts" / name).symlink_to(folder.parent / "s.yaml")


_EDITS: Mapping[str, Callable[..., object]] = {
    "sql": _sql,
    "column": _column,
    "overwrite": _overwrite,
    "cut": lambda folder, size: _part(folder).write_bytes(_part(folder).read_bytes()[:size]),
    "copy": _copied,
    "link": _linked,
    "write": file_of,
    "folder": lambda folder, name: (folder / name).mkdir(parents=True),
    "remove": lambda folder, name: (_part(folder) if name == "part" else folder / name).unlink(),
}
_FOUND = ("latency_s", "device", "batch", "bound", "reason", "point", "extra", "asked_batch")
_CELLS = (None, 0, -1.0, 1e300, float("nan"), "", "x", True, [1], [], {"a": 1}, {"a": [None]})
_NAMES = ("thesis.txt", "a.parquet", f"{'0' * 32}.parquet", "sub/a.parquet", ".a.parquet.new")
_STATEMENTS = (
    *("update part set hash = null", "update part set name = null", "update part set points = 7"),
    *("update part set name = '../thesis.txt'", "delete from part", "drop table part"),
    *("update about set value = null", "delete from about", "drop table about"),
    *("insert into part values ('x', null, null)", "insert into part values (null, null, null)"),
    *("alter table part add column x", "update part set points = substr(points, 2)"),
    *(f"insert into part values ('{'0' * 32}.parquet', x'00', x'00')", "pragma user_version = 9"),
)


def _edit(draw: random.Random) -> list[Any]:
    places = ("part", "_index.sqlite", "_lock")
    words = {
        "sql": lambda: [draw.choice(_STATEMENTS)],
        "column": lambda: [draw.choice(_FOUND), draw.choice(_CELLS)],
        "overwrite": lambda: [
            draw.choice(places),
            draw.randrange(9999),
            "\0x" * draw.randint(1, 9),
        ],
        "cut": lambda: [draw.choice([0, 4, 100, 2000])],
        "copy": lambda: [draw.choice(_NAMES)],
        "link": lambda: [draw.choice(_NAMES[:3])],
        "write": lambda: [draw.choice([*places[1:], *(f"parts/{n}" for n in _NAMES[:3])]), "mine"],
        "folder": lambda: [draw.choice(["parts/sub", f"parts/{'1' * 32}.parquet", "sub"])],
        "remove": lambda: [draw.choice(places)],
    }
    name = draw.choice(sorted(words))
    return [name, *words[name]()]


def _folder(folder: Path, text: str) -> None:
    """Every reader of a folder, edited: nothing that the sweep did not write is lost."""
    shutil.copytree(_swept(), folder / "points")
    spec = file_of(folder, "s.yaml", yaml.safe_dump(SPEC))
    edits = document_of(text)
    for edit in edits if isinstance(edits, list) else []:
        with contextlib.suppress(Exception):  # of an edit that cannot be made
            _EDITS[edit[0]](folder / "points", *edit[1:])
    before = _others(folder)
    for words in (
        ["report", "points", "--out", "page.html"],
        ["results", "top", "points", "--by", "latency_s"],
        ["results", "pareto", "points", "--objectives", "latency_s,cost_usd_per_1000"],
        ["sweep", spec, "--out", "points", "--workers", "1", "--quiet"],
        ["results", "top", "points", "--by", "latency_s"],
    ):
        with contextlib.suppress(AccelsimError):
            command(*words)
    after = _others(folder)
    changed = [name for name, content in before.items() if after.get(name) != content]
    if changed:
        raise RuntimeError(f"lost or changed: {changed}")


def _others(folder: Path) -> dict[str, bytes]:
    """Content of the files that no sweep wrote."""
    own = {path.name for path in _swept().rglob("*")}
    own |= {f".{name}.new" for name in own} | {"_index.sqlite-journal"}
    found = folder.rglob("*")
    return {
        str(path): path.read_bytes() for path in found if path.is_file() and path.name not in own
    }


#: Kinds by name.
STORED: Mapping[str, Kind] = {
    "results": Kind(
        _RESULTS["estimate"],
        json.dumps,
        _saved,
        lambda draw: _RESULTS[draw.choice(sorted(_RESULTS))],
    ),
    "folder": Kind(
        [["copy", "a.parquet"]],
        json.dumps,
        _folder,
        lambda draw: [_edit(draw) for _ in range(draw.randint(1, 3))],
    ),
}
