"""``accelsim train``: one model on many devices."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.cli.entry import end_if_partial
from accelsim.cli.progress import progress_bar
from accelsim.cli.report_file import command_text
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError

if TYPE_CHECKING:
    from accelsim.plain import Document
    from accelsim.report.page import Page
    from accelsim.training.estimate import TrainingEstimate
    from accelsim.training.length import RunLength

_SECONDS_PER_HOUR = 3600.0


@with_output
def train(
    output: ResultWriter,
    model: str,
    cluster: str | None = None,
    device: str | None = None,
    gpus: int | None = None,
    plan: str | None = None,
    search: bool = False,
    global_batch: int | None = None,
    microbatch: int | None = None,
    recompute: str | None = None,
    schedule: str | None = None,
    tokens: float | None = None,
    samples: float | None = None,
    epochs: float | None = None,
    epoch_samples: float | None = None,
    mtbf: float | None = None,
    checkpoint: float | None = None,
    conditions: str = "",
    trace: Path | None = None,
    offer: str | None = None,
    deadline: float | None = None,
    budget: float | None = None,
    *,
    keywords: dict[str, Any],
) -> None:
    """Estimate training on many devices: one plan, or the best one found."""
    from accelsim.files.output import check_output
    from accelsim.training.estimate import train as estimate_training
    from accelsim.training.length import parse_conditions

    around, of_length = parse_conditions(conditions)
    words = _words(
        plan,
        microbatch=microbatch,
        recompute=recompute,
        schedule=schedule,
        lora_rank=keywords.pop("lora_rank"),
    )
    amounts = {
        "tokens": tokens,
        "samples": samples,
        "epochs": epochs,
        "epoch_samples": epoch_samples,
        "mtbf_s": None if mtbf is None else mtbf * _SECONDS_PER_HOUR,
        "checkpoint_s": checkpoint,
        **of_length,
    }
    if trace is not None:
        check_output(trace, force=output.force)
    length = _length(amounts | {"deadline": deadline, "budget": budget})
    limits = {
        "deadline_s": None if deadline is None else deadline * _SECONDS_PER_HOUR,
        "budget_usd": budget,
    }
    ask = partial(
        estimate_training,
        model,
        cluster=cluster,
        device=device,
        gpus=gpus,
        global_batch=global_batch,
        length=length,
        conditions=around,
        offer=offer,
        **keywords,
    )
    with progress_bar("search", unit="groups", quiet=output.quiet or not search) as report:
        is_kept = trace is not None or output.report is not None
        result = ask(plan=words, search=search, record=is_kept, report=report)
    if trace is not None:
        _write_trace(result.timeline, trace, output)
    from accelsim.report.training import training_view
    from accelsim.report.training_page import kept_limits

    figures = result.figures()
    row = {
        name: json.dumps(value) if name in result.nested else value
        for name, value in figures.items()
    }
    asked = str(result.inputs["plan"])
    document = result.to_dict()
    for sentence in kept_limits(document, **limits):
        output.note(sentence)
    output.emit(
        document,
        lambda: training_view(result, asked),
        rows=[row],
        page=lambda: _page(document, result, ask, (cluster, length), limits),
    )
    end_if_partial(result.warnings)


def _page(
    document: Document,
    result: TrainingEstimate,
    ask: Callable[..., TrainingEstimate],
    asked: tuple[str | None, RunLength | None],
    limits: dict[str, float | None],
) -> Page:
    from accelsim.catalog import clusters as cluster_catalog
    from accelsim.exploration.sensitivity.training import training_changes
    from accelsim.report.training_page import training_page

    cluster, length = asked
    named = cluster or result.cluster
    joined = None if named is None else cluster_catalog.cluster(named)
    changes = training_changes(ask, result, joined, length)
    return training_page(document, command_text(), result.iteration, changes, **limits)


def _words(plan: str | None, **options: Any) -> str:
    """The plan's words with those of options beside it.

    Raises:
        InvalidValueError: If both name a field.
    """
    from accelsim.training.plan import parse_plan

    named = parse_plan(plan or "")
    words = [plan] if plan else []
    for name, value in options.items():
        if value is None:
            continue
        if name in named:
            allowed = f"no value beside {name} in --plan"
            raise InvalidValueError(name, value, allowed, "Give one of them.")
        words.append(f"{name}={value}")
    return ",".join(words)


def _length(amounts: dict[str, float | None]) -> RunLength | None:
    """The length of the run; None where only an iteration is asked.

    Raises:
        InvalidValueError: If failures, checkpoints or limits are given without a length, or a limit
            is no number above 0.
    """
    from accelsim.training.length import RunLength

    if all(amounts[name] is None for name in ("tokens", "samples", "epochs")):
        for name, amount in amounts.items():
            if amount is not None:
                allowed = "no value without --tokens, --samples or --epochs"
                raise InvalidValueError(name, amount, allowed)
        return None
    for name in ("deadline", "budget"):
        most = amounts.pop(name)
        if most is not None and not 0 < most < math.inf:
            raise InvalidValueError(name, most, "a finite number above 0")
    return RunLength(**amounts)  # type: ignore[arg-type]


def _write_trace(timeline: Any, path: Path, output: ResultWriter) -> None:
    if timeline is None:
        allowed = "a schedule that is simulated: gpipe, 1f1b, interleaved, zb-h1"
        raise InvalidValueError("trace", str(path), allowed, "Choose another --schedule.")
    timeline.to_perfetto(path, force=output.force)
    output.wrote(path, "; open it at https://ui.perfetto.dev")
