"""Operators of the steps that a served load takes: a prompt of its mean length, and one further
token of as many sequences as are under way on average.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.estimation.passes import run_passes
from accelsim.estimation.simulate import simulated
from accelsim.report.operators import OperatorRun, energy_section, roofline_section
from accelsim.report.page import Section
from accelsim.report.run_page import operator_frame

if TYPE_CHECKING:
    from accelsim.estimation.run import ResolvedRun
    from accelsim.serving.result import ServingResult


def step_sections(result: ServingResult) -> list[Section]:
    """Roofline of the steps' operators, and their time and energy by kind.

    Args:
        result: A served load with its requests.
    """
    runs = step_runs(result)
    text = "Means of the load, a step of each on one rank, as the model predicts it."
    title = "Time and energy of a step by kind of operator"
    return [
        roofline_section(runs, text, title="Roofline of the steps"),
        energy_section(runs, "kind", name="by-kind", title=title),
    ]


def step_runs(result: ServingResult) -> list[OperatorRun]:
    """Operators of a step of prompts and of one of further tokens; of models that generate no
    tokens, of one batch.

    Args:
        result: A served load with its requests.
    """
    stages = {name: _mean_under_way(result, name) for name in ("prompt", "further tokens")}
    if not result.runs["further"].workload.autoregressive:
        batch = stages["prompt"]
        return [_operators(f"batch of {batch:,}", result.runs["prompts"], "forward", batch=batch)]
    prompt, output = _mean_lengths(result)
    sizes = {"batch": 1, "seq_len": prompt, "output_len": 1}
    step_runs = [_operators(f"prompt of {prompt:,}", result.runs["prompts"], "prefill", **sizes)]
    if output > 1:
        count, context = stages["further tokens"], prompt + output // 2
        sizes = {"batch": count, "seq_len": context, "output_len": 2}
        words = f"further token of {count:,}"
        step_runs.append(_operators(words, result.runs["further"], "decode", **sizes))
    return step_runs


def _operators(words: str, run: ResolvedRun, part: str, **sizes: Any) -> OperatorRun:
    asked = replace(run, **sizes)
    passes = run_passes(asked)
    wanted = tuple(one for one in passes.passes if one.name == part)
    frame = operator_frame(simulated(asked, replace(passes, passes=wanted)))
    return OperatorRun(run.device, run.precision.name, frame, words)


def _mean_lengths(result: ServingResult) -> tuple[int, int]:
    """Mean tokens of prompts and of answers."""
    frame = result.to_requests()
    prompt, output = frame["prompt_tokens"].mean(), frame["output_tokens"].mean()
    return max(round(prompt), 1), max(round(output), 1)


def _mean_under_way(result: ServingResult, stage: str) -> int:
    """Requests in a stage on one replica, mean over the time in which there are any."""
    steps = result.stage_counts()[stage]
    lasts = np.diff(steps.time_s)
    count = steps.value[:-1]
    busy_s = lasts[count > 0].sum()
    mean = (count * lasts).sum() / busy_s / result.replicas if busy_s else 1.0
    return max(round(float(mean)), 1)
