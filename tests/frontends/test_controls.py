"""Controls of the live pages: every option has one, and links and commands say the same."""

from __future__ import annotations

import json
import shlex
from urllib.parse import parse_qsl

import pytest

from accelsim.frontends.controls import QUESTIONS, command_line, controls, hidden, linked, restored
from accelsim.frontends.tools import answer, flags

#: What a browser may not give.
PATHS = {
    "device": {"device_file", "learned"},
    "train": {"learned"},
    "serve": {"arrivals", "step_times", "learned"},
    "plan": set(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_option_is_a_control_but_paths(question):
    assert hidden(question) == PATHS[question]
    assert {*controls(question), *PATHS[question]} == set(flags(QUESTIONS[question][0]))
    assert all(one.about and one.group for one in controls(question).values())


def test_learned_runs_are_chosen_among_files_given_at_the_start():
    assert "learned" not in controls("device")
    assert list(controls("device", ["/x/mine.json"])["learned"].choices) == ["/x/mine.json"]


def test_a_link_restores_both_scenarios():
    known = controls("serve")
    first = {"model": "qwen3-8b", "device": "2 x t4", "rate": 2.5, "pool": ["a", "b"], "tp": 2}
    scenarios = [first, {**first, "rate": 3.0, "sparse_weights": True}]
    *found, refused = restored(parse_qsl(linked(scenarios, known)), known)
    assert found == scenarios
    assert not refused


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (("batch", "x"), "batch = 'x' is not allowed: expected a number"),
        (("b.bach", "1"), "Unknown option of the link 'bach'. Did you mean batch"),
        (("model", "x" * 1_000), "is not allowed: expected 300 characters"),
        (("device_file", "/etc/passwd"), "Unknown option of the link 'device_file'"),
    ],
)
def test_what_a_link_cannot_say_is_refused_alone(pair, said):
    first, second, [told] = restored([("precision", "fp16"), pair], controls("device"))
    assert said in told
    assert (first, second) == ({"precision": "fp16"}, {})


@pytest.mark.parametrize(
    ("question", "values"),
    [
        ("device", {"model": "resnet-50", "device": "t4", "batch": 8, "precision": "int8"}),
        ("device", {"model": "bert-base", "device": "t4", "gpus": 1, "sparse_weights": False}),
        ("train", {"model": "resnet-50", "cluster": "dgx-h100", "gpus": 8, "global_batch": 512}),
        ("serve", {"model": "qwen3-0.6b", "device": "t4", "rate": 1.0, "requests": 4}),
    ],
)
def test_the_command_gives_the_answer_of_the_page(run, question, values):
    words = shlex.split(command_line(question, values, controls(question)))
    shown = json.loads(answer(QUESTIONS[question][0], values))
    assert json.loads(run(*words[1:], "--format", "json").out)["metrics"] == shown["metrics"]
