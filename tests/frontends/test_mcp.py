"""``accelsim mcp``: its tools, answers, refusals, and which files it reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from accelsim.errors import InputError, InvalidValueError
from accelsim.frontends.tools import TOOLS, answer, input_schema, reading_below

anyio = pytest.importorskip("anyio")
sdk = pytest.importorskip("mcp")
ESTIMATE = {"model": "resnet-50", "device": "t4", "batch": 8}
#: What a tool needs beside the argument that names a file.
BESIDE = {
    "estimate": {"model": "resnet-50", "device": "t4"},
    "compare": {"models": ["resnet-50"], "devices": ["t4"]},
    "fits": {"device": "t4"},
    "serve": {"model": "qwen3-0.6b", "device": "t4", "rate": 1.0, "requests": 4},
    "train": {"model": "resnet-50", "cluster": "dgx-h100", "gpus": 8},
    "learn": {"files": []},
}
FILES = [
    *(("estimate", name) for name in ("model", "device_file", "learned")),
    *(("compare", name) for name in ("models", "device_file")),
    *(("serve", name) for name in ("model", "arrivals", "step_times", "learned")),
    *(("train", name) for name in ("model", "learned")),
    *(("learn", name) for name in ("files", "add_to")),
    ("fits", "model"),
    ("plan", "scenario"),
]


def call(name, arguments, folder=None, server=None):
    """Whether a call failed, and the texts of its answer, over the client of the SDK."""
    from accelsim.frontends.mcp import server as made

    async def run():
        async with sdk.Client(server or made(folder)) as client:
            result = await client.call_tool(name, arguments)
            return result.is_error, [content.text for content in result.content]

    return anyio.run(run)


def test_tools_are_listed_with_schemas_of_their_options():
    from accelsim.frontends.mcp import server

    async def listed():
        async with sdk.Client(server(None)) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(listed)}
    assert list(tools) == list(TOOLS)
    asked = tools["estimate"].input_schema
    assert asked["required"] == ["model"]
    assert {"type": "integer"} in asked["properties"]["batch"]["anyOf"]
    assert asked["properties"]["device"]["description"].startswith("Device, or a slice")
    assert all(tool.annotations.read_only_hint for tool in tools.values())


@pytest.mark.parametrize("name", TOOLS)
def test_no_argument_writes_or_asks_a_network(name):
    for argument, said in input_schema(name)["properties"].items():
        assert not said["description"].startswith(("Write", "Also write")), argument
        assert "Hub" not in said["description"], argument


def test_an_answer_is_that_of_the_command(run):
    is_error, [text, *notes] = call("estimate", ESTIMATE)
    assert not is_error
    assert notes == []
    words = ("resnet-50", "-d", "t4", "--batch", 8, "--format", "json")
    assert text == run("estimate", *words).out
    latency = json.loads(text)["metrics"]["latency_s"]
    assert latency["low"] < latency["value"] < latency["high"]
    assert {"evidence", "provenance"} <= json.loads(text).keys()


def test_an_answer_that_nothing_fits_is_an_answer():
    is_error, [text] = call("fits", {"model": "llama-3.1-405b", "device": "rtx-3060"})
    assert not is_error
    assert json.loads(text)["best"] is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"batch": 0}, "batch = 0 is not allowed: expected an integer from 1 to"),
        ({"batch": "8"}, "batch = '8' is not allowed: expected a valid integer"),
        ({"batch": True}, "batch = True is not allowed: expected a valid integer"),
        ({"bach": 8}, "Unknown argument of estimate 'bach'. Did you mean batch"),
        ({"out": "x.json"}, "Unknown argument of estimate 'out'"),
        ({"model": None}, "model is missing"),
        ({"device": "t44"}, "Did you mean t4"),
    ],
)
def test_bad_arguments_are_errors_of_the_tool(changed, said):
    is_error, [text] = call("estimate", ESTIMATE | changed)
    assert is_error
    assert said in text
    assert "Traceback" not in text


def test_an_unknown_tool_and_a_fault_are_errors_of_the_tool(monkeypatch):
    assert "Unknown tool 'estimat'. Did you mean estimate" in call("estimat", {})[1][0]
    monkeypatch.setattr("accelsim.handover.fits.fits", lambda *_, **__: 1 / 0)
    is_error, [text] = call("fits", {"model": "qwen3-8b", "device": "t4"})
    assert is_error
    assert text.startswith("ZeroDivisionError: division by zero. This is a fault of accelsim.")


@pytest.mark.parametrize(("name", "argument"), FILES)
@pytest.mark.parametrize("way", ["outside", "dots", "link"])
def test_files_outside_of_the_folder_are_refused(tmp_path, name, argument, way):
    folder = tmp_path / "inside"
    folder.mkdir()
    secret = tmp_path / "secret.json"
    secret.write_text('{"token": "hunter2"}')
    link = folder / "link.json"
    link.symlink_to(secret)
    path = str({"outside": secret, "dots": folder / ".." / "secret.json", "link": link}[way])
    is_many = "array" in json.dumps(input_schema(name)["properties"][argument])
    asked = BESIDE.get(name, {}) | {argument: [path] if is_many else path}
    if argument == "add_to":
        (folder / "runs.csv").write_text("model,device,metric,value\n")
        asked["files"] = [str(folder / "runs.csv")]
    with reading_below(folder), pytest.raises(InputError) as refused:
        answer(name, asked)
    assert "outside of the folder that may be read" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_every_path_is_tried():
    named = {
        (name, argument)
        for name in TOOLS
        for argument, said in input_schema(name)["properties"].items()
        if '"path"' in json.dumps(said)
    }
    assert named - set(FILES) == set()


def test_a_scenario_may_name_no_file_outside(tmp_path):
    from accelsim.capacity.scenario_template import TEMPLATE
    from accelsim.files.datafile import parse_yaml

    scenario = parse_yaml(TEMPLATE)
    (tmp_path / "model.yaml").write_text("{}")
    scenario["services"][0]["model"] = str(tmp_path / "model.yaml")
    with reading_below(), pytest.raises(InputError, match="outside of the folder"):
        answer("plan", {"scenario": scenario})
    with reading_below(), pytest.raises(InputError, match="name: Field required"):
        answer("plan", {"scenario": {}})


def test_a_folder_that_is_given_is_read_from_its_own_paths(tmp_path):
    from accelsim.files.datafile import data_root

    text = (data_root() / "workloads" / "resnet-50.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("resnet-50", "mine", 1))
    words = ["-m", "accelsim.cli", "mcp", "--folder", str(tmp_path)]
    server = sdk.StdioServerParameters(
        command=sys.executable, args=words, env={"PYTHONPATH": str(Path.cwd())}
    )
    is_error, [text] = call("estimate", {"model": "mine.yaml", "device": "t4"}, server=server)
    assert not is_error
    assert json.loads(text)["workload"] == "mine"


def test_a_folder_that_is_left_binds_no_longer(tmp_path):
    (tmp_path / "mine.yaml").write_text("{}")
    with reading_below():
        pass
    with pytest.raises(InputError, match="name: field required"):
        answer("fits", {"model": str(tmp_path / "mine.yaml"), "device": "t4"})


def test_what_is_missing_is_said(refused, monkeypatch, tmp_path):
    assert "a folder that exists" in refused("mcp", "--folder", tmp_path / "none")
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    assert "pip install 'accelsim[mcp]'" in refused("mcp")


def test_an_argument_of_the_wrong_type_names_what_is_expected():
    with pytest.raises(InvalidValueError, match="scenario = 3 is not allowed"):
        answer("plan", {"scenario": 3})
