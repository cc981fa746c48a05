"""Functions of the library that a sweep may ask, and the fields of each.

Fields of `estimate` are its keywords. `train` and `serve` also take the fields of what they are
given as objects (a plan, a length, conditions; a load, options, targets as ``slo_ttft_s``) by their
own names. `plan` takes ``scenario``, the path of a file, and paths into it such as
``services.0.requests_per_s`` or ``constraints.redundancy``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Literal

from accelsim.errors import InvalidValueError
from accelsim.estimation.options import EstimateKeywords, PriceChoice, RunOptions
from accelsim.option import read_texts
from accelsim.plain import Document, Values
from accelsim.result import Result
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions, SloTargets
from accelsim.training.length import RunLength
from accelsim.training.plan import ParallelismPlan
from accelsim.training.setup import Conditions

SweptFunction = Literal["estimate", "train", "serve", "plan"]
_SLO = "slo_"
_SCENARIO = "scenario"
_PATH = re.compile(r"[a-z_]+(\.[a-z_0-9]+)*\Z")


def _names(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


_LOAD = _names(Arrivals)
_SERVING = _names(ServingOptions) - {"slo"}
_TARGETS = frozenset(_SLO + name for name in _names(SloTargets))
_PLAN = _names(ParallelismPlan)
_LENGTH = _names(RunLength)
_CONDITIONS = _names(Conditions)
_ESTIMATE = frozenset(("model", "device", *EstimateKeywords.__annotations__))
_TRAIN = frozenset(("cluster", "gpus", "plan", "search", "global_batch"))
_FIELDS: Mapping[str, frozenset[str]] = {
    "estimate": _ESTIMATE,
    "train": _ESTIMATE | _TRAIN | _PLAN | _LENGTH | _CONDITIONS,
    "serve": _ESTIMATE | _LOAD | _SERVING | _TARGETS | {"seed", "intervals"},
}


#: Classes whose options a sweep's fields are.
OPTIONS = (RunOptions, PriceChoice, RunLength, Arrivals, ServingOptions)


def unknown_field(function: SweptFunction, names: Iterable[str]) -> str | None:
    """The first name that is no field of a function; None where all are.

    Args:
        function: The function.
        names: Fields.
    """
    if function == "plan":
        return next((name for name in sorted(names) if not _PATH.match(name)), None)
    return min(set(names) - _FIELDS[function], default=None)


def answer(function: SweptFunction, point: Values) -> Result:
    """What a function answers at a point.

    Args:
        function: The function.
        point: Fields of the point.

    Raises:
        InputError: If the function refuses it.
    """
    return _ANSWERS[function](dict(point))


def _taken(point: Document, names: Iterable[str]) -> Document:
    """Take the fields of one object out of a point."""
    return {name: point.pop(name) for name in sorted(names) if name in point}


def _estimate(point: Document) -> Result:
    from accelsim.estimation.estimate import estimate

    return estimate(point.pop("model", ""), point.pop("device", ""), **point)


def _train(point: Document) -> Result:
    from accelsim.training.estimate import train

    length = _taken(point, _LENGTH)
    conditions = _taken(point, _CONDITIONS)
    assignments = [f"{name}={value}" for name, value in _taken(point, _PLAN).items()]
    plan_text = point.pop("plan", None)
    return train(
        point.pop("model", ""),
        plan=",".join([plan_text, *assignments] if plan_text else assignments) or None,
        length=RunLength(**length) if length else None,
        conditions=Conditions(**conditions),
        **point,
    )


def _serve(point: Document) -> Result:
    from accelsim.catalog import workloads as workload_catalog
    from accelsim.serving.serve import serve

    targets = _taken(point, _TARGETS)
    target_values = {name.removeprefix(_SLO): value for name, value in targets.items()}
    slo = SloTargets(**read_texts(SloTargets, target_values))
    model = point.pop("model", "")
    is_language = workload_catalog.workload(model).autoregressive
    lengths = {} if is_language else {"prompt": "1", "output": "0"}
    load = Arrivals(**{**lengths, **read_texts(Arrivals, _taken(point, _LOAD))})
    options = ServingOptions(slo=slo, **read_texts(ServingOptions, _taken(point, _SERVING)))
    return serve(model, point.pop("device", ""), load, options, **point)


def _plan(point: Document) -> Result:
    from accelsim.capacity.plan import plan
    from accelsim.capacity.scenario import scenario_content

    content = scenario_content(point.pop(_SCENARIO, ""))
    for path, value in point.items():
        _set(content, path.split("."), value)
    return plan(content)


def _set(content: object, path: list[str], value: object) -> None:
    """Put a value at a path of mappings and lists; mappings that are missing are made."""
    head, *tail = path
    if isinstance(content, dict):
        if tail:
            _set(content.setdefault(head, {}), tail, value)
        else:
            content[head] = value
    elif isinstance(content, list) and head.isdigit() and int(head) < len(content):
        if tail:
            _set(content[int(head)], tail, value)
        else:
            content[int(head)] = value
    else:
        raise InvalidValueError("scenario", ".".join(path), "a path of the scenario")


_ANSWERS = {"estimate": _estimate, "train": _train, "serve": _serve, "plan": _plan}
