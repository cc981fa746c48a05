"""Whether a line fits a model and its devices, and what it costs at a load.

What its options say goes through the doors that `accelsim serve` and `accelsim train` use, so a
line and the command that it stands for have one answer.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import accelsim
from accelsim import catalog
from accelsim.catalog import workloads as workload_catalog
from accelsim.economics.device_price import PriceChoice, device_price
from accelsim.errors import InputError, InvalidValueError, UnknownNameError
from accelsim.estimation.options import ModelOptions, RunOptions
from accelsim.files.datafile import read_text
from accelsim.frozen import frozen
from accelsim.handover.engines import serving_options
from accelsim.handover.line import LaunchLine, Problem, read_line
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
_NAMED = re.compile(rf"[-_.]({'|'.join(_FORMATS)})(?:[-_.]int[48])?\Z", re.IGNORECASE)
#: A checkpoint's month, as in Qwen3-235B-A22B-Instruct-2507.
_MONTH = re.compile(r"(?:-(?:instruct|thinking))?-\d{4}\Z", re.IGNORECASE)
_SERVED = (
    *("kv_cache_tokens", "throughput_requests_per_s", "output_tokens_per_s"),
    *("ttft_s.p50", "ttft_s.p99", "tpot_s.p50", "tpot_s.p99", "e2e_s.p99"),
    *("cost_usd_per_million_tokens", "cost_usd_per_month"),
    *("energy_kwh_per_month", "carbon_kgco2e_per_month"),
)
_TRAINED = ("iteration_s", "tokens_per_s", "mfu_fraction", "memory_bytes")
_PER_MILLION = 1e6


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

    def with_problems(self, *more: Problem) -> LineCheck:
        """The same with problems more."""
        return replace(self, problems=(*self.problems, *more))

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
        said = asdict(self)
        names = ("line", "program", "version", "workload", "device", "devices", "settings")
        found: Document = {name: said[name] for name in names}
        found |= {"fits": self.fits, "problems": [asdict(one) for one in self.problems]}
        for name, metric in self.metrics.items():
            whole, dot, part = name.partition(".")
            found[whole] = found.get(whole, {}) | {part: metric.value} if dot else metric.value
        return found


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


def line_text(words: str) -> str:
    """A line, or that of the file that is named.

    Args:
        words: The line, or a path.

    Raises:
        ProfileError: If the file cannot be read.
    """
    is_path = " " not in words.strip() and Path(words).is_file()
    return read_text(Path(words)) if is_path else words


def check_line(text: str, asked: LineQuestion | None = None) -> LineCheck:
    """Judge a line.

    Args:
        text: The line.
        asked: Device, load and price.

    Raises:
        InvalidValueError: If it is no line of a program that is known, or names no model.
        UnknownNameError: If the model, device or version is unknown.
    """
    question = asked or LineQuestion()
    line = _configured(read_line(text, question.version))
    inner = line.script or line
    problems = [*line.problems, *(inner.problems if inner is not line else ())]
    found = LineCheck(str(line), inner.launcher.name, inner.version, problems=tuple(problems))
    if inner.launcher.runs == "processes":
        return replace(found, notes=("only torchrun's own options are known of this script",))
    named = question.model or _model_of(inner)
    if named is None:
        allowed = "the workload that the line trains or serves"
        raise InvalidValueError("model", None, allowed, "Add --model; see accelsim workloads list.")
    workload, written = model_of(named)
    said = {"precision": written, **line.settings, **inner.settings}
    asks = _Asked(workload, question, {n: value for n, value in said.items() if value is not None})
    found = replace(
        found,
        workload=workload.name,
        settings=asks.settings,
        device=None if asks.device is None else asks.device.name,
        notes=tuple(_notes(inner, question)),
    )
    return (_served if inner.launcher.runs == "engine" else _trained)(found, inner, asks)


def _notes(line: LaunchLine, question: LineQuestion) -> Iterator[str]:
    """What of a line is not judged."""
    if line.unread:
        yield f"not part of the prediction: {', '.join(line.unread)}"
    if question.device is None:
        yield "without --device, neither memory nor cost is checked"


@frozen(slots=False)
class _Asked:
    workload: Workload
    question: LineQuestion
    settings: Document

    @cached_property
    def device(self) -> DeviceProfile | None:
        named = self.question.device
        return None if named is None else catalog.device(named)

    def usd_per_hour(self, devices: int) -> float | None:
        if self.device is None:
            return None
        each = device_price(self.device, self.question.price).usd_per_hour
        return None if each is None else each * devices


def model_of(name: str) -> tuple[Workload, str | None]:
    """A model and the format that the name of its checkpoint says; None where it says none.

    Raises:
        UnknownNameError: If no workload is of that name, with what was left out of it or without.
    """
    try:
        return workload_catalog.workload(name), None
    except UnknownNameError:
        bare, written = name, _NAMED.search(name)
        if written is not None:
            bare = name[: written.start()]
        for short in (bare, _MONTH.sub("", bare)):
            if short != name:
                try:
                    found = workload_catalog.workload(short)
                except UnknownNameError:
                    continue
                return found, None if written is None else _FORMATS[written[1].lower()]
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
    words = [f"--{name}={text}" for name, text in _leaves(tables)]
    said = read_line(shlex.join(["torchrun", *inner.words, *words]), inner.version)
    if said.script is None:
        return line
    read = replace(
        inner,
        options={**said.script.options, **inner.options},
        problems=(*said.script.problems, *inner.problems),
    )
    return replace(line, script=read)


def _leaves(tables: Values, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        else:
            yield (
                prefix + name,
                " ".join(map(str, value)) if isinstance(value, list) else str(value),
            )


def _problem(line: LaunchLine, error: InputError) -> Problem:
    """What an error says, at the option that it is about."""
    name = error.field if isinstance(error, InvalidValueError) else "memory"
    meaning = line.launcher.means.get(name)
    return Problem(name if meaning is None else meaning.option, str(error))


def _check_layout(
    workload: Workload, options: ServingOptions, context: int
) -> Iterator[InputError]:
    """What of the model forbids a layout, on whatever device."""
    parameters = workload.parameters
    heads, layers = (int(getattr(parameters, name, 0)) for name in ("heads", "layers"))
    try:
        split_evenly("tp", options.tp if heads else 1, heads, "attention heads")
    except InvalidValueError as error:
        yield error
    if options.pp > max(layers, 1):
        yield InvalidValueError("pp", options.pp, f"at most {max(layers, 1)} layers")
    most = getattr(parameters, "max_positions", 0)
    if most and context > most:
        allowed = f"at most {most:,} tokens, the longest text {workload.name} was trained for"
        yield InvalidValueError("max_context", context, allowed)


def _served(found: LineCheck, line: LaunchLine, asks: _Asked) -> LineCheck:
    """Judge an engine's line: layout, memory, context, then the load."""
    context = int(asks.settings.get("max_context", -1))
    engine = f"{line.launcher.name}@{asks.question.version or line.version}"
    try:
        options = serving_options(asks.settings, engine)
        problems = [_problem(line, one) for one in _check_layout(asks.workload, options, context)]
    except InputError as error:
        return found.with_problems(_problem(line, error))
    devices = options.devices_per_replica * options.replicas
    found = replace(found, devices=devices).with_problems(*problems)
    if problems or found.device is None:
        return found
    load = asks.question.load or Arrivals(users=USUAL_USERS)
    run, price = _run_options(asks.settings), asks.question.price
    try:
        result = serve(asks.workload, found.device, load, options, run, price)
    except InputError as error:
        return found.with_problems(_problem(line, error))
    return replace(
        _with_context(found, line, result, asks),
        cost_usd_per_hour=asks.usd_per_hour(devices),
        found={name: one for name, one in result.metrics.items() if name in _SERVED},
        inputs=dict(result.inputs),
    )


def _with_context(
    found: LineCheck, line: LaunchLine, result: ServingResult, asks: _Asked
) -> LineCheck:
    """What of context and load a line does not hold: a problem where the engine does not start."""
    context = int(asks.settings.get("max_context", -1))
    short = _short(line, result, asks.workload, context)
    told = short if line.launcher.holds_context else []
    notes = [one.problem for one in short if not told]
    notes = [*found.notes, *notes, *_load_notes(result, context), *result.warnings]
    return replace(found, notes=tuple(notes)).with_problems(*told)


def _run_options(settings: Values) -> RunOptions:
    """Formats that a line says."""
    precision = settings.get("precision") or settings.get("dtype")
    return RunOptions(model=ModelOptions(precision=precision, kv_format=settings.get("kv_format")))


def _short(
    line: LaunchLine, result: ServingResult, workload: Workload, context: int
) -> list[Problem]:
    """A cache that is smaller than the context: that of the line, or the model's."""
    held = result.kv_cache_tokens or 0
    wanted = context if context > 0 else int(getattr(workload.parameters, "max_positions", 0))
    option = line.launcher.means["max_context"].option
    text = f"the cache holds {held:,} tokens, and the context is {wanted:,}"
    return [Problem(option, text, f"Give {option} {held}, or more memory.")] * (held < wanted)


def _load_notes(result: ServingResult, context: int) -> Iterator[str]:
    """What of the load a line does not serve."""
    longest = 0 if result.log is None else result.log.requests.longest
    if 0 < context < longest:
        yield f"the load has requests of up to {longest:,} tokens"
    if result.saturated:
        yield "the load is more than it serves"


def _trained(found: LineCheck, line: LaunchLine, asks: _Asked) -> LineCheck:
    """Judge a trainer's line: shapes that it states, memory and an iteration."""
    said, trainer = asks.settings, line.launcher.name
    found = found.with_problems(*_other_shape(line, asks))
    try:
        devices = device_count(trainer, said)
        found = replace(found, devices=devices)
        if found.device is None or not found.fits:
            return found
        plan, batch = plan_of(trainer, said, devices)
        run: Document = {"execution": "compiled"} if said.get("compiles") else {}
        run |= {"seq_len": said["seq_len"]} if "seq_len" in said else {}
        result = train(
            asks.workload,
            price=asks.question.price,
            plan=plan_on(devices, plan),
            device=found.device,
            gpus=devices,
            global_batch=batch,
            stack=trainer,
            precision=said.get("precision", "bf16"),
            **run,
        )
    except InputError as error:
        return found.with_problems(_problem(line, error))
    metrics = {name: one for name, one in result.metrics.items() if name in _TRAINED}
    hourly, tokens_per_s = asks.usd_per_hour(devices), result.tokens_per_s
    if hourly is not None and tokens_per_s:
        cost = hourly / 3600.0 / tokens_per_s * _PER_MILLION
        metrics["cost_usd_per_million_tokens"] = Metric(cost)
    return replace(
        found,
        notes=(*found.notes, *result.warnings),
        cost_usd_per_hour=hourly,
        found=metrics,
        inputs=dict(result.inputs),
    )


def _other_shape(line: LaunchLine, asks: _Asked) -> Iterator[Problem]:
    """Sizes that a line states and that are not the model's."""
    for name in ("layers", "heads", "hidden_size"):
        stated = asks.settings.get(name)
        own = getattr(asks.workload.parameters, name, stated)
        if stated not in {None, own}:
            option, text = line.launcher.means[name].option, f"{stated} is not {own}"
            yield Problem(option, f"{text}, {asks.workload.name}'s", "Change it, or name --model.")
