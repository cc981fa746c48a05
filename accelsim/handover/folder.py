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
class _Handover:
    """An assignment as its files say it."""

    assignment: Assignment
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
        if self.program is None:
            return ""
        line = self.line and (self.line.script or self.line)
        if line is not None and line.launcher is self.program:
            return line.version
        return self.program.listed(None).version

    def with_notes(self, *notes: str) -> _Handover:
        return replace(self, notes=(*self.notes, *notes))


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
    handovers = [_handover(assignment) for assignment in assignments]
    texts: dict[str, str] = {**beside}
    if len(handovers) == 1:
        texts |= _files(handovers[0], command)
    else:
        names = [_slug(assignment.name) for assignment in assignments]
        for name, handover in zip(names, handovers, strict=True):
            texts |= {f"{name}/{file}": text for file, text in _files(handover, command).items()}
        if handovers:
            values = {"names": names, "handovers": handovers, "command": command}
            texts["README.md"] = _rendered("overview.md", **values)
    write_folder(out, texts, force=force)


def repository(workload: Workload) -> str | None:
    """The model's repository on Hugging Face, which its published figures name."""
    matches = (_REPOSITORY.search(figure.source) for figure in workload.published)
    return next((match[1] for match in matches if match is not None), None)


def line_of(assignment: Assignment) -> str:
    """The line that starts an assignment's program; empty where no list has it.

    Args:
        assignment: The assignment.
    """
    line = _handover(assignment).line
    return "" if line is None else str(line)


def _handover(assignment: Assignment) -> _Handover:
    workload = workload_catalog.workload(assignment.workload)
    checkpoint = repository(workload)
    handover = _Handover(
        replace(assignment, workload=workload.name),  # which may be of a file with any path
        checkpoint or workload.name,
        math.ceil(assignment.devices / assignment.instance_devices),
    )
    if checkpoint is None:
        note = f"name the checkpoint of {assignment.workload} in place of its name"
        handover = handover.with_notes(note)
    software = assignment.software.partition(" ")[0]
    if assignment.task == "serve" and software in launchers():
        return _served(handover, workload, launcher(software))
    if assignment.task == "train":
        trainer = _TRAINERS.get(software, software)
        if trainer != software:
            note = f"predicted for {software}; the arguments are those of {trainer}"
            handover = handover.with_notes(note)
        return _trained(handover, workload, trainer)
    return handover.with_notes("the server is your own: no engine of the list runs this model")


def _served(handover: _Handover, workload: Workload, program: Launcher) -> _Handover:
    """An engine's line, and what it does not say."""
    assignment = handover.assignment
    layout = servers(assignment)
    settings = engine_settings(assignment, program, layout, workload)
    version = assignment.software.partition(" ")[2] or None
    line = write_line(program, settings, handover.model, version)
    handover = replace(
        handover, line=line, program=program, copies=layout.copies, instances=layout.instances
    )
    return handover.with_notes(*engine_notes(assignment, program, layout, line.settings))


def _trained(handover: _Handover, workload: Workload, trainer: str) -> _Handover:
    """A trainer's line with its settings, and what they do not say."""
    assignment, program = handover.assignment, launchers().get(trainer)
    line = None
    if program is not None:
        line = write_line(program, trainer_settings(assignment, workload, trainer))
    if trainer != "deepspeed":
        settings = {} if line is None else line.settings
        handover = handover.with_notes(*unsaid(trainer, assignment, settings))
    if program is not None and program.runs == "job":
        handover = handover.with_notes("name the model: model_name")
        return replace(handover, line=line, program=program)
    run, note = _under_torchrun(handover, trainer, line)
    text = ""
    if line is not None and trainer in _SETTINGS_FILE:
        text = _settings_text(trainer, line, assignment)
    handover = replace(handover, line=run, program=program or run.launcher, settings=text)
    return handover.with_notes(note) if note else handover


def _under_torchrun(
    handover: _Handover, trainer: str, line: LaunchLine | None
) -> tuple[LaunchLine, str]:
    """The line that starts a trainer, or a script of one's own, and what to do first."""
    file = _SETTINGS_FILE.get(trainer)
    node_devices = handover.assignment.devices // handover.instances
    settings = {"nodes": handover.instances, "node_devices": node_devices}
    run = write_line(launcher("torchrun"), settings | {"module": trainer == "torchtitan"})
    if line is None or trainer == "deepspeed":
        arguments = ("train.py", *(("--deepspeed", file) if file else ()))
        return replace(run, arguments=arguments), "train.py is your own script"
    if file is None:
        return replace(run, script=line), ""
    script = replace(line, options={"--job.config_file": file})
    return replace(run, script=script), f"name the model in {file}: [model] name and flavor"


def _settings_text(trainer: str, line: LaunchLine, assignment: Assignment) -> str:
    """A trainer's file of settings: tables of TOML, or JSON."""
    document: Document = {}
    for name, text in line.options.items():
        *sections, key = name.removeprefix("--").split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        kind = line.launcher.options[name].kind
        if kind == "list":
            table[key] = text.split("\0")
        elif kind in {"str", "choice"} and not (trainer == "deepspeed" and text.isdigit()):
            table[key] = text
        else:
            table[key] = json.loads(text)
    if trainer == "deepspeed":
        return json.dumps(document, indent=2) + "\n"
    return _rendered("train.toml", assignment=assignment, document=document, line=line)


def _files(handover: _Handover, command: str) -> dict[str, str]:
    """Texts of an assignment's files by name."""
    assignment = handover.assignment
    usual = {"dp": 1, "seq_len": 0} | {
        field.name: field.default for field in fields(ParallelismPlan)
    }
    settings = (f"{n} {v}" for n, v in assignment.settings.items() if v not in {None, usual.get(n)})
    values: Document = {
        "handover": handover,
        "assignment": assignment,
        "line": handover.line,
        "offer": assignment.place,
        "command": command,
        "version": accelsim.__version__,
        "sky": skypilot(),
        "tpu_slice": _tpu_slice(assignment),
        "layout": ", ".join(settings),
    }
    texts: dict[str, str] = {}
    if handover.line is not None:
        values["start"] = start = {"serve": "serve.sh", "train": "train.sh"}[assignment.task]
        texts[start] = _rendered("start.sh", **values)
    if handover.settings and handover.program is not None:
        texts[_SETTINGS_FILE[handover.program.name]] = handover.settings
    texts["sky.yaml"] = _rendered("sky.yaml", **values)
    texts["README.md"] = _rendered("README.md", files=[*texts], **values)
    return texts


def _tpu_slice(assignment: Assignment) -> str:
    """One slice of all chips as Google Cloud names it, which counts cores of some; empty of other
    devices.
    """
    offer = assignment.place
    if offer is None or not offer.accelerator.startswith("TPU"):
        return ""
    name, _, count = offer.instance.replace("v5e", "v5litepod").rpartition("-")
    return f"{name}-{round(int(count) * assignment.devices / (offer.device_count or 1))}"


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
    command, *words = shlex.split(str(line))
    breaks = (" \\\n  " if word.startswith("--") else " " for word in words)
    options = (gap + shlex.quote(word) for gap, word in zip(breaks, words, strict=True))
    return shlex.quote(command) + "".join(options)


def _slug(name: str) -> str:
    """A name as a folder, and as SkyPilot takes it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "run"
