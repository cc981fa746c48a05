"""Learn from measured runs: the door that reads files, predicts their runs and makes a profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import accelsim
from accelsim.arguments import checked
from accelsim.confidence.quantiles import Z90
from accelsim.errors import InputError, InvalidValueError
from accelsim.estimation.estimate import estimate
from accelsim.estimation.learned import Learned, LearnedRun, System, read_learned
from accelsim.estimation.options import ModelOptions, RunOptions, RunShape
from accelsim.estimation.simulate import simulate, system_of
from accelsim.frozen import frozen
from accelsim.learning.readings import Entry, Reading, Told
from accelsim.plain import Document, Values
from accelsim.quantity import duration
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import replica_plan
from accelsim.serving.serve import serve
from accelsim.serving.steps.combined_steps import ScaledSteps
from accelsim.serving.trust import ServedRun
from accelsim.simulation.randomness import RandomStreams
from accelsim.training.estimate import train
from accelsim.training.trust import iteration_log_sigma, iteration_system

__all__ = ["LearnedFiles", "Told", "learn", "learned_systems"]
Progress = Callable[[int, int, str], None]
#: Rounds in which steps are fitted to a server's figures, and the largest ratio that they may have.
_ROUNDS = 6
#: How near the simulated load must come to what was measured for its steps to say something.
_REPEATED = 1.1
_LARGEST_RATIO = 100.0


@frozen(eq=False)
class LearnedFiles:
    """A profile, and what could not be learned.

    Attributes:
        profile: The profile.
        refused: Runs that nothing is predicted of, with the reason, by place.
    """

    profile: Learned
    refused: Values

    def rows(self) -> list[Document]:
        """One mapping per run: what was measured, predicted, and what becomes of it."""
        far = {id(run) for run in self.profile.far_runs}
        return [
            {
                "source": run.source,
                "phase": run.phase,
                "model": run.model,
                "device": run.device,
                "stack": f"{run.stack} {run.version}".strip(),
                "precision": run.precision,
                "measured_s": run.measured,
                "predicted_s": run.predicted,
                "off_fraction": run.measured / run.predicted - 1.0,
                "is_far": id(run) in far,
            }
            for run in self.profile.ordered
        ]


@checked
def learn(
    files: Sequence[str | Path],
    told: Told | None = None,
    *,
    known: str | Path | None = None,
    progress: Progress | None = None,
) -> LearnedFiles:
    """Learn from files of measured runs.

    Args:
        files: Results of ``vllm bench serve``, SGLang's ``bench_serving`` or ``llama-bench``
            (JSON), reports of llm-d (YAML or JSON), tables of runs or logs of training (CSV).
        told: What the files do not say.
        known: Profile that the runs are added to.
        progress: Called before each run with its place, the number of runs and where it is from.

    Raises:
        InputError: If a file cannot be read, or nothing of it; its subclasses say which. Lines and
            results that say too little, or cannot be predicted, are refused alone.
    """
    entries = list(_entries(map(Path, files), told or Told()))
    runs = [] if known is None else _known_runs(known)
    read_runs, refused = _predicted_runs(entries, progress, alone=not runs)
    runs += read_runs
    if not runs:
        reasons = "; ".join(dict.fromkeys(map(str, refused.values()))) or "they hold no run"
        raise InvalidValueError("files", [str(f) for f in files], f"runs to learn from: {reasons}")
    distinct_runs, version = tuple(_distinct(runs, refused)), accelsim.__version__
    profile = Learned(format="accelsim-learned", version=1, accelsim=version, runs=distinct_runs)
    return LearnedFiles(profile, refused)


def _predicted_runs(
    entries: Sequence[Entry], progress: Progress | None, *, alone: bool
) -> tuple[list[LearnedRun], Document]:
    """Runs of entries, and why others were refused; the error itself where there is one entry and
    nothing else to learn from.
    """
    runs: list[LearnedRun] = []
    refused: Document = {}
    for index, entry in enumerate(entries):
        if progress is not None:
            progress(index, len(entries), entry.source)
        try:
            runs += [run for reading in entry.read() for run in _learned(reading)]
        except InputError as error:
            if alone and len(entries) == 1 and not runs:
                raise
            refused[entry.source] = str(error)
    return runs, refused


def _known_runs(path: str | Path) -> list[LearnedRun]:
    """Runs of a profile that were compared with predictions of this version."""
    profile = read_learned(path, "known")
    if profile.accelsim != accelsim.__version__:
        allowed = f"a profile that accelsim {accelsim.__version__} made, not {profile.accelsim}"
        raise InvalidValueError("known", str(path), allowed, "Learn from its files again.")
    return list(profile.runs)


def learned_systems(profile: Learned) -> list[Document]:
    """What a profile holds and says, one mapping per system: what ran on what, by which driver, how
    many runs of which days and files, how far they were off, and what an answer for it becomes.
    """
    by_system: dict[tuple[str, ...], list[LearnedRun]] = {}
    for run in profile.ordered:
        by_system.setdefault(run.system.effects, []).append(run)
    return [_system_row(profile, runs) for runs in by_system.values()]


def _system_row(profile: Learned, runs: Sequence[LearnedRun]) -> Document:
    run, dates = runs[0], sorted(learned_run.date for learned_run in runs if learned_run.date)
    prior = median(learned_run.log_sigma for learned_run in runs)
    correction = profile.correction(replace(run.system, version=run.version), prior)
    files = dict.fromkeys(learned_run.source.partition(", ")[0] for learned_run in runs)
    return {
        "phase": run.phase,
        "model": run.model,
        "device": run.device,
        "stack": f"{run.stack} {run.version}".strip(),
        "driver": run.driver or None,
        "precision": run.precision,
        "runs": len(runs),
        "dates": " to ".join(dict.fromkeys((*dates[:1], *dates[-1:]))),
        "files": ", ".join(files),
        "off_fraction": median(learned_run.ratio for learned_run in runs) - 1.0,
        "shift_fraction": math.expm1(correction.shift),
        "spread_fraction": math.expm1(Z90 * prior),
        "learned_spread_fraction": math.expm1(Z90 * correction.log_sigma),
    }


def _distinct(runs: Iterable[LearnedRun], refused: Document) -> Iterator[LearnedRun]:
    """Runs without those that are the same one again, which are refused by name."""
    source_of: dict[str, str] = {}
    for run in runs:
        content = run.model_dump_json(exclude={"source"})
        if content in source_of:
            refused[run.source] = f"it is the run of {source_of[content]} again"
        else:
            source_of[content] = run.source
            yield run


def _entries(paths: Iterable[Path], told: Told) -> Iterator[Entry]:
    """Entries of files by their endings."""
    for path in paths:
        if path.suffix == ".csv":
            from accelsim.learning.run_table import table_entries

            yield from table_entries(path, told)
        elif path.suffix in {".json", ".jsonl", ".yaml", ".yml"}:
            from accelsim.learning.json_runs import object_entries

            yield from object_entries(path, told)
        else:
            raise InvalidValueError("file", str(path), "a .json, .jsonl, .yaml or .csv file")


def _learned(reading: Reading) -> Iterator[LearnedRun]:
    if reading.load is not None:
        yield from _served(reading, reading.load)
    elif reading.told.is_planned:
        yield _trained(reading)
    else:
        yield _single(reading)


def _run(
    reading: Reading,
    system: System,
    measured_predicted_s: tuple[float, float],
    ratio: float,
    log_sigma: float,
) -> LearnedRun:
    """A run of a profile."""
    measured_s, predicted_s = measured_predicted_s
    return LearnedRun(
        **asdict(system),
        measured=measured_s,
        predicted=predicted_s,
        ratio=ratio,
        log_sigma=log_sigma,
        source=reading.source,
        date=reading.date,
        driver=reading.told.driver or "",
    )


def _single(reading: Reading) -> LearnedRun:
    """A run of its own; of a generation as a whole, the phase that takes longest."""
    told = reading.told
    ((phase, measured_s),) = reading.measured_s.items()
    is_whole = phase in {"inference", "training"}
    model = ModelOptions(precision=told.precision, stack=told.engine)
    options = RunOptions(phase if is_whole else "inference", model)
    options = replace(options, shape=RunShape(**dict(reading.shape or {})))
    question = (str(told.model), str(told.device), options)
    answer, simulated = estimate(*question), simulate(*question)
    predicted_s = {
        "prompt": answer.time_to_first_token_s,
        "decode": answer.time_per_output_token_s,
    }.get(phase, answer.latency_s)
    if predicted_s is None:
        allowed = f"a run that fits {told.device}, of a model that generates for a {phase}"
        raise InvalidValueError("batch", answer.batch, allowed)
    if is_whole:
        longest = max(simulated.passes, key=lambda run: run.repeats * run.result.latency_s)
        phase = longest.phase(simulated.run)
    system, ratio = system_of(simulated, phase), measured_s / predicted_s
    return _run(reading, system, (measured_s, predicted_s), ratio, simulated.log_sigma)


def _trained(reading: Reading) -> LearnedRun:
    """An iteration of training on several devices."""
    told, sizes = reading.told, dict(reading.shape or {})
    answer = train(
        str(told.model),
        RunOptions(model=ModelOptions(precision=told.precision, stack=told.engine)),
        plan=told.plan,
        cluster=told.cluster,
        device=told.device,
        gpus=told.gpus,
        global_batch=sizes.pop("batch", None),
        check_memory=False,
        **sizes,
    )
    iteration, predicted_s = answer.iteration, answer.iteration_s
    if iteration is None or predicted_s is None:
        raise InvalidValueError("plan", told.plan, "a plan whose time is predicted")
    measured_s, log_sigma = reading.measured_s["training"], iteration_log_sigma(iteration)
    times_s = (measured_s, predicted_s)
    return _run(reading, iteration_system(iteration), times_s, measured_s / predicted_s, log_sigma)


def _served(reading: Reading, load: Values) -> Iterator[LearnedRun]:
    """A run of a server: its prompts and its further tokens."""
    told, arrivals = reading.told, Arrivals(**load)
    options = ServingOptions(engine=told.engine, tp=told.tp or 1)
    run_options = RunOptions(model=ModelOptions(precision=told.precision))
    question = (str(told.model), str(told.device))
    longest = arrivals.columns(RandomStreams(0)).longest
    plan = replica_plan(*question, run_options, options, max_context=longest)

    def simulated(ratios: Mapping[str, float]) -> dict[str, float]:
        steps = ScaledSteps(plan.steps, ratios["decode"], ratios["prompt"])
        result = serve(*question, arrivals, options, run_options, steps=steps, intervals=False)
        times = {"decode": result.tpot_s["mean"], "prompt": result.ttft_s["mean"]}
        if None in times.values():
            raise InvalidValueError("output", load.get("output"), "two tokens or more")
        return {phase: time_s for phase, time_s in times.items() if time_s is not None}

    predicted, ratios = _step_ratios(reading.measured_s, simulated)
    like, named = ServedRun(plan.run), ServedRun(plan.run, engine_name=plan.engine_name)
    spreads = {"decode": like.common_log_sigma, "prompt": like.prompt_log_sigma}
    for phase, measured_s in reading.measured_s.items():
        log_sigma, times_s = spreads[phase](plan.steps), (measured_s, predicted[phase])
        yield _run(reading, named.system(phase), times_s, ratios[phase], log_sigma)


def _step_ratios(
    measured_s: Mapping[str, float], simulated: Callable[[Mapping[str, float]], dict[str, float]]
) -> tuple[dict[str, float], dict[str, float]]:
    """What is predicted of a server, and times of its steps over the predicted ones with which its
    load gives what was measured: prompts make others wait, so that one ratio moves both figures.
    Estimate: all steps of a phase are off by one ratio.
    """
    ratios = {"decode": 1.0, "prompt": 1.0}
    predicted = times = simulated(ratios)
    for _ in range(_ROUNDS):
        for phase, measured in measured_s.items():
            ratio = ratios[phase] * measured / times[phase]
            ratios[phase] = min(max(ratio, 1 / _LARGEST_RATIO), _LARGEST_RATIO)
        times = simulated(ratios)
    for phase, measured in measured_s.items():
        if not 1 / _REPEATED < times[phase] / measured < _REPEATED:
            allowed = f"a time that the load can have: it has {duration(times[phase])} at best"
            remedy = "Is the load that of the file, and below saturation?"
            raise InvalidValueError(f"{phase} time", duration(measured), allowed, remedy)
    return predicted, ratios
