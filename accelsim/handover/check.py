"""Whether a line fits a model and its devices, and what it costs at a load.

What its options say goes through the doors that `accelsim serve` and `accelsim train` use, so a
line and the command that it stands for have one answer.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import accelsim
from accelsim import catalog
from accelsim.catalog import workloads as workload_catalog
from accelsim.economics.device_price import PriceChoice, device_price
from accelsim.economics.result import usd_per_million_tokens
from accelsim.errors import InputError, InvalidValueError, UnknownNameError
from accelsim.estimation.options import ModelOptions, RunOptions
from accelsim.files.datafile import read_text
from accelsim.frozen import frozen
from accelsim.handover.engines import serving_options
from accelsim.handover.line import LaunchLine, Problem, read_line
from accelsim.handover.model_sizes import model_size
from accelsim.handover.trainers import device_count, plan_of
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
from accelsim.serving.result import ServingResult
from accelsim.serving.serve import serve
from accelsim.training.estimate import train
from accelsim.training.plan import plan_on
from accelsim.workloads.model import Workload
from accelsim.workloads.sharding import split_evenly

#: Users of the load where none is said.
USUAL_USERS = 16
#: What the name of a checkpoint says of its format.
_FORMATS = {"fp8": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4", "awq": "w4a16"}
_FORMATS |= {"gptq": "w4a16", "int4": "w4a16", "w4a16": "w4a16", "w8a8": "w8a8", "w8a16": "w8a16"}
_FORMAT_SUFFIX = re.compile(rf"[-_.]({'|'.join(_FORMATS)})(?:[-_.]int[48])?\Z", re.IGNORECASE)
#: A checkpoint's month, as in Qwen3-235B-A22B-Instruct-2507.
_MONTH = re.compile(r"(?:-(?:instruct|thinking))?-\d{4}\Z", re.IGNORECASE)
_SERVED = (
    *("kv_cache_tokens", "throughput_requests_per_s", "output_tokens_per_s"),
    *("ttft_s.p50", "ttft_s.p99", "tpot_s.p50", "tpot_s.p99", "e2e_s.p99"),
    *("cost_usd_per_million_tokens", "cost_usd_per_month"),
    *("energy_kwh_per_month", "carbon_kgco2e_per_month"),
)
_TRAINED = ("iteration_s", "tokens_per_s", "mfu_fraction", "memory_bytes")


@frozen(repr=False)
class LineCheck(Result):
    """Whether a line fits, and what it costs.

    Attributes:
        line: The line, as it was understood.
        program: Engine or trainer.
        version: Version whose options answer for it.
        workload: Model; None where the line names none.
        device: Device; None where none was named.
        devices: Devices that the line takes.
        problems: What does not fit: option, problem, remedy.
        notes: What to know.
        settings: What the line says, by the names of our settings.
        cost_usd_per_hour: Of its devices.
        found: Figures of the load or of an iteration, with their intervals.
    """

    kind: ClassVar[str] = "line check"
    nested: ClassVar[frozenset[str]] = frozenset({"problems", "notes", "settings"})
    line: str
    program: str
    version: str
    workload: str | None = None
    device: str | None = None
    devices: int = 1
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    settings: Values = field(default_factory=dict)
    cost_usd_per_hour: float | None = None
    found: Mapping[str, Metric] = field(default_factory=dict)
    inputs: Values = field(default_factory=dict)

    def with_problems(self, *problems: Problem) -> LineCheck:
        """The same with problems more."""
        return replace(self, problems=(*self.problems, *problems))

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against the line."""
        return not self.problems

    @property
    def provenance(self) -> Provenance:
        """Version and line."""
        return Provenance(accelsim.__version__, parts={"line": self.line})

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes."""
        return self.notes

    @property
    def metrics(self) -> dict[str, Metric]:
        """Figures with their intervals."""
        return {"cost_usd_per_hour": Metric(self.cost_usd_per_hour), **self.found}

    def figures(self) -> Document:
        """The answer in plain values."""
        fields = asdict(self)
        names = ("line", "program", "version", "workload", "device", "devices", "settings")
        figures: Document = {name: fields[name] for name in names}
        figures |= {"fits": self.fits, "problems": [asdict(problem) for problem in self.problems]}
        for name, metric in self.metrics.items():
            quantity, dot, statistic = name.partition(".")
            figures[quantity] = (
                figures.get(quantity, {}) | {statistic: metric.value} if dot else metric.value
            )
        return figures


@frozen
class LineQuestion:
    """What is asked of a line.

    Attributes:
        device: Device of every rank; None asks of the options alone.
        model: Workload, where the line names another or none.
        version: Version of the engine or trainer; the newest listed where None.
        load: The load; `USUAL_USERS` where None.
        price: Which price.
    """

    device: str | None = None
    model: str | None = None
    version: str | None = None
    load: Arrivals | None = None
    price: PriceChoice = PriceChoice()


def line_text(source: str) -> str:
    """A line, or that of the file that is named.

    Args:
        source: The line, or a path.

    Raises:
        ProfileError: If the file cannot be read.
    """
    is_path = " " not in source.strip() and Path(source).is_file()
    return read_text(Path(source)) if is_path else source


def check_line(text: str, question: LineQuestion | None = None) -> LineCheck:
    """Judge a line.

    Args:
        text: The line.
        question: Device, load and price.

    Raises:
        InvalidValueError: If it is no line of a program that is known, or names no model.
        UnknownNameError: If the model, device or version is unknown.
    """
    question = question or LineQuestion()
    line = _configured(read_line(text, question.version))
    inner = line.script or line
    problems = line.problems if line.script is None else (*line.problems, *line.script.problems)
    check = LineCheck(str(line), inner.launcher.name, inner.version, problems=problems)
    if inner.launcher.runs == "processes":
        return replace(check, notes=("only torchrun's own options are known of this script",))
    model = question.model or _model_of(inner)
    if model is None:
        allowed = "the workload that the line trains or serves"
        raise InvalidValueError("model", None, allowed, "Add --model; see accelsim workloads list.")
    workload, precision = model_of(model)
    settings: Document = {**line.settings, **inner.settings}
    if precision is not None:
        settings = {"precision": precision, **settings}
    case = _Case(inner, workload, question, settings)
    check = replace(
        check,
        workload=workload.name,
        settings=settings,
        device=None if case.device is None else case.device.name,
        notes=tuple(case.notes()),
    )
    return (_served if inner.launcher.runs == "engine" else _trained)(check, case)


@frozen(slots=False)
class _Case:
    """A line of an engine or trainer, the model that it runs, and what is asked of both."""

    line: LaunchLine
    workload: Workload
    question: LineQuestion
    settings: Document

    @cached_property
    def device(self) -> DeviceProfile | None:
        name = self.question.device
        return None if name is None else catalog.device(name)

    @property
    def context(self) -> int:
        """The longest request that the line asks for; -1 where it leaves that to the model."""
        return int(self.settings.get("max_context", -1))

    def usd_per_hour(self, devices: int) -> float | None:
        if self.device is None:
            return None
        device_usd_per_hour = device_price(self.device, self.question.price).usd_per_hour
        return None if device_usd_per_hour is None else device_usd_per_hour * devices

    def notes(self) -> Iterator[str]:
        """What of the line is not judged."""
        if self.line.unread:
            yield f"not part of the prediction: {', '.join(self.line.unread)}"
        if self.device is None:
            yield "without --device, neither memory nor cost is checked"

    def problem(self, error: InputError) -> Problem:
        """What an error says, at the option that it is about."""
        name = error.field if isinstance(error, InvalidValueError) else "memory"
        meaning = self.line.launcher.means.get(name)
        return Problem(name if meaning is None else meaning.option, str(error))


def model_of(name: str) -> tuple[Workload, str | None]:
    """A model and the format that the name of its checkpoint says; None where it says none.

    Raises:
        UnknownNameError: If no workload is of that name, with what was left out of it or without.
    """
    try:
        return workload_catalog.workload(name), None
    except UnknownNameError:
        suffix = _FORMAT_SUFFIX.search(name)
        bare_name = name if suffix is None else name[: suffix.start()]
        precision = None if suffix is None else _FORMATS[suffix[1].lower()]
        for shorter_name in (bare_name, _MONTH.sub("", bare_name)):
            with suppress(UnknownNameError):
                return workload_catalog.workload(shorter_name), precision
        raise


def _model_of(line: LaunchLine) -> str | None:
    program = line.launcher
    if program.takes_model and line.arguments:
        return line.arguments[0]
    return None if program.model is None else line.options.get(program.model)


def _configured(line: LaunchLine) -> LaunchLine:
    """The line with what torchtitan's file of settings says, where there is one; the line's own
    options stand.
    """
    inner = line.script
    path = None if inner is None else inner.options.get("--job.config_file")
    if inner is None or path is None or not Path(path).is_file():
        return line
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidValueError("--job.config_file", path, f"a TOML file ({error})") from None
    arguments = [f"--{name}={text}" for name, text in _leaves(tables)]
    configured = read_line(shlex.join(["torchrun", *inner.command, *arguments]), inner.version)
    if configured.script is None:
        return line
    trainer_line = replace(
        inner,
        options={**configured.script.options, **inner.options},
        problems=(*configured.script.problems, *inner.problems),
    )
    return replace(line, script=trainer_line)


def _leaves(tables: Values, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        elif isinstance(value, list):
            yield prefix + name, " ".join(map(str, value))
        else:
            yield prefix + name, str(value)


def _check_layout(options: ServingOptions, case: _Case) -> Iterator[InputError]:
    """What of the model forbids a layout, on whatever device."""
    model = case.workload
    heads, layers = (model_size(model, name) for name in ("heads", "layers"))
    try:
        split_evenly("tp", options.tp if heads else 1, heads, "attention heads")
    except InvalidValueError as error:
        yield error
    if options.pp > max(layers, 1):
        yield InvalidValueError("pp", options.pp, f"at most {max(layers, 1)} layers")
    trained_tokens = model_size(model, "max_positions")
    if trained_tokens and case.context > trained_tokens:
        allowed = (
            f"at most {trained_tokens:,} tokens, the longest text {model.name} was trained for"
        )
        yield InvalidValueError("max_context", case.context, allowed)


def _served(check: LineCheck, case: _Case) -> LineCheck:
    """Judge an engine's line: layout, memory, context, then the load."""
    line, settings = case.line, case.settings
    engine = f"{line.launcher.name}@{case.question.version or line.version}"
    try:
        options = serving_options(settings, engine)
        problems = [case.problem(error) for error in _check_layout(options, case)]
        devices = options.devices_per_replica * options.replicas
        check = replace(check, devices=devices).with_problems(*problems)
        if case.device is None or problems:
            return check
        load = case.question.load or Arrivals(users=USUAL_USERS)
        precision = settings.get("precision") or settings.get("dtype")
        formats = ModelOptions(precision=precision, kv_format=settings.get("kv_format"))
        run = RunOptions(model=formats)
        result = serve(case.workload, case.device.name, load, options, run, case.question.price)
    except InputError as error:
        return check.with_problems(case.problem(error))
    return replace(
        _with_context(check, result, case),
        cost_usd_per_hour=case.usd_per_hour(devices),
        found={name: metric for name, metric in result.metrics.items() if name in _SERVED},
        inputs=dict(result.inputs),
    )


def _with_context(check: LineCheck, result: ServingResult, case: _Case) -> LineCheck:
    """What of context and load a line does not hold: a problem where the engine does not start."""
    notes = [*check.notes]
    cache_tokens = result.kv_cache_tokens or 0
    context = case.context if case.context > 0 else model_size(case.workload, "max_positions")
    if cache_tokens < context:
        option = case.line.launcher.means["max_context"].option
        text = f"the cache holds {cache_tokens:,} tokens, and the context is {context:,}"
        if case.line.launcher.holds_context:
            remedy = f"Give {option} {cache_tokens}, or more memory."
            check = check.with_problems(Problem(option, text, remedy))
        else:
            notes.append(text)
    longest_tokens = 0 if result.log is None else result.log.requests.longest
    if 0 < case.context < longest_tokens:
        notes.append(f"the load has requests of up to {longest_tokens:,} tokens")
    if result.saturated:
        notes.append("the load is more than it serves")
    return replace(check, notes=(*notes, *result.warnings))


def _trained(check: LineCheck, case: _Case) -> LineCheck:
    """Judge a trainer's line: shapes that it states, memory and an iteration."""
    settings, trainer = case.settings, case.line.launcher.name
    check = check.with_problems(*_other_shape(case))
    try:
        devices = device_count(trainer, settings)
        check = replace(check, devices=devices)
        if case.device is None or not check.fits:
            return check
        plan, batch = plan_of(trainer, settings, devices)
        run: Document = {"execution": "compiled"} if settings.get("compiles") else {}
        run |= {"seq_len": settings["seq_len"]} if "seq_len" in settings else {}
        result = train(
            case.workload,
            price=case.question.price,
            plan=plan_on(devices, plan),
            device=case.device.name,
            gpus=devices,
            global_batch=batch,
            stack=trainer,
            precision=settings.get("precision", "bf16"),
            **run,
        )
    except InputError as error:
        return check.with_problems(case.problem(error))
    metrics = {name: metric for name, metric in result.metrics.items() if name in _TRAINED}
    usd_per_hour, tokens_per_s = case.usd_per_hour(devices), result.tokens_per_s
    if usd_per_hour is not None and tokens_per_s:
        usd = usd_per_million_tokens(usd_per_hour, tokens_per_s)
        metrics["cost_usd_per_million_tokens"] = Metric(usd)
    return replace(
        check,
        notes=(*check.notes, *result.warnings),
        cost_usd_per_hour=usd_per_hour,
        found=metrics,
        inputs=dict(result.inputs),
    )


def _other_shape(case: _Case) -> Iterator[Problem]:
    """Sizes that a line states and that are not the model's."""
    model = case.workload
    for name in ("layers", "heads", "hidden_size"):
        stated = case.settings.get(name)
        size = getattr(model.parameters, name, stated)
        if stated not in {None, size}:
            option, text = case.line.launcher.means[name].option, f"{stated} is not {size}"
            yield Problem(option, f"{text}, {model.name}'s", "Change it, or name --model.")
