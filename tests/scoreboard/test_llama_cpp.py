"""Tokens a second that people report of llama.cpp on their boards."""

import numpy as np
import pytest

from accelsim.catalog import device
from accelsim.scoreboard import validate
from accelsim.scoreboard.llama_cpp import board_row

#: A prediction further off, either way, misleads; a board's note names the exceptions.
FAR = 1.5
#: Boards with rows that were in the catalogue before; their prompts run on kernels of later builds.
SERVERS = {"a100-sxm-80gb", "h100-sxm-80gb", "mi210", "mi300x"}


@pytest.fixture(scope="module")
def suite():
    (found,) = validate(["llama-cpp"]).suites
    return found


def test_every_row_is_answered_near_what_was_reported(suite):
    assert not suite.refused
    assert suite.figures.rows_answered == 213
    assert suite.figures.median_ape_fraction < 0.15
    assert 0.85 < suite.figures.interval_coverage_fraction <= 0.95
    assert abs(suite.figures.bias_fraction) < 0.05


def test_a_board_lies_within_half_or_its_note_says_so(suite):
    far = set()
    for part in suite.rows:
        ratio = np.abs(np.log(part.predicted_s / part.measured_s))
        if (ratio > np.log(FAR)).any():
            far.add(part.profile)
    unsaid = {name for name in far - SERVERS if "suite llama-cpp" not in (device(name).note or "")}
    assert not unsaid


def test_a_row_is_a_prompt_or_tokens_after_one():
    record = {
        "backend": "metal",
        "device": "apple-m4-max",
        "workload": "llama-2-7b",
        "precision": "q8_0",
        "tokens": 512,
        "value": 256.0,
        "metric": "prompt_tokens_per_s",
    }
    prompt = board_row(record)
    assert prompt.measured_s == 2.0
    assert (prompt.run.run.seq_len, prompt.run.run.output_len) == (512, 0)
    token = board_row(record | {"tokens": 128, "metric": "decode_tokens_per_s"})
    assert token.measured_s == 1 / 256.0
    assert (token.run.run.seq_len, token.run.run.output_len) == (1, 128)


def test_a_row_of_an_unknown_board_is_refused_by_name():
    record = dict.fromkeys(("workload", "precision"), "llama-2-7b") | {
        "backend": "cuda",
        "device": "rtx-9999",
        "tokens": 128,
        "value": 1.0,
        "metric": "decode_tokens_per_s",
    }
    assert "rtx-9999" in board_row(record).refusal
