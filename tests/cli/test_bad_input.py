"""What no command can use or write is refused by all: exit code 2, one line, nothing half-written.

A table of cases for each side: where a result goes, what a saved result holds, and names that a
page, a terminal or a spreadsheet might obey.
"""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest

SCENARIO = """\
name: NAME
services: [{name: NAME, model: lenet-5, requests_per_s: 50, latency_p99_ms: 100}]
candidates: {devices: [t4], providers: [aws], regions: [us-east-1]}
"""
SWEEP = (
    "name: s\nfixed: {precision: fp16}\nvary: {model: [lenet-5], device: [t4, NAME], batch: [1]}\n"
)
#: Command and the options of it that name a file; what it runs on need not exist.
WRITERS = {
    "estimate": (("estimate", "lenet-5", "-d", "t4"), ("--out", "--report")),
    "compare": (("compare", "lenet-5", "-d", "t4"), ("--out", "--report")),
    "train": (("train", "lenet-5", "-d", "t4"), ("--out", "--trace")),
    "serve": (("serve", "lenet-5", "-d", "t4", "--rate", "9"), ("--requests-out", "--trace")),
    "plan": (("plan", "s.yaml"), ("--out", "--report")),
    "init": (("init",), ("",)),
    "sweep": (("sweep", "s.yaml", "--out", "r"), ("--report",)),
    "results": (("results", "top", "r", "--by", "batch"), ("--out", "--report")),
    "report": (("report", "r.json"), ("--out",)),
    "capture": (("capture", "a:b"), ("--out",)),
    "claims": (("claims", "run", "S11"), ("--out", "--report")),
    "validate": (("validate",), ("--out", "--rows")),
    "calibrate": (("calibrate", "--from", "r.jsonl"), ("--report",)),
    "steps": (("learn", "steps", "b.json"), ("--out",)),
    "devices": (("devices", "list"), ("--out",)),
    "schema": (("schema", "sweep"), ("--out",)),
}
ENDINGS = {"--report": ".html", "--requests-out": ".csv"}
PLACES = {
    "a file": "file",
    "a folder": "folder",
    "a link to a file": "link",
    "a link to nothing": "dangling",
    "in no folder": "no/a",
    "in a file": "kept/a",
    "too long": "x" * 250,
    "a device": "/dev/full",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with something in each place that a result might take."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").write_text("mine", encoding="utf-8")
    for ending in {".json", *ENDINGS.values()}:
        (tmp_path / f"file{ending}").write_text("mine", encoding="utf-8")
        (tmp_path / f"folder{ending}").mkdir()
        (tmp_path / f"link{ending}").symlink_to("kept")
        (tmp_path / f"dangling{ending}").symlink_to("nowhere")
    return tmp_path


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(refused, folder, writer, place):
    command, options = WRITERS[writer]
    before = contents(folder)
    for option in options:
        path = PLACES[place]
        path = path if path.startswith("/") else path + ENDINGS.get(option, ".json")
        said = refused(*command, *filter(None, [option]), path)
        assert path[:20] in said
    assert contents(folder) == before


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of two points, one of a device that none is called."""
    import accelsim

    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("swept")
    spec = {"model": ["lenet-5"], "device": ["t4", "=cmd|' /C calc'!A0"], "batch": [1]}
    accelsim.sweep({"name": "s", "vary": spec}, folder / "r", workers=1)
    return folder / "r"


RESULT = {"kind": "estimate", "schema_version": 1, "inputs": {}, "metrics": {}, "latency_s": 1.0}
#: Saved results that are none, or of another version.
SAVED = {
    "empty": "",
    "truncated": json.dumps(RESULT)[:40],
    "a number": "3",
    "a list of numbers": "[1, 2]",
    "bytes": "\udcff\udcfe\x00",
    "other version": json.dumps(RESULT | {"schema_version": 99}),
    "other types": json.dumps(dict.fromkeys(RESULT, "x") | {"schema_version": 1}),
    "nested": "[" * 5000,
}


@pytest.mark.parametrize("case", SAVED)
def test_a_saved_result_that_cannot_be_used_is_refused_by_name(refused, folder, case):
    path = folder / "saved.json"
    path.write_text(SAVED[case], encoding="utf-8", errors="surrogateescape")
    assert "saved.json" in refused("report", path, "--out", folder / "page.html")
    assert not (folder / "page.html").exists()


@pytest.mark.parametrize("damage", ["truncated", "empty"])
def test_a_damaged_part_of_a_sweep_is_named_and_answered_anew(run, refused, swept, folder, damage):
    own = shutil.copytree(swept, folder / "own")
    for part in (own / "parts").iterdir():
        part.write_bytes(part.read_bytes()[:100] if damage == "truncated" else b"")
    assert "own" in refused("results", "top", own, "--by", "batch")
    assert "own" in refused("report", own, "--out", folder / "page.html")
    spec = {"name": "s", "vary": {"model": ["lenet-5"], "device": ["t4"], "batch": [1]}}
    (folder / "s.json").write_text(json.dumps(spec), encoding="utf-8")
    assert run("sweep", folder / "s.json", "--out", own, "--workers", 1, "-q").code == 0
    assert "t4" in run("results", "top", own, "--by", "batch").out


def test_two_of_three_columns_of_a_pivot_are_not_one(refused, swept):
    fields = ("--rows", "batch", "--columns", "device", "--values", "batch")
    assert "three columns" in refused("results", "pivot", swept, *fields)


#: Names of other people's: what might obey them.
NAMES = {
    "page": "<script>alert(1)</script>",
    "markup": "[red]x[/red]",
    "formula": "=cmd|' /C calc'!A0",
    "terminal": "\x1b[31mred\x1b]0;t\x07",
    "lines": "a\n- b: 1\nerror: c",
    "direction": "abc\u202egnp.exe",
    "long": "x" * 10_000,
}


def is_harmless(text):
    """Whether a terminal obeys nothing, and no line is a name's own."""
    is_forged = not text.startswith("batch,") and "\nerror" in text  # a cell of CSV may have lines
    return "\x1b" not in text and "\u202e" not in text and not is_forged


@pytest.mark.parametrize("case", NAMES)
def test_names_in_a_scenario_are_refused_or_text(run, folder, case):
    text = SCENARIO.replace("NAME", json.dumps(NAMES[case]))
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    ran = run("plan", "s.yaml", "-q", "--report", "page.html", "--format", "csv")
    assert is_harmless(ran.out + ran.err)
    assert len(ran.err) < 1_000
    if case in {"terminal", "lines", "direction", "long"}:
        assert ran.code == 2
        assert "s.yaml: line 1, name" in ran.err
        return
    assert ran.code == 0
    assert "<script>alert" not in (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", NAMES)
def test_names_in_a_sweep_are_text_in_its_points(run, folder, case):
    pytest.importorskip("pyarrow")
    text = SWEEP.replace("NAME", json.dumps(NAMES[case]))
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    assert run("sweep", "s.yaml", "--out", "own", "--workers", 1, "-q").code == 0
    fields = ("--rows", "batch", "--columns", "device", "--values", "seq_len")
    for form in ("table", "csv", "md"):
        shown = run("results", "pivot", "own", *fields, "--format", form)
        assert shown.code == 0
        assert is_harmless(shown.out)
        assert "<script" not in shown.out or form != "md"
        if form == "csv":
            cells = [cell for row in csv.reader(io.StringIO(shown.out)) for cell in row]
            assert not [cell for cell in cells if cell[:1] in set("=+@")]
    assert run("report", "own", "--out", "page.html").code == 0
    assert "<script>alert" not in (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [("import",), ("update", "--from")])
def test_a_feed_without_a_price_writes_no_price_file(refused, folder, command):
    (folder / "feed.csv").write_text("provider,region\naws,us-east-1\n", encoding="utf-8")
    written = ("--out", "p.csv", "--refused", "r.csv", "--as-of", "2026-01-01", "-q")
    said = refused("offers", *command, "feed.csv", *written)
    assert "none of its rows" in said
    assert "instance is empty" in said
    assert not (folder / "p.csv").exists()
    assert "instance is empty" in (folder / "r.csv").read_text(encoding="utf-8")


def test_the_table_of_an_import_ends_and_says_where_the_rest_is(run, folder):
    rows = "own,here,m,,a feed\n" * 3000 + "own,here,n,1,a feed\n"
    header = "provider,region,instance_type,price_usd_per_h,source\n"
    (folder / "feed.csv").write_text(header + rows, encoding="utf-8")
    shown = run("offers", "import", "feed.csv").out
    assert shown.count("no price is known") == 1000
    assert "2,000 more: add --refused FILE" in " ".join(shown.split())
    assert run("offers", "import", "feed.csv", "--refused", "log.csv").code == 0
    assert len((folder / "log.csv").read_text(encoding="utf-8").splitlines()) == 3001
