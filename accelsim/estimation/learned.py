"""What the user's own measured runs say of an answer: a profile of runs, each with what was
predicted of it, and the correction that they give runs like it.

Runs are like each other by phase (prompts, further tokens, an inference, an iteration of training),
device, software and its version, number format and model; a run that shares none of these levels
with any measured one is not corrected. `accelsim.learning` makes profiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

import accelsim
from accelsim.confidence.hierarchy import Components, Correction, Hierarchy, Runs
from accelsim.errors import InvalidValueError
from accelsim.files.datafile import (
    FileStamp,
    data_root,
    file_stamp,
    read_json,
    read_yaml,
    validated,
)
from accelsim.frozen import frozen

Phase = Literal["prompt", "decode", "inference", "training"]
#: Levels of `System.effects`.
LEVELS = ("system", "version", "precision", "stack", "model")
_MAX_BYTES = 32_000_000
_Text = Annotated[str, Field(min_length=1, max_length=300)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@cache
def components(phase: str) -> Components:
    """Shares of the variance of ln(measured / predicted) of a phase, for the levels of
    `System.effects`.

    Estimated by maximum likelihood from residuals of the scoreboard's suites
    (``python -m tools.scoreboard.learning --write``).
    """
    entry = read_yaml(data_root() / "calibration/class/learned_errors.yaml")["phases"][phase]
    return Components(tuple(map(entry["shares"].get, LEVELS)), entry["near"], entry["length"])


@frozen
class System:
    """What a run is of.

    Attributes:
        phase: What of it: prompts, further tokens, an inference, an iteration.
        device: Catalogue name, without a slice.
        stack: Software.
        version: Its version; empty where unknown.
        precision: Number format.
        model: Workload.
        device_class: "cpu", "gpu", "fpga" or "asic".
        sizes: Sizes of the passes of a rank by name (batch, seq_len, tp, ...); those that are not
            named are 1.
    """

    phase: str
    device: str
    stack: str
    version: str
    precision: str
    model: str
    device_class: str
    sizes: Mapping[str, float]

    @property
    def effects(self) -> tuple[str, ...]:
        """Names of what it shares with runs like it: the system in full, the version of its
        software, its number format, its software, and the model on other devices of the class by
        the same software.
        """
        where = f"{self.phase} on {self.device} by {self.stack}"
        model = f"{self.model} in {self.precision}"
        return (
            f"{where} {self.version} of {model}",
            f"{where} {self.version}",
            f"{where} in {self.precision}",
            where,
            f"{self.phase} by {self.stack} of {model} on {self.device_class}",
        )


def _version(version: str, driver: str) -> str:
    """A version of the software with the device's driver, where it is known."""
    return f"{version}, driver {driver}" if driver else version


def pass_sizes(**sizes: int) -> dict[str, float]:
    """Sizes of the passes of a rank as `System` takes them; 0 is none."""
    return {name: float(size) for name, size in sizes.items() if size > 1}


class LearnedRun(BaseModel):
    """One measured run and what was predicted of it.

    Attributes:
        phase: As in `System`, with the seven that follow.
        measured: Seconds that were measured.
        predicted: Seconds that accelsim predicts.
        ratio: Time over the predicted one; of a server's steps, with which its load gives what was
            measured.
        log_sigma: Spread of ln(measured / predicted) of runs like it before.
        source: File and place that it was read from.
        date: Day it was measured; empty where unknown.
        driver: Version of the device's driver; empty where unknown. Runs with another driver count
            as runs of another version; an answer is for the newest that runs of its device name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    phase: Phase
    device: _Text
    stack: _Text
    version: str = ""
    precision: _Text
    model: _Text
    device_class: _Text
    sizes: dict[_Text, _Positive] = Field(default_factory=dict)
    measured: _Positive
    predicted: _Positive
    ratio: _Positive
    log_sigma: _Positive
    source: _Text
    date: str = ""
    driver: str = ""

    @property
    def system(self) -> System:
        """What it is of."""
        return System(
            self.phase,
            self.device,
            self.stack,
            _version(self.version, self.driver),
            self.precision,
            self.model,
            self.device_class,
            self.sizes,
        )


class Learned(BaseModel):
    """A profile: what accelsim learned from the user's runs.

    Attributes:
        format: What such a file is.
        version: Of its schema.
        accelsim: Version that made the predictions.
        runs: The runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    format: Literal["accelsim-learned"]
    version: Literal[1]
    accelsim: _Text
    runs: Annotated[tuple[LearnedRun, ...], Field(min_length=1, max_length=100_000, strict=False)]

    def of_runs(self, runs: tuple[LearnedRun, ...]) -> Learned:
        """A profile of other runs, compared with the same predictions."""
        return Learned(format=self.format, version=self.version, accelsim=self.accelsim, runs=runs)

    @cached_property
    def ordered(self) -> tuple[LearnedRun, ...]:
        """The runs in an order that does not depend on that of their files."""
        return tuple(sorted(self.runs, key=lambda run: (run.system.effects, run.ratio)))

    @cached_property
    def _by_phase(self) -> dict[str, tuple[list[LearnedRun], Hierarchy]]:
        """The runs of each phase, and the effects that they show."""
        fitted = {}
        for phase in dict.fromkeys(run.phase for run in self.ordered):
            runs = [run for run in self.ordered if run.phase == phase]
            measured = Runs(
                [run.system.effects for run in runs],
                [run.sizes for run in runs],
                np.log([run.ratio for run in runs]),
                np.array([run.log_sigma for run in runs]),
            )
            fitted[str(phase)] = runs, Hierarchy.of(measured, components(phase))
        return fitted

    def correction(self, system: System, log_sigma: float) -> Correction:
        """What is known of a run's error.

        Args:
            system: What the run is of.
            log_sigma: Its spread without the profile.
        """
        if system.phase not in self._by_phase:
            return Correction(0.0, log_sigma)
        hierarchy, now = self._by_phase[system.phase][1], self._as_now(system)
        return hierarchy.correction(now.effects, now.sizes, log_sigma)

    def _as_now(self, system: System) -> System:
        """A system with the newest driver that the runs name of its device."""
        driver = self._drivers.get(system.device, "")
        return replace(system, version=_version(system.version, driver))

    @cached_property
    def _drivers(self) -> dict[str, str]:
        """The newest driver that the runs name of each device."""
        dated = sorted((run.date, run.driver, run.device) for run in self.runs if run.driver)
        return {device: driver for _, driver, device in dated}

    def alike(self, system: System) -> list[LearnedRun]:
        """Runs that share something with one."""
        effects = self._as_now(system).effects
        indices = {index for effect in effects for index in self._runs_with.get(effect, ())}
        return [self.ordered[index] for index in sorted(indices)]

    @cached_property
    def _runs_with(self) -> dict[str, list[int]]:
        """Indices in `ordered` of the runs that have each effect."""
        indices: dict[str, list[int]] = {}
        for index, run in enumerate(self.ordered):
            for effect in run.system.effects:
                indices.setdefault(effect, []).append(index)
        return indices

    def basis(self, systems: Iterable[System]) -> str:
        """Which runs an answer is corrected by; empty where none is like it."""
        sources = dict.fromkeys(run.source for system in systems for run in self.alike(system))
        files = ", ".join(dict.fromkeys(source.partition(", ")[0] for source in sources))
        runs = "run" if len(sources) == 1 else "runs"
        return f"; corrected by {len(sources):,} {runs} of yours ({files})" if sources else ""

    def notes(self, systems: Iterable[System]) -> tuple[str, ...]:
        """What to know of a correction: runs of another version or driver, of nothing alike, or
        compared with predictions of another accelsim.
        """
        return tuple(dict.fromkeys(filter(None, map(self._note, systems))))

    def _note(self, system: System) -> str:
        now = self._as_now(system)
        where = f"{now.stack} on {now.device}"
        alike = self.alike(system)
        beside = [r for r in alike if (r.device, r.stack) == (now.device, now.stack)]
        same = [run for run in beside if run.model == now.model] or beside
        versions = sorted({run.system.version for run in same})
        if self.accelsim != accelsim.__version__:
            return (
                f"learned runs were compared with predictions of accelsim {self.accelsim}: learn "
                f"from them again with {accelsim.__version__}"
            )
        if not alike:
            return f"no learned run is like this one ({now.phase}, {where}): nothing is corrected"
        if versions and now.version not in versions:
            measured = "; ".join(versions)
            return (
                f"learned runs of {where} are of version {measured}, this is {now.version}: "
                "the interval is wider for that"
            )
        return ""

    @property
    def far_runs(self) -> list[LearnedRun]:
        """Runs so far from others like them that they say nothing."""
        return [runs[index] for runs, fit in self._by_phase.values() for index in fit.far_runs]


def read_learned(path: str | Path, name: str = "learned") -> Learned:
    """Read a profile.

    Args:
        path: File that ``accelsim learn --out`` wrote.
        name: Option that names it, for messages.

    Raises:
        ProfileError: If it is no such file, or of a newer schema.
        InvalidValueError: If there is no such file.
    """
    path = Path(path)
    stamp = file_stamp(path)
    if stamp is None:
        remedy = "Make one with accelsim learn FILE --out PROFILE."
        raise InvalidValueError(name, str(path), "a file that accelsim learn wrote", remedy)
    return _read(path, stamp)


@lru_cache(maxsize=8)
def _read(path: Path, _stamp: FileStamp) -> Learned:
    data = read_json(path, max_bytes=_MAX_BYTES)
    return validated(path, lambda: Learned.model_validate(data))
