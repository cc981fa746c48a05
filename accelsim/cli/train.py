"""``accelsim train``: one model on many devices."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from accelsim.cli.entry import end_if_partial
from accelsim.cli.result_writer import ResultWriter, with_handover
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Document
from accelsim.training.length import RunLength
from accelsim.training.setup import TrainingPlace

if TYPE_CHECKING:
    from accelsim.report.page import Page
    from accelsim.simulation.timeline import Timeline
    from accelsim.training.estimate import TrainingEstimate


@frozen
class PlanWords:
    """How the work is divided."""

    plan: str | None = option(
        "Fields of the plan: dp, tp, sp, pp, cp, ep, etp, zero, chunks ...; dp takes what is left.",
        metavar="dp=8,tp=4,...",
    )
    search: bool = option("Find the best plan; fields in --plan stay fixed.", False)
    microbatch: int | None = option("Samples that a rank runs together.")
    recompute: str | None = option(
        "Activations that are computed again: none, selective or full.", metavar="HOW"
    )
    schedule: str | None = option(
        "Schedule of a pipeline: gpipe, 1f1b, interleaved, zb-h1, zb-v or dualpipe.", metavar="NAME"
    )


@frozen
class Limits:
    """What a run may take."""

    deadline: float | None = option(
        "Longest time of the whole run. The page draws it and says whether it is kept.",
        metavar="HOURS",
    )
    budget: float | None = option(
        "Most USD of the whole run. The page draws it and says whether it is kept.", metavar="USD"
    )


@frozen
class Surroundings:
    """What else is said of a run, and what is kept of it."""

    conditions: str = option(
        "What else slows a run: straggler_fraction, loader_samples_per_s, network_share, "
        "preemption_mtbf_s, evaluation_s ...",
        "",
        "pue=1.2,...",
    )
    offer: str | None = option(
        "Offer whose price counts: provider/region/instance[:spot]. Default: the cheapest.",
        metavar="ID",
    )
    trace: Path | None = option("Write the iteration as a trace for Perfetto.", metavar="FILE")


@with_handover
def train(
    output: ResultWriter,
    around: Surroundings,
    setup: Annotated[Document, TrainingPlace, PlanWords],
    amounts: Annotated[Document, RunLength, Limits],
    run: RunOptions,
    price: PriceChoice,
    model: str = argument(
        "Workload name, or a file: workload, captured module, ONNX, HF folder or config.json.",
        "MODEL",
    ),
) -> None:
    """Estimate training on many devices: with a given plan, or with the best plan (--search)."""
    from accelsim.files.output import check_output
    from accelsim.training.estimate import train as estimate_training
    from accelsim.training.length import parse_conditions

    conditions, of_length = parse_conditions(around.conditions)
    training, trace = run.training, around.trace
    plan_words, most = _taken(PlanWords, setup), _taken(Limits, amounts)
    search = plan_words.pop("search", False)
    plan = _plan(plan_words.pop("plan", None), **plan_words, lora_rank=training.lora_rank)
    run = replace(run, training=replace(training, lora_rank=None))
    if trace is not None:
        check_output(trace, force=output.force)
    length = _length(amounts | of_length, most)
    limits = {
        "deadline_s": most["deadline"] * SECONDS_PER_HOUR if "deadline" in most else None,
        "budget_usd": most.get("budget"),
    }
    price = replace(price, offer=around.offer)
    keywords = {"length": length, "conditions": conditions, **setup}
    is_recorded = trace is not None or output.report is not None
    with output.progress("search", "groups", is_shown=search) as report:
        result = estimate_training(
            *(model, run, price),
            plan=plan,
            search=search,
            record=is_recorded,
            report=report,
            **keywords,
        )
    plain = None
    if run.learned is not None:
        plain = _unlearned(result, model, run, price, keywords)
    if trace is not None:
        _write_trace(result.timeline, trace, output)
    if output.folder is not None:
        from accelsim.capacity.assignment import of_training

        output.hand_over([of_training(result)])
    _emit(output, result, limits, plain)
    end_if_partial(result.warnings)


def _unlearned(
    result: TrainingEstimate, model: str, run: RunOptions, price: PriceChoice, keywords: Document
) -> TrainingEstimate | None:
    """The same plan by the same trainer without what the user's own runs say."""
    from accelsim.training.estimate import train as estimate_training

    if result.iteration is None:
        return None
    stack = replace(run.model, stack=result.iteration.setup.run.stack.label)
    alone = replace(run, learned=None, model=stack)
    keywords = keywords | {"gpus": result.device_count}
    return estimate_training(model, alone, price, plan=result.iteration.plan, **keywords)


def _taken(kind: type, values: Document) -> Document:
    """What was given of the fields of a class, taken from the values."""
    return {entry.name: values.pop(entry.name) for entry in fields(kind) if entry.name in values}


def _emit(
    output: ResultWriter,
    result: TrainingEstimate,
    limits: Mapping[str, float | None],
    plain: TrainingEstimate | None,
) -> None:
    """Write the answer, and whether its limits are kept."""
    from accelsim.report.training import training_view
    from accelsim.report.training_page import kept_limits, training_page

    row = {
        name: json.dumps(value) if name in result.nested else value
        for name, value in result.figures().items()
    }
    for sentence in kept_limits(row, **limits):
        output.note(sentence)

    def page(document: Document, command: str) -> Page:
        return training_page(document, command, result.iteration, **limits)

    output.emit_learned(result, training_view, plain, rows=[row], page=page)


def _plan(plan: str | None, **options: object) -> str:
    """The plan's words with those of options beside it.

    Raises:
        InvalidValueError: If both name a field.
    """
    from accelsim.training.plan import parse_plan

    fields_named = parse_plan(plan or "")
    texts = [plan] if plan else []
    for name, value in options.items():
        if value is not None and name in fields_named:
            allowed = f"no value beside {name} in --plan"
            raise InvalidValueError(name, value, allowed, "Give one of them.")
        if value is not None:
            texts.append(f"{name}={value}")
    return ",".join(texts)


def _length(amounts: Document, most: Document) -> RunLength | None:
    """The length of the run; None where only an iteration is asked.

    Raises:
        InvalidValueError: If failures, checkpoints or limits are given without a length, or a limit
            is no number above 0.
    """
    if not amounts.keys() & {"tokens", "samples", "epochs"}:
        for name, amount in (amounts | most).items():
            allowed = "no value without --tokens, --samples or --epochs"
            raise InvalidValueError(name, amount, allowed)
        return None
    for name, limit in most.items():
        if not 0 < limit < math.inf:
            raise InvalidValueError(name, limit, "a finite number above 0")
    return RunLength(**amounts)


def _write_trace(timeline: Timeline | None, path: Path, output: ResultWriter) -> None:
    if timeline is None:
        allowed = "a schedule that is simulated: gpipe, 1f1b, interleaved, zb-h1"
        raise InvalidValueError("trace", str(path), allowed, "Choose another --schedule.")
    timeline.to_perfetto(path, force=output.force)
    output.wrote(path, "; open it at https://ui.perfetto.dev")
