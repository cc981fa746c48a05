"""``accelsim doctor`` and completion: what is here, and how a command goes on."""

from __future__ import annotations

import pytest

import accelsim


def test_it_says_what_is_here(run, monkeypatch, tmp_path):
    monkeypatch.setenv("ACCELSIM_DEVICE_PATH", str(tmp_path / "none"))
    found = run("doctor", "--format", "json").json
    assert found["version"] == accelsim.__version__
    assert found["devices_count"] == len(accelsim.device_names())
    assert any("ACCELSIM_DEVICE_PATH" in problem for problem in found["problems"])
    assert found["variables"]["ACCELSIM_DEVICE_PATH"] == str(tmp_path / "none")
    torch = next(one for one in found["extras"] if one["extra"] == "torch")
    assert torch["installed"] == (torch["packages"]["torch"] is not None)
    assert "pip install" in run("doctor").out or all(one["installed"] for one in found["extras"])


def test_a_folder_of_workloads_that_is_not_there_is_a_problem(run, monkeypatch, tmp_path):
    monkeypatch.setenv("ACCELSIM_WORKLOAD_PATH", str(tmp_path / "none"))
    shown = run("doctor")
    assert shown.code == 0
    assert "unknown workloads" in shown.out
    assert "Mend ACCELSIM_WORKLOAD_PATH" in shown.out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("accelsim est", {"estimate"}),
        ("accelsim compare resnet-50 --devices t4,tpu-v5", {"t4,tpu-v5e", "t4,tpu-v5p"}),
        ("accelsim estimate lenet", {"lenet-5"}),
        ("accelsim estimate resnet-50 --device t4 --exec", {"--execution"}),
    ],
)
def test_the_shell_is_told_how_a_command_goes_on(run, monkeypatch, words, offered):
    monkeypatch.setenv("_ACCELSIM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert set(run().out.split()) == offered


def test_schemas_are_written(run, refused):
    assert run("schema", "sweep").json["title"] == "accelsim sweep"
    assert "scenario" in refused("schema", "senario")
