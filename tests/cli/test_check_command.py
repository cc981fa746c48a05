"""``accelsim check``: lines, exit codes, formats."""

from __future__ import annotations

import pytest

LINE = "vllm serve meta-llama/Llama-3.2-1B --max-model-len 4096"
LOAD = ("--rate", 2, "--requests", 40, "--prompt", 200, "--output", 20)


@pytest.mark.parametrize("output_format", ["table", "json", "csv", "md"])
def test_a_line_that_fits(run, output_format):
    ran = run("check", LINE, "-d", "l4", *LOAD, "--format", output_format)
    assert ran.code == 0
    if output_format == "json":
        assert ran.json["fits"] is True
        assert ran.json["ttft_s"]["p99"] > 0
        assert ran.json["metrics"]["cost_usd_per_hour"]["value"] > 0
    elif output_format != "csv":
        assert "fits" in ran.out
        assert "an hour" in ran.out


def test_one_that_does_not_fit_ends_with_3(run):
    ran = run("check", f"{LINE} --swap-space 4", "--format", "csv")
    assert ran.code == 3
    assert ran.rows[0]["option"] == "'--swap-space"  # no formula of a spreadsheet
    assert run("check", f"{LINE} --swap-space 4", "--engine-version", "0.9.2").code == 0


def test_a_file_that_holds_the_line(run, tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text(f"#!/bin/sh\n{LINE} \\\n  --max-num-seqs 8\n")
    ran = run("check", path, "--format", "json")
    assert ran.json["settings"] == {"max_context": 4096, "max_seqs": 8}


def test_bad_input_is_one_line(refused):
    assert "begins with" in refused("check", "rm -rf /")
    assert "Unknown device" in refused("check", LINE, "-d", "h900")
    assert "Unknown workload" in refused("check", "vllm serve nobody/nothing")


@pytest.mark.parametrize("output_format", ["table", "json", "csv", "md"])
def test_plan_diff_ends_with_1_where_anything_gets_worse(run, output_format):
    pair = LINE, f"{LINE} -tp 2"
    ran = run("plan diff", *pair, "-d", "l4", *LOAD, "--format", output_format)
    assert ran.code == 1
    if output_format == "json":
        assert ran.json["is_worse"] is True
        assert ran.json["kind"] == "plan difference"
    elif output_format != "csv":
        assert "worse" in ran.out
    assert run("plan", "diff", pair[0], pair[0], "-d", "l4", *LOAD).code == 0
    assert run("plan", "diff", *pair, "-d", "l4", *LOAD, "--tolerance", 2).code == 2
