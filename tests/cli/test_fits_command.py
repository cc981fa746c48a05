"""``accelsim fits``: formats, exit codes, its processor time."""

from __future__ import annotations

import pytest

from accelsim.cli.entry import DOES_NOT_FIT

ASKED = ("fits", "qwen3-30b-a3b", "--device", "rtx-4060-ti-16gb")


@pytest.mark.parametrize("output_format", ["table", "json", "csv", "md"])
def test_what_fits(run, output_format):
    ran = run(*ASKED, "--format", output_format)
    assert ran.code == 0
    if output_format == "json":
        assert ran.json["best"] == "q3_k_m"
        assert ran.json["metrics"]["tokens_per_s"]["low"] > 0
        assert len(ran.json["ways"]) == 10
    elif output_format == "csv":
        assert ran.rows[0]["precision"] == "fp16"
    else:
        assert "llama-server -m qwen3-30b-a3b-Q3_K_M.gguf -c 4096 -ngl 99" in ran.out


def test_what_runs_nowhere_ends_with_3(run):
    ran = run("fits", "llama-3.1-405b", "-d", "rtx-3060")
    assert ran.code == DOES_NOT_FIT
    assert "does not run" in ran.out


def test_bad_input_is_one_line(refused):
    assert "generates text" in refused("fits", "resnet-50", "-d", "t4")
    assert "Did you mean" in refused("fits", "qwen3-8b", "-d", "rtx-4099")
    assert "context" in refused("fits", "qwen3-8b", "-d", "t4", "--context", "1")
