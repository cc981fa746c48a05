"""``accelsim stacks``."""

from __future__ import annotations

import pytest

from accelsim.catalog.stacks import stack_names


@pytest.mark.parametrize(
    "command",
    [("list",), ("list", "--device", "t4"), ("show", "pytorch"), ("engines", "--device", "t4")],
)
@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
@pytest.mark.parametrize("columns", ["80", "100"])
def test_every_listing_has_every_format(run, monkeypatch, command, output_format, columns):
    monkeypatch.setenv("COLUMNS", columns)
    ran = run("stacks", *command, "--format", output_format)
    assert ran.code == 0
    if output_format == "table":
        assert max(map(len, ran.out.splitlines())) <= int(columns)


def test_all_stacks_are_listed(run):
    rows = run("stacks", "list", "--format", "json").json
    assert [row["name"] for row in rows] == list(stack_names())
    assert all(row["source"] and row["versions"] for row in rows)
    of_tpu = run("stacks", "list", "--device", "tpu-v4", "--format", "json").json
    assert [row["name"] for row in of_tpu] == ["maxtext", "vendor-compiler", "xla"]


def test_a_spread_that_nobody_measured_says_so(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    (line,) = (x for x in run("stacks", "list").out.splitlines() if x.startswith("pytorch"))
    assert line.split()[-2:] == ["no", "rows"]
    (line, _) = (x for x in run("stacks", "show", "pytorch").out.splitlines() if "no rows" in x)
    assert line.split()[-3:] == ["no", "rows", "none"]


def test_a_stack_shows_the_source_of_all_it_says(run):
    document = run("stacks", "show", "pytorch", "--format", "json").json
    assert {one["version"] for one in document["versions"]} >= {"2.11", "1.13"}
    said = [*document["versions"], *document["ways"].values(), *document["layouts"].values()]
    assert all(len(one["source"]) > 8 for one in said)
    assert "without compiled" in run("stacks", "show", "pytorch@1.13").out


def test_a_trainer_shows_how_it_trains_and_others_do_not(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    shown = run("stacks", "show", "deepspeed", "--format", "json").json["trainer"]
    assert (shown["gathers"], shown["attention"]["Hopper"]) == ("tensor", "flash-attention-2")
    assert "recomputes selective" in run("stacks", "show", "torchtitan").out
    assert "waits for the counts" in run("stacks", "show", "megatron").out
    assert run("stacks", "show", "vllm", "--format", "json").json["trainer"] is None


def test_an_unknown_stack_or_version_is_refused(refused):
    assert "tensorrt" in refused("stacks", "show", "tensort")
    assert "vllm@0.9" in refused("stacks", "show", "vllm@0.8")


def test_engines_are_listed_by_version_with_their_limits_on_a_device(run):
    rows = run("stacks", "engines", "--device", "l4", "--format", "json").json
    newest = {row["name"]: row for row in reversed(rows)}
    assert newest["vllm"]["versions"].endswith("0.19")
    assert newest["vllm"]["max_batch_tokens"] == 2048
    assert all(row["source"] for row in rows)
    assert "server_args.py" in run("stacks", "engines").out
