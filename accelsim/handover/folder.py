"""The folder of what carries a recommendation out: lines, trainers' settings, SkyPilot, a README.

Templates (``templates/``) say what a file is like; every option in them comes from the program's
dated list through `line.write_line`, so what is written can be checked.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import accelsim
from accelsim import catalog
from accelsim.capacity.assignment import Assignment
from accelsim.catalog import workloads as workload_catalog
from accelsim.files.output import write_folder
from accelsim.frozen import frozen
from accelsim.handover.check import training_plan
from accelsim.handover.launchers import Launcher, launcher, launchers, skypilot
from accelsim.handover.line import LaunchLine, write_line
from accelsim.plain import Document, Values
from accelsim.training.plan import ParallelismPlan
from accelsim.workloads.model import Workload

#: Trainer whose settings a stack's plan is written in, where it is not its own.
_TRAINERS: Final = {"megatron-deepspeed": "megatron", "nemo": "megatron"}
_SETTINGS_FILE: Final = {"torchtitan": "train.toml", "deepspeed": "deepspeed.json"}
_REPOSITORY = re.compile(r"Hugging Face ([\w.-]+/[\w.-]*\w)")
_SHAPE = ("layers", "heads", "hidden_size", "intermediate_size", "kv_heads", "norm", "positions")


@frozen
class _Written:
    """An assignment as its files say it."""

    asked: Assignment
    model: str
    instances: int
    line: LaunchLine | None = None
    program: Launcher | None = None
    settings: str = ""
    copies: int = 1
    notes: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """That of the program whose options the files are of."""
        line = self.line and (self.line.script or self.line)
        named = None if self.program is None else self.program.listed(None).version
        is_of = line is not None and line.launcher is self.program
        return line.version if is_of and line is not None else named or ""


def hand_over(
    assignments: Sequence[Assignment], out: Path, command: str, *, force: bool = False
) -> None:
    """Write what carries a recommendation out.

    Args:
        assignments: What runs where.
        out: The folder; one beside another has a folder of its own in it.
        command: The command that made the recommendation.
        force: Whether files of a folder that exists may be replaced.

    Raises:
        OutputError: If the folder is not empty (without `force`) or cannot be written.
    """
    made = [_written(one) for one in assignments]
    texts: dict[str, str] = {}
    for one in made:
        place = "" if len(made) == 1 else f"{_slug(one.asked.name)}/"
        texts |= {place + name: text for name, text in _files(one, command).items()}
    if len(made) > 1:
        names = [_slug(one.asked.name) for one in made]
        texts["README.md"] = _rendered("overview.md", names=names, made=made, command=command)
    write_folder(out, texts, force=force)


def repository(workload: Workload) -> str | None:
    """The model's repository on Hugging Face, which its published figures name."""
    found = (_REPOSITORY.search(one.source) for one in workload.published)
    return next((one[1] for one in found if one is not None), None)


def _written(asked: Assignment) -> _Written:
    workload = workload_catalog.workload(asked.workload)
    named = repository(workload)
    notes = [] if named else [f"name the checkpoint of {asked.workload} in place of its name"]
    model = named or asked.workload
    one = _Written(asked, model, math.ceil(asked.devices / asked.instance_devices))
    software = asked.software.partition(" ")[0]
    if asked.task == "serve" and software in launchers():
        one = _served(one, software, notes)
    elif asked.task == "train":
        one = _trained(one, workload, _TRAINERS.get(software, software), notes)
    else:
        notes.append("the server is your own: no engine of the list runs this model")
    return replace(one, notes=(*one.notes, *notes))


def _served(one: _Written, software: str, notes: list[str]) -> _Written:
    asked, said = one.asked, dict(one.asked.settings)
    program = launcher(software)
    version = asked.software.partition(" ")[2] or None
    each = math.prod(int(said.get(name, 1)) for name in ("tp", "pp", "dp"))
    copies = max(1, min(asked.instance_devices // each, int(said.get("replicas", 1))))
    spread = asked.instance_devices < each
    instances = asked.instances if spread else math.ceil(int(said.get("replicas", 1)) / copies)
    if spread:
        notes.append(
            f"a replica of {each} devices spans instances: start the engine on all of them"
        )
    dp, ep = int(said.get("dp", 1)), int(said.get("ep", 1))
    longest = int(said.get("max_context", 0))
    known = _written_ranks(said, {"dp", "ep", "replicas"})
    known |= dict.fromkeys(("precision", "dtype"), asked.precision or None)
    known |= {"copies": dp if dp > 1 else copies if copies > 1 else None}
    known |= {"max_context": _context(longest, one.asked.workload) if longest else None}
    if "ep" in program.means:
        known |= {"ep": ep if ep > 1 else None, "copies_attention": dp > 1}
        known |= {"tp": int(said["tp"]) * dp} if dp > 1 else {}
    elif ep > 1:
        known |= {"shares_experts": True}
    known["no_prefix_cache"] = said.get("prefix_cache") is False
    line = write_line(program, known, one.model, version)
    written = line.settings.get("precision") or line.settings.get("dtype")
    if asked.precision not in {"", "bf16", written}:
        notes.append(f"take a checkpoint in {asked.precision}: the predicted format")
    if copies > 1 and dp == 1 and "copies" not in program.means:
        notes.append(f"start {copies} copies an instance, each on its own devices and port")
    notes += [f"no option says {name}" for name in asked.unsaid]
    names = ("memory_fraction", "kv_blocks", "prefix_cache")
    lost = (name for name in names if name in said and name not in program.means)
    notes += [f"no option says {n}" for n in lost if f"no_{n}" not in program.means]
    kept = said.get("kv_format")
    if kept in {"fp8", "int8"} and "kv_format" not in program.means:
        notes.append(f"keep the cache in {kept}: kv_cache_config.dtype of --extra_llm_api_options")
    counted = instances or one.instances
    return replace(one, line=line, program=program, copies=copies, instances=counted)


def _written_ranks(said: Values, left_out: Collection[str] = ()) -> Document:
    """Settings without those left out, and ranks of one."""
    ranks = {"pp", "cp", "ep", "etp"}
    return {
        name: value
        for name, value in said.items()
        if name not in left_out and not (name in ranks and value == 1)
    }


def _context(longest: int, name: str) -> int:
    """The power of two that holds the longest request, no more than the model was trained on."""
    most = int(getattr(workload_catalog.workload(name).parameters, "max_positions", 0))
    return min(1 << (longest - 1).bit_length(), most or longest)


def _trained(one: _Written, workload: Workload, software: str, notes: list[str]) -> _Written:
    asked = one.asked
    said, nodes = _trainer_settings(asked, workload, software), one.instances
    devices = asked.devices // nodes
    trainer = launchers().get(software)
    program = write_line(trainer, said) if trainer is not None else None
    if trainer is None or software != "deepspeed":
        notes += _unsaid(asked, program)
    if trainer is not None and trainer.runs == "job":
        notes += ["rent one slice of all chips", "name the model: model_name"]
        return replace(one, line=program, program=trainer)
    inner, module = None, False
    if trainer is None or software == "deepspeed":
        script: tuple[str, ...] = ("train.py",)
        script += ("--deepspeed", "deepspeed.json") if software == "deepspeed" else ()
        notes.append("train.py is your own script")
    else:
        inner, module, script = program, software == "torchtitan", ()
    settings = ""
    if software in _SETTINGS_FILE and program is not None:
        settings = _settings_text(software, program, asked)
    if software == "torchtitan" and inner is not None:
        inner = replace(inner, options={"--job.config_file": _SETTINGS_FILE[software]})
        notes.append("name the model in train.toml: [model] name and flavor")
    counts = {"nodes": str(nodes), "node_devices": str(devices), "module": module}
    line = replace(write_line(launcher("torchrun"), counts), script=inner, arguments=script)
    return replace(one, line=line, program=trainer or line.launcher, settings=settings)


def _unsaid(asked: Assignment, line: LaunchLine | None) -> Iterator[str]:
    """Fields of a plan that a trainer's line says otherwise, or not."""
    read = {} if line is None else training_plan(line.settings, asked.devices)[0]
    for one in fields(ParallelismPlan):
        wanted = asked.settings.get(one.name, one.default)
        says = read.get(one.name, one.default)
        if wanted not in {one.default, says} or says not in {one.default, wanted}:
            yield f"no option says {one.name}={wanted}"


def _trainer_settings(asked: Assignment, workload: Workload, software: str) -> Document:
    """What a trainer's options may say of a plan."""
    said, parameters = _written_ranks(asked.settings), workload.parameters
    zero, dp, group = int(said.get("zero", 0)), int(said["dp"]), said.get("shard_group")
    count, micro = int(said.get("microbatch_count", 1)), int(said.get("microbatch", 1))
    is_piped = "pp" in said
    said |= {"precision": asked.precision, "bf16": True, "accumulation": count}
    if software == "torchtitan":
        said |= {"copies": dp if not zero else dp // group if group else 1}
        said |= {"shards": -1 if zero else 1, "reshards": 3 if zero == 3 else 2 if zero else None}
        said |= {"local_batch": micro * count if is_piped else micro}
        said |= {"pipeline_microbatch": micro if is_piped else None}
        said["schedule"] = said["schedule"] if is_piped else None
    elif software == "maxtext":
        said |= {"shards": dp if zero else 1, "copies": 1 if zero else dp, "nodes": 1}
        said |= {"device_batch": micro, "hardware": catalog.device(asked.device).device_class}
    elif software == "deepspeed":
        said["offloads"] = "cpu" if said.get("optimizer_offload") else None
    elif software == "megatron":
        said |= {"shards_optimizer": zero > 0, "fsdp": zero > 1, "sharding": zero}
        said |= {"overlaps_gradients": zero > 0, "overlaps_weights": zero > 0}
        said["chunks"] = said["chunks"] if int(said.get("chunks", 1)) > 1 else None
        if said.get("recompute") == "full":
            said |= {"recompute_method": "uniform", "recompute_layers": 1}
        said |= {name: getattr(parameters, name, None) for name in _SHAPE}
        said |= {"max_positions": max(getattr(parameters, "max_positions", 0), said["seq_len"])}
        grouped = said.get("kv_heads") not in {None, said.get("heads")}
        said |= {"groups": grouped, "gated": getattr(parameters, "gated", False)}
        said |= {"kv_heads": said["kv_heads"] if grouped else None}
        said |= {"untied": not getattr(parameters, "tied_embeddings", True)}
        said |= {"unbiased": not getattr(parameters, "feed_forward_bias", True)}
    return said


def _settings_text(software: str, line: LaunchLine, asked: Assignment) -> str:
    """A trainer's file of settings: tables of TOML, or JSON."""
    tree: Document = {}
    for name, text in line.options.items():
        *sections, last = name.removeprefix("--").split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        one = line.launcher.options[name]
        value: object = text if one.kind in {"str", "choice"} else None
        if one.kind == "list":
            value = text.split("\0")
        elif value is None or (software == "deepspeed" and text.isdigit()):
            value = json.loads(text)
        table[last] = value
    if software == "deepspeed":
        return json.dumps(tree, indent=2) + "\n"
    return _rendered("train.toml", asked=asked, tree=tree, line=line)


def _files(one: _Written, command: str) -> dict[str, str]:
    """Texts of an assignment's files by name."""
    asked, line, place = one.asked, one.line, one.asked.place
    about: Document = {"one": one, "asked": asked, "line": line, "place": place}
    about |= {"command": command, "version": accelsim.__version__, "sky": skypilot()}
    usual = {"dp": 1, "seq_len": 0} | {one.name: one.default for one in fields(ParallelismPlan)}
    shown = (f"{n} {v}" for n, v in asked.settings.items() if v not in {None, usual.get(n)})
    about["layout"] = ", ".join(shown)
    start = {"serve": "serve.sh", "train": "train.sh"}.get(asked.task, "")
    found: dict[str, str] = {}
    if line is not None:
        about["start"] = start
        found[start] = _rendered("start.sh", **about)
    if one.settings:
        found[_SETTINGS_FILE[one.program.name if one.program else ""]] = one.settings
    found["sky.yaml"] = _rendered("sky.yaml", **about)
    found["README.md"] = _rendered("README.md", files=[*found], **about)
    return found


def _rendered(name: str, **values: object) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # noqa: S701  (no page: words are quoted for a shell or as JSON)
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "quoted": json.dumps,
        "slug": _slug,
        "shell": shlex.quote,
        "lines": _in_lines,
    }
    return environment.get_template(f"{name}.j2").render(**values)


def _in_lines(line: LaunchLine) -> str:
    """A line of a shell, an option a line."""
    return str(line).replace(" --", " \\\n  --")


def _slug(name: str) -> str:
    """A name as a folder, and as SkyPilot takes it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "run"
