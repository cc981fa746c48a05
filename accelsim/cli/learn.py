"""``accelsim learn``: what measured runs of one's own say of all further answers."""

from __future__ import annotations

from pathlib import Path

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.learning.readings import Told
from accelsim.option import argument, option


@with_output
def learn(
    output: ResultWriter,
    told: Told,
    files: list[Path] = argument(
        "Results of vllm bench serve, SGLang's bench_serving or llama-bench (.json, .jsonl), "
        "benchmark reports of llm-d (.yaml, .json), tables of runs (.csv: model, device, metric, "
        "value, ...) or logs of training (.csv: step, iteration_s, ...).",
        "FILE...",
    ),
    add_to: Path | None = option("Profile that the runs are added to.", None, "FILE"),
) -> None:
    """Learn from runs that you measured; --out writes the profile that --learned takes."""
    from accelsim.learning.learn import learn as learned_from
    from accelsim.report.learning import learned_view

    with output.progress("predicting") as report:
        learned = learned_from(files, told, known=add_to, progress=report)
    for source, reason in learned.refused.items():
        output.note(f"{source} was refused: {reason}")
    rows = learned.rows()
    profile = learned.profile.model_dump(mode="json")
    output.emit(profile, lambda _: learned_view(rows), rows=rows)


@with_output
def learn_show(
    output: ResultWriter, profile: Path = argument("A file that accelsim learn wrote.", "FILE")
) -> None:
    """Show what a profile of measured runs holds, and how it changes answers."""
    from accelsim.estimation.learned import read_learned
    from accelsim.learning.learn import learned_systems
    from accelsim.report.learning import systems_view

    learned = read_learned(profile, "profile")
    rows = learned_systems(learned)
    about = f"{len(learned.runs):,} runs, compared with predictions of accelsim {learned.accelsim}"
    data = {"accelsim": learned.accelsim, "runs": len(learned.runs), "systems": rows}
    output.emit(data, lambda _: systems_view(rows), rows=rows, note=about)


@with_output
def learn_steps(
    output: ResultWriter,
    benchmark: Path = argument("JSON of vllm bench serve --save-result --save-detailed.", "FILE"),
    max_batch_tokens: int = option("The server's max_num_batched_tokens.", 8192),
) -> None:
    """Make step times of a server from its benchmark, for serve to use instead of its own."""
    from accelsim.serving.steps.fitted_steps import fit_steps
    from accelsim.serving.steps.server_run import read_benchmark, step_rows

    run = read_benchmark(benchmark, max_batch_tokens)
    rows, fitted = step_rows(run.steps), fit_steps(run.steps)
    for reason, count in run.skips.items():
        if count:
            output.note(f"{count:,} {reason} left out")
    output.note(
        f"{len(rows):,} steps of {run.requests:,} requests; the fitted steps are "
        f"{100 * fitted.log_sigma:.1f} % off (standard deviation)"
    )
    shown = ">prefill_tokens | >prefill_context_sum | >decode_count | >decode_context_sum | >s"
    output.emit(rows, shown)
