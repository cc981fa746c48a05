"""Whether a line fits a model and its devices, and what it costs at a load.

What its options say goes through the doors that `accelsim serve` and `accelsim train` use, so a
line and the command that it stands for have one answer.
"""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import ClassVar

import accelsim
from accelsim import catalog
from accelsim.catalog import workloads as workload_catalog
from accelsim.economics.device_price import DevicePrice, PriceChoice, device_price
from accelsim.errors import InputError, InvalidValueError, UnknownNameError
from accelsim.estimation.options import ModelOptions, RunOptions
from accelsim.files.datafile import read_text
from accelsim.frozen import frozen
from accelsim.handover.line import LaunchLine, Problem, read_line
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
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
_LIMITS = ("max_seqs", "max_batch_tokens", "memory_fraction", "kv_blocks")
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
    profile = None if question.device is None else catalog.device(question.device)
    price = None if profile is None else device_price(profile, question.price)
    settings = {"precision": written, **line.settings, **inner.settings}
    asks = _Asked(workload, question, price, {n: v for n, v in settings.items() if v is not None})
    notes = [] if profile else ["without --device, neither memory nor cost is checked"]
    if inner.unread:
        notes.append(f"not part of the prediction: {', '.join(inner.unread)}")
    found = replace(
        found,
        workload=workload.name,
        device=None if profile is None else profile.name,
        settings=asks.settings,
        notes=tuple(notes),
    )
    return (_served if inner.launcher.runs == "engine" else _trained)(found, inner, asks)


@frozen
class _Asked:
    workload: Workload
    question: LineQuestion
    price: DevicePrice | None
    settings: Document

    def usd_per_hour(self, devices: int) -> float | None:
        each = None if self.price is None else self.price.usd_per_hour
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


def _serving_layout(settings: Values) -> Document:
    """Fields of `ServingOptions` that say how ranks share the model."""
    tp, copies, ep = (int(settings.get(name, 1)) for name in ("tp", "copies", "ep"))
    pp = int(settings.get("pp", 1))
    if settings.get("shares_experts"):
        return {"tp": tp, "pp": pp, "dp": copies, "ep": tp * copies}
    if settings.get("copies_attention"):
        if tp % copies:
            raise InvalidValueError("copies", copies, f"a divisor of tp = {tp}")
        return {"tp": tp // copies, "pp": pp, "dp": copies, "ep": max(ep, copies)}
    return {"tp": tp, "pp": pp, "ep": ep, "replicas": copies}


def _serving_options(line: LaunchLine, asks: _Asked) -> ServingOptions:
    said = asks.settings
    limits = {name: said[name] for name in _LIMITS if said.get(name, -1) != -1}
    shares = said.get("prefix_cache", False if said.get("no_prefix_cache") else None)
    version = asks.question.version or line.version
    engine = f"{line.launcher.name}@{version}"
    return ServingOptions(engine, prefix_cache=shares, **limits, **_serving_layout(said))


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
        allowed = f"at most {most:,} tokens, which {workload.name} was trained on"
        yield InvalidValueError("max_context", context, allowed)


def _served(found: LineCheck, line: LaunchLine, asks: _Asked) -> LineCheck:
    """Judge an engine's line: layout, memory, context, then the load."""
    context = int(asks.settings.get("max_context", -1))
    try:
        options = _serving_options(line, asks)
        problems = [_problem(line, one) for one in _check_layout(asks.workload, options, context)]
    except InputError as error:
        return replace(found, problems=(*found.problems, _problem(line, error)))
    devices = options.devices_per_replica * options.replicas
    found = replace(found, devices=devices, problems=(*found.problems, *problems))
    if problems or found.device is None:
        return found
    precision = asks.settings.get("precision") or asks.settings.get("dtype")
    run = RunOptions(
        model=ModelOptions(precision=precision, kv_format=asks.settings.get("kv_format"))
    )
    load = asks.question.load or Arrivals(users=USUAL_USERS)
    try:
        result = serve(asks.workload, found.device, load, options, run, asks.question.price)
    except InputError as error:
        return replace(found, problems=(*found.problems, _problem(line, error)))
    held = result.kv_cache_tokens or 0
    wanted = context if context > 0 else int(getattr(asks.workload.parameters, "max_positions", 0))
    short, notes = [], []
    if held < wanted:
        text = f"the cache holds {held:,} tokens, and the context is {wanted:,}"
        remedy = f"Give {line.launcher.means['max_context'].option} {held}, or more memory."
        short = [Problem(line.launcher.means["max_context"].option, text, remedy)]
        if not line.launcher.holds_context:
            short, notes = [], [f"{text}: longer requests are refused"]
    if result.log is not None and 0 < context < result.log.asked.longest:
        notes.append(f"the load has requests of up to {result.log.asked.longest:,} tokens")
    if result.saturated:
        notes.append("the load is more than it serves")
    metrics = {name: one for name, one in result.metrics.items() if name in _SERVED}
    return replace(
        found,
        problems=(*found.problems, *short),
        notes=(*found.notes, *notes, *result.warnings),
        cost_usd_per_hour=asks.usd_per_hour(devices),
        found=metrics,
        inputs=dict(result.inputs),
    )


def training_plan(settings: Values, devices: int) -> tuple[Document, int]:
    """Fields of the plan that a trainer's settings say, and samples of an iteration.

    Args:
        settings: What its options say.
        devices: How many.

    Raises:
        InvalidValueError: If tp, pp and cp do not divide the devices.
    """
    plan = {
        name: settings[name]
        for name in ("tp", "pp", "cp", "ep", "etp", "sp", "chunks", "recompute", "schedule")
        if name in settings
    }
    shared = 1
    for name in ("tp", "pp", "cp"):
        shared *= int(plan.get(name, 1))
    if devices % shared:
        raise InvalidValueError("devices", devices, f"a multiple of tp x pp x cp = {shared}")
    dp = devices // shared
    if "device_batch" in settings:  # MaxText
        plan |= {"zero": 3 if int(settings.get("shards", 1)) > 1 else 0}
        plan |= {"microbatch": max(1, round(settings["device_batch"]))}
        usual = plan["microbatch"] * dp * int(settings.get("accumulation", 1))
    elif "local_batch" in settings or "reshards" in settings or "shards" in settings:  # FSDP
        local = int(settings.get("local_batch", 8))
        plan["sp"] = plan.get("tp", 1) > 1  # torchtitan/models/llama3/infra/parallelize.py
        is_shared = dp > 1 and settings.get("shards") != 1
        plan |= {"zero": int(settings.get("reshards", 3)) if is_shared else 0}
        piped = int(settings.get("pipeline_microbatch", 1))
        plan |= {"microbatch": local if plan.get("pp", 1) == 1 else piped}
        copies = int(settings.get("copies", 1))
        plan |= {"shard_group": dp // copies} if copies > 1 and is_shared else {}
        usual = local * dp
    else:
        plan |= {"microbatch": int(settings.get("microbatch", 1))}
        sharded = int(bool(settings.get("shards_optimizer")))
        plan |= {"zero": int(settings.get("sharding", sharded))}
        plan |= {"optimizer_offload": bool(settings.get("optimizer_offload"))}
        usual = plan["microbatch"] * dp
    if plan.get("chunks", 1) > 1:
        plan["schedule"] = "interleaved"
    batch = int(settings.get("global_batch", -1))
    return plan | {"dp": dp}, batch if batch > 0 else usual


def _trained(found: LineCheck, line: LaunchLine, asks: _Asked) -> LineCheck:
    """Judge a trainer's line: shapes that it states, memory and an iteration."""
    said = asks.settings
    parameters = asks.workload.parameters
    problems = [
        Problem(
            line.launcher.means[name].option,
            f"{said[name]} is not {asks.workload.name}'s {getattr(parameters, name)}",
            "Change it, or name the model with --model.",
        )
        for name in ("layers", "heads", "hidden_size")
        if name in said and said[name] != getattr(parameters, name, said[name])
    ]
    try:
        nodes, each = (int(said.get(name, 1)) for name in ("nodes", "node_devices"))
    except ValueError:
        counts = Problem("--nnodes, --nproc-per-node", "are no plain numbers", "Write them out.")
        return replace(found, problems=(*found.problems, *problems, counts))
    devices = nodes * each
    if "device_batch" in said:  # MaxText: axes of its mesh
        axes = ("shards", "copies", "tp", "cp", "ep", "pp", "nodes")
        devices = math.prod(max(1, int(said.get(name, 1))) for name in axes)
    found = replace(found, devices=devices, problems=(*found.problems, *problems))
    if found.device is None or problems:
        return found
    run: Document = {"execution": "compiled"} if said.get("compiles") else {}
    run |= {"seq_len": said["seq_len"]} if "seq_len" in said else {}
    try:
        plan, batch = training_plan(said, devices)
        result = train(
            asks.workload,
            price=asks.question.price,
            plan=plan_on(devices, plan),
            device=found.device,
            gpus=devices,
            global_batch=batch,
            stack=line.launcher.name,
            precision=said.get("precision", "bf16"),
            **run,
        )
    except InputError as error:
        return replace(found, problems=(*found.problems, _problem(line, error)))
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
