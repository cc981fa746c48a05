"""Names from other people's files are text in every form of output of every command."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

#: What a page, a terminal and a spreadsheet might obey. Names in the catalogue may hold none of it;
#: titles, vendors and sources may.
MODEL = "=cmd('calc')|'</script><script>alert(1)</script>[red]"
DEVICE = "@SUM(1+1)<img src=x onerror=alert(1)>[bold]"
_FILE = "my_model.yaml"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A model and a device of hostile names, in the folder that the command runs in."""
    monkeypatch.chdir(tmp_path)
    model = {
        "name": "my-model",
        "title": MODEL,
        "task": "text-generation",
        "family": "decoder",
        "parameters": {
            "vocab_size": 1000,
            "hidden_size": 64,
            "layers": 2,
            "heads": 4,
            "kv_heads": 4,
            "intermediate_size": 128,
        },
        "default": {"batch": 1, "seq_len": 16},
        "output_len": 4,
    }
    sourced = {"kind": "datasheet", "source": MODEL}
    device = {
        "class": "gpu",
        "name": "my-device",
        "title": DEVICE,
        "vendor": DEVICE,
        "year": 2026,
        "architecture": DEVICE,
        "sm_count": {"value": 64, **sourced},
        "lanes_per_sm": {"value": 128, **sourced},
        "boost_clock_mhz": {"value": 2100, **sourced},
        "vector_tflop_per_s": {"fp32": {"value": 34.4, **sourced}},
        "matrix_tflop_per_s": {"fp16": {"value": 275, **sourced}},
        "memory": {
            "name": DEVICE,
            "technology": "GDDR7",
            "capacity_gib": {"value": 24, **sourced},
            "bandwidth_gb_per_s": {"value": 1024, **sourced},
        },
        "power": {"limit_w": {"value": 250, **sourced}},
    }
    for name, content in ((_FILE, model), ("my_device.yaml", device)):
        (tmp_path / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    return tmp_path


COMMANDS = {
    "estimate": ("estimate", _FILE, "--device-file", "my_device.yaml"),
    "compare": ("compare", _FILE, "--devices", "t4", "--device-file", "my_device.yaml"),
    "train": ("train", _FILE, "--device", "t4"),
    "serve": ("serve", _FILE, "--device", "t4", "--rate", "9", "--requests", "8"),
    "workloads": ("workloads", "show", _FILE),
    "devices": ("devices", "show", "my_device.yaml"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_names_are_text_in_every_form_of_output(run, files, command):
    texts = {form: run(*command, "--format", form, "-q") for form in ("table", "json", "csv", "md")}
    assert {ran.code for ran in texts.values()} == {0}
    json.loads(texts["json"].out)
    for row in csv.reader(io.StringIO(texts["csv"].out)):
        assert not [cell for cell in row if cell[:1] in set("=@") or cell.startswith("+cmd")]
    assert "<script" not in texts["md"].out
    assert "<img" not in texts["md"].out
    page = files / "page.html"
    assert run(*command, "--report", page, "-q").code == 0
    shown = page.read_text(encoding="utf-8")
    assert "<script>alert" not in shown
    assert "<img src=x" not in shown
    assert "onerror=alert(1)>" not in shown


@pytest.mark.parametrize(("name", "wrong"), [(_FILE, MODEL), ("my_device.yaml", DEVICE)])
def test_names_that_could_be_obeyed_are_refused(refused, files, name, wrong):
    text = (files / name).read_text(encoding="utf-8")
    content = yaml.safe_load(text) | {"name": wrong}
    (files / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    said = refused(*COMMANDS["estimate"])
    assert f"{name}: line " in said
    assert "name" in said


def test_titles_keep_their_brackets(run, files):
    assert "[red]" in run(*COMMANDS["workloads"]).out
    assert "[bold]" in run(*COMMANDS["devices"]).out


def test_a_picture_shows_names_as_text(run, files):
    pytest.importorskip("matplotlib")
    assert run(*COMMANDS["compare"], "--out", files / "c.png", "-q").code == 0
    assert (files / "c.png").read_bytes().startswith(b"\x89PNG")
