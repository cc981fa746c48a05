"""The folder of what carries a recommendation out: lines, trainers' settings, SkyPilot, a README.

Templates (``templates/``) say what a file is like; every option in them comes from the program's
dated list through `line.write_line`, so what is written can be checked.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import accelsim
from accelsim.capacity.assignment import Assignment
from accelsim.catalog import workloads as workload_catalog
from accelsim.files.output import write_folder
from accelsim.frozen import frozen
from accelsim.handover.engines import engine_notes, engine_settings, servers
from accelsim.handover.launchers import Launcher, launcher, launchers, skypilot
from accelsim.handover.line import LaunchLine, write_line
from accelsim.handover.trainers import trainer_settings, unsaid
from accelsim.plain import Document
from accelsim.training.plan import ParallelismPlan
from accelsim.workloads.model import Workload

#: Trainer whose settings a stack's plan is written in, where it is not its own.
_TRAINERS: Final = {"megatron-deepspeed": "megatron", "nemo": "megatron"}
_SETTINGS_FILE: Final = {"torchtitan": "train.toml", "deepspeed": "deepspeed.json"}
_REPOSITORY = re.compile(r"Hugging Face ([\w.-]+/[\w.-]*\w)")


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
    assignments: Sequence[Assignment],
    out: Path,
    command: str,
    beside: Mapping[str, str] = MappingProxyType({}),
    *,
    force: bool = False,
) -> None:
    """Write what carries a recommendation out.

    Args:
        assignments: What runs where.
        out: The folder; one beside another has a folder of its own in it.
        command: The command that made the recommendation.
        beside: Texts of further files by name.
        force: Whether files of a folder that exists may be replaced.

    Raises:
        OutputError: If the folder is not empty (without `force`) or cannot be written.
    """
    made = [_written(one) for one in assignments]
    texts: dict[str, str] = {**beside}
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


def line_of(asked: Assignment) -> str:
    """The line that starts an assignment's program; empty where no list has it.

    Args:
        asked: The assignment.
    """
    line = _written(asked).line
    return "" if line is None else str(line)


def _written(asked: Assignment) -> _Written:
    workload = workload_catalog.workload(asked.workload)
    named = repository(workload)
    notes = [] if named else [f"name the checkpoint of {asked.workload} in place of its name"]
    asked = replace(asked, workload=workload.name)  # which may be of a file with any path
    model = named or workload.name
    count = math.ceil(asked.devices / asked.instance_devices)
    one = _Written(asked, model, count, notes=tuple(notes))
    software = asked.software.partition(" ")[0]
    if asked.task == "serve" and software in launchers():
        return _served(one, workload, launcher(software))
    if asked.task == "train":
        trainer = _TRAINERS.get(software, software)
        if trainer != software:
            told = f"predicted for {software}; the arguments are those of {trainer}"
            one = replace(one, notes=(*one.notes, told))
        return _trained(one, workload, trainer)
    own = "the server is your own: no engine of the list runs this model"
    return replace(one, notes=(*notes, own))


def _served(one: _Written, workload: Workload, program: Launcher) -> _Written:
    """An engine's line, and what it does not say."""
    asked, placed = one.asked, servers(one.asked)
    said = engine_settings(asked, program, placed, workload)
    line = write_line(program, said, one.model, asked.software.partition(" ")[2] or None)
    notes = (*one.notes, *engine_notes(asked, program, placed, line.settings))
    one = replace(one, copies=placed.copies, instances=placed.instances)
    return replace(one, line=line, program=program, notes=notes)


def _trained(one: _Written, workload: Workload, trainer: str) -> _Written:
    """A trainer's line with its settings, and what they do not say."""
    asked, program = one.asked, launchers().get(trainer)
    said = trainer_settings(asked, workload, trainer)
    line = None if program is None else write_line(program, said)
    notes = list(one.notes)
    if trainer != "deepspeed":
        notes += unsaid(trainer, asked, {} if line is None else line.settings)
    if program is not None and program.runs == "job":
        notes.append("name the model: model_name")
        return replace(one, line=line, program=program, notes=tuple(notes))
    run, note = _under_torchrun(one, trainer, line)
    file = _SETTINGS_FILE.get(trainer)
    settings = _settings_text(trainer, line, asked) if line is not None and file else ""
    program, notes = program or run.launcher, [*notes, *[note] * bool(note)]
    return replace(one, line=run, program=program, settings=settings, notes=tuple(notes))


def _under_torchrun(one: _Written, trainer: str, line: LaunchLine | None) -> tuple[LaunchLine, str]:
    """The line that starts a trainer, or a script of one's own, and what to do first."""
    file = _SETTINGS_FILE.get(trainer)
    counts = {"nodes": one.instances, "node_devices": one.asked.devices // one.instances}
    run = write_line(launcher("torchrun"), counts | {"module": trainer == "torchtitan"})
    if line is None or trainer == "deepspeed":
        arguments = ("train.py", *(("--deepspeed", file) if file else ()))
        return replace(run, arguments=arguments), "train.py is your own script"
    if file is None:
        return replace(run, script=line), ""
    script = replace(line, options={"--job.config_file": file})
    return replace(run, script=script), f"name the model in {file}: [model] name and flavor"


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
    about["tpu_slice"] = _tpu_slice(asked)
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


def _tpu_slice(asked: Assignment) -> str:
    """One slice of all chips as Google Cloud names it, which counts cores of some; empty of other
    devices.
    """
    place = asked.place
    if place is None or not place.accelerator.startswith("TPU"):
        return ""
    name, _, count = place.instance.replace("v5e", "v5litepod").rpartition("-")
    return f"{name}-{round(int(count) * asked.devices / (place.device_count or 1))}"


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
    first, *rest = shlex.split(str(line))
    breaks = (" \\\n  " if word.startswith("--") else " " for word in rest)
    words = (gap + shlex.quote(word) for gap, word in zip(breaks, rest, strict=True))
    return shlex.quote(first) + "".join(words)


def _slug(name: str) -> str:
    """A name as a folder, and as SkyPilot takes it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "run"
