"""What changes between two plans, loads, training runs or lines, and whether for the worse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import ClassVar

import accelsim
from accelsim.capacity.assignment import Assignment, of_rows
from accelsim.capacity.plan import plan
from accelsim.capacity.scenario import Scenario, Service
from accelsim.catalog.workloads import workload
from accelsim.economics.result import JOULES_PER_KWH
from accelsim.errors import InputError, InvalidValueError
from accelsim.files.datafile import read_json, read_mapping, read_text
from accelsim.frozen import frozen
from accelsim.handover.check import LineQuestion, check_line
from accelsim.plain import Document, Values
from accelsim.quantity import value_at, words, written
from accelsim.result import Metric, Provenance, Result
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
from accelsim.serving.serve import serve

#: What is not told apart where no other share is said.
TOLERANCE = 0.01
#: Probabilities that limits of time hold.
_TIMES = ("ttft_p99_s", "tpot_p99_s")
_HELD = ("slo_probability", "deadline_probability")
#: Changes that the sentence names.
_MOST_CHANGES = 5
#: Figures that are compared, of which less is better: our name, and where results of a kind have
#: it. The first that both have are those of the sentence.
_OF_LOAD = {
    "cost_usd_per_month": "cost_usd_per_month",
    "energy_kwh_per_month": "energy_kwh_per_month",
    "carbon_kgco2e_per_month": "carbon_kgco2e_per_month",
    "ttft_p99_s": "ttft_s.p99",
    "tpot_p99_s": "tpot_s.p99",
    "e2e_p99_s": "e2e_s.p99",
    "cost_usd_per_million_tokens": "cost_usd_per_million_tokens",
}
_OF_RUN = {
    "cost_usd": "total_cost_usd",
    "energy_j": "total_energy_j",
    "carbon_kgco2e": "total_carbon_kgco2e",
    "time_to_train_s": "time_to_train_s",
    "iteration_s": "iteration_s",
    "cost_usd_per_million_tokens": "cost_usd_per_million_tokens",
}
_OF_PLAN = {name: name for name in ("cost_usd_per_month", "carbon_kgco2e_per_month")}


@frozen
class Standing:
    """One side of a comparison.

    Attributes:
        kind: What it is.
        figures: Figures of which less is better, by name; None where unknown.
        settings: What it is made of, as texts.
        fits: Whether there is an answer at all.
    """

    kind: str
    figures: Mapping[str, float | None]
    settings: Mapping[str, str]
    fits: bool = True


@frozen(repr=False)
class PlanDifference(Result):
    """What changes.

    Attributes:
        changes: What, before, after, its change as a share, and "better", "worse" or "".
        tolerance_fraction: Share that is not told apart.
        is_worse: Whether anything changes for the worse.
        sentence: The changes in words.
        inputs: The two that are compared.
    """

    kind: ClassVar[str] = "plan difference"
    nested: ClassVar[frozenset[str]] = frozenset({"changes"})
    changes: tuple[Values, ...]
    tolerance_fraction: float
    is_worse: bool
    sentence: str
    inputs: Values = field(default_factory=dict)

    @property
    def provenance(self) -> Provenance:
        """Version, and what is compared."""
        return Provenance(accelsim.__version__, parts={"compared": str(dict(self.inputs))})

    @property
    def warnings(self) -> tuple[str, ...]:
        """None of its own."""
        return ()

    @property
    def metrics(self) -> dict[str, Metric]:
        """Changes of figures, as shares."""
        return {
            f"{row['what']}_change_fraction": Metric(row["change_fraction"])
            for row in self.changes
            if row["change_fraction"] is not None
        }

    def figures(self) -> Document:
        """The answer in plain values."""
        return {
            "sentence": self.sentence,
            "is_worse": self.is_worse,
            "tolerance_fraction": self.tolerance_fraction,
            "changes": [dict(row) for row in self.changes],
        }


def difference(
    old: str, new: str, question: LineQuestion | None = None, tolerance: float = TOLERANCE
) -> PlanDifference:
    """Compare two.

    Args:
        old: A scenario (YAML or JSON), saved JSON of `plan`, `serve`, `train` or `check`, or a line
            or its file.
        new: The same.
        question: Device, load and price, for lines.
        tolerance: Share of a figure that is not told apart.

    Raises:
        InvalidValueError: If the two have no figure in common, or the tolerance is no share.
        InputError: If one cannot be read or answered.
    """
    if not 0 <= tolerance < 1:
        raise InvalidValueError("tolerance", tolerance, "0 to below 1")
    question = question or LineQuestion()
    before = _standing(old, question)
    after = before if _content(old) == _content(new) else _standing(new, question)
    names = [name for name in before.figures if name in after.figures]
    if not names:
        allowed = f"what has a figure of a {before.kind} in it, not a {after.kind}"
        raise InvalidValueError("new", new, allowed, "Compare two of one kind.")
    rows = [
        _figure_row(name, before.figures[name], after.figures[name], tolerance) for name in names
    ]
    judged = [row for row in rows if row["verdict"]]
    if before.fits != after.fits:
        verdict = "better" if after.fits else "worse"
        judged.insert(0, _row("fits", before.fits, after.fits) | {"verdict": verdict})
    is_worse = any(row["verdict"] == "worse" for row in judged)
    sentence = _sentence(judged, tolerance)
    settings = [
        _row(name, before.settings.get(name), after.settings.get(name))
        for name in {**before.settings, **after.settings}
        if before.settings.get(name) != after.settings.get(name)
    ]
    changes = (*judged, *settings)
    return PlanDifference(changes, tolerance, is_worse, sentence, {"old": old, "new": new})


def _row(name: str, before: object, after: object) -> Document:
    """A row that neither is better nor worse."""
    return {
        "what": name,
        "before": before,
        "after": after,
        "change_fraction": None,
        "verdict": "",
    }


def _figure_row(name: str, before: float | None, after: float | None, tolerance: float) -> Document:
    """A figure's change: the difference of fractions, relative of others."""
    row = _row(name, before, after)
    if before is None or after is None or before == after:
        return row
    if name.endswith("_fraction"):
        change = after - before
    else:
        change = after / before - 1 if before else math.inf
    row["change_fraction"] = change if math.isfinite(change) else None
    if abs(change) > tolerance:
        row["verdict"] = "worse" if change > 0 else "better"
    return row


def _sentence(rows: Sequence[Values], tolerance: float) -> str:
    """The changes in words."""
    if not rows:
        return f"Nothing changes by more than {written('tolerance_fraction', tolerance)}."
    text = ", ".join(_change_text(row) for row in rows[:_MOST_CHANGES])
    return f"{text[0].upper()}{text[1:]}."


def _change_text(row: Values) -> str:
    name, change = row["what"], row["change_fraction"]
    if name == "fits":
        return "it fits now" if row["after"] else "it does not fit any more"
    pair = f"{written(name, row['before'])} to {written(name, row['after'])}"
    if name.endswith("_fraction") or change is None:
        return f"{name_words(name)} from {pair}"
    return f"{name_words(name)} {change:+.0%} ({pair})"


def name_words(name: str) -> str:
    """A figure's name as people read it."""
    return words(name).replace(" kgco2e", "")


def _content(source: str) -> str:
    """What tells one side from another."""
    path = Path(source)
    return read_text(path, 10**8) if _is_file(source) else str(path)


def _is_file(source: str) -> bool:
    return " " not in source.strip() and Path(source).is_file()


def _standing(source: str, question: LineQuestion) -> Standing:
    """What a side comes to."""
    path = Path(source)
    if not _is_file(source):
        if path.suffix.lower() in _READERS:
            raise InvalidValueError("file", source, "a file that exists", "Check its path.")
        return _of_line(source, question)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        return _of_line(read_text(path), question)
    document = reader(path)
    kind = document.get("kind")
    if kind is None:
        return _of_plan(plan(path, best_alone=True).to_dict())
    standing_of = _KINDS.get(str(kind))
    if standing_of is None:
        allowed = f"the JSON of {', '.join(_KINDS)}, or a scenario"
        raise InvalidValueError("kind", kind, allowed)
    try:
        return standing_of(document)
    except (LookupError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        allowed = f"a {kind} as this version writes it ({error})"
        raise InvalidValueError("file", source, allowed, "Write it anew.") from None


_READERS: Mapping[str, Callable[[Path], Document]] = {
    ".json": lambda path: read_json(path, 10**8),
    ".yaml": read_mapping,
    ".yml": read_mapping,
}


def _figures(document: Values, paths: Mapping[str, str]) -> dict[str, float | None]:
    """Figures that a document has, by our names."""
    figures: dict[str, float | None] = {}
    for name, path in paths.items():
        try:
            value = value_at(document, path)
        except LookupError:
            continue
        figures[name] = float(value) if isinstance(value, int | float) else None
    return figures


def _texts(settings: Values) -> dict[str, str]:
    return {name: written(name, value) for name, value in settings.items() if value is not None}


def _of_line(text: str, question: LineQuestion) -> Standing:
    return _of_check(check_line(text, question).to_dict())


def _of_check(document: Values) -> Standing:
    paths = {"cost_usd_per_hour": "cost_usd_per_hour", **_OF_RUN, **_OF_LOAD}
    names = ("program", "version", "workload", "device", "devices")
    settings = {name: document[name] for name in names} | dict(document["settings"])
    return Standing("line", _figures(document, paths), _texts(settings), bool(document["fits"]))


def _of_load(document: Values) -> Standing:
    names = ("workload", "device", "devices", "engine", "replicas")
    settings = {name: document[name] for name in names} | dict(document["plan"])
    compared = {n: v for n, v in settings.items() if not n.endswith(("_bytes", "blocks_range"))}
    return Standing(
        "load", _figures(document, _OF_LOAD), _texts(compared), not document["saturated"]
    )


def _of_training(document: Values) -> Standing:
    figures = _figures(document, _OF_RUN)
    figures["risk_fraction"] = 1.0 - float(document["fit_probability_fraction"])
    names = ("workload", "device", "device_count", "precision")
    settings = {name: document[name] for name in names} | {"plan": document["inputs"]["plan"]}
    return Standing("training", figures, _texts(settings), bool(document["fits"]))


def _of_plan(document: Values) -> Standing:
    """A plan, whose services of tokens are simulated for their times."""
    best = document["recommended"]
    if best is None:
        return Standing("plan", dict.fromkeys(_OF_PLAN), {}, fits=False)
    figures = _plan_figures(best)
    settings: dict[str, str] = {}
    scenario = Scenario.model_validate(document["inputs"])
    services = {service.name: service for service in scenario.services}
    rows = document["placement"]
    for assignment, row in zip(of_rows(scenario, rows), rows, strict=True):
        instances = f"{assignment.instances} at {assignment.offer}" if assignment.offer else ""
        fleet = f"{assignment.devices} x {assignment.device}, {instances}"
        texts = {"fleet": fleet, **_texts(assignment.settings)}
        times_s = {name: row[name] for name in _TIMES if name in row}
        times_s = times_s or _simulated_times_s(services.get(assignment.name), assignment)
        settings |= {f"{assignment.name}: {name}": text for name, text in texts.items()}
        figures |= {f"{assignment.name}: {name}": time_s for name, time_s in times_s.items()}
    return Standing("plan", figures, settings)


def _plan_figures(best: Values) -> dict[str, float | None]:
    """Figures of a recommended fleet."""
    energy = best["energy_j_per_month"]
    probabilities = [best[name] for name in _HELD if best[name] is not None]
    return {
        **_figures(best, _OF_PLAN),
        "energy_kwh_per_month": None if energy is None else energy / JOULES_PER_KWH,
        "risk_fraction": 1.0 - min(probabilities) if probabilities else None,
    }


def _simulated_times_s(service: Service | None, assignment: Assignment) -> dict[str, float | None]:
    """Times of a service's requests at p99, simulated at its load; none of jobs and traces."""
    if service is None or service.trace is not None or not assignment.software:
        return {}
    model, settings = workload(assignment.workload), assignment.settings
    load = Arrivals(
        rate_per_s=float(settings["requests_per_s"]),
        prompt=service.prompt or str(model.default.seq_len),
        output=service.output or str(model.output_len or 1),
    )
    engine = assignment.software.replace(" ", "@")
    replicas, tp, pp, ep = (int(settings.get(name, 1)) for name in ("replicas", "tp", "pp", "ep"))
    options = ServingOptions(engine, replicas, tp, pp, ep)
    run = {n: value for n, value in service.run.items() if n not in {"seq_len", "output_len"}}
    run |= {"precision": assignment.precision} if assignment.precision else {}
    result = serve(model, assignment.device, load, options, intervals=False, **run)
    return {"ttft_p99_s": result.ttft_s["p99"], "tpot_p99_s": result.tpot_s["p99"]}


_KINDS: Mapping[str, Callable[[Document], Standing]] = {
    "capacity plan": _of_plan,
    "serving": _of_load,
    "training": _of_training,
    "line check": _of_check,
}
