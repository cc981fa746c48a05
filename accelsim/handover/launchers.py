"""Programs that serve and train, and the options that each of their versions has.

Which program a line starts and which of our settings its options are is data
(``calibration/launchers``), read from the programs' own sources, with version and date.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from accelsim.catalog.versions import Span, is_before, release
from accelsim.errors import UnknownNameError
from accelsim.files.datafile import data_root, read_yaml, validated
from accelsim.frozen import frozen
from accelsim.hardware.sourced import FrozenModel

_NEGATION = re.compile(r"--no[-_]")
_Words = Annotated[tuple[str, ...], Field(strict=False)]
#: What the values of an option may be.
KINDS = ("flag", "int", "float", "choice", "str", "json", "list")


@frozen
class LineOption:
    """An option of a program.

    Attributes:
        name: As it is written.
        also: Its other spellings.
        kind: One of `KINDS`.
        choices: Its values in the newest list; all where empty.
        versions: Versions whose list has it; all where empty.
    """

    name: str
    also: tuple[str, ...]
    kind: str
    choices: tuple[str, ...]
    versions: tuple[str, ...]

    def is_in(self, version: str) -> bool:
        """Whether a version's list has it."""
        return not self.versions or version in self.versions


class ListedVersion(FrozenModel):
    """A version whose options were listed.

    Attributes:
        version: The version.
        date: When it came out.
        source: Where its options were read.
    """

    version: str
    date: str
    source: str = Field(min_length=8)


class Meaning(FrozenModel):
    """Which option says a setting of ours.

    Attributes:
        option: The option.
        values: Its texts -> our values; its texts are our values where empty.
        written: Values that are written out, all where None: the others are the checkpoint's own.
    """

    option: str
    values: Mapping[str, str | int] = Field(default_factory=dict)
    written: Annotated[tuple[str | int, ...] | None, Field(strict=False)] = None

    def text(self, value: str | float) -> str | None:
        """What is written for a value; None for nothing."""
        if self.written is not None and value not in self.written:
            return None
        if not self.values:
            return format(value, "g") if isinstance(value, float) else str(value)
        return next((text for text, ours in self.values.items() if ours == value), None)


class Launcher(FrozenModel):
    """A program.

    Attributes:
        name: That of the engine or trainer.
        begins: Words that its lines begin with; those of a trainer follow torchrun's options.
        runs: An engine, a trainer under torchrun, a job by itself, or processes of a script.
        assigns: Whether its options are written as name=value.
        model: Option that names the model.
        takes_model: Whether its first argument is the model.
        lenient: Whether ``--no-`` turns flags off, and ``-`` and ``_`` are one.
        scaled: Whether whole numbers may end in k, K, m, M ...
        holds_context: Whether it does not start where its cache is smaller than the context.
        is_excerpt: Whether its list has but a part of its options.
        installs: Shell line that installs a version.
        versions: Oldest first.
        means: Our settings.
    """

    name: str
    begins: _Words
    runs: Literal["engine", "trainer", "job", "processes"]
    model: str | None = None
    takes_model: bool = False
    assigns: bool = False
    lenient: bool = False
    scaled: bool = False
    holds_context: bool = False
    is_excerpt: bool = False
    installs: str = ""
    versions: Annotated[tuple[ListedVersion, ...], Field(strict=False, min_length=1)]
    means: Mapping[str, Meaning]

    @property
    def options(self) -> Mapping[str, LineOption]:
        """Options by every spelling."""
        return _options(self.name)

    def listed(self, version: str | None) -> ListedVersion:
        """The list that answers for a version: the newest that is no newer; the newest of all
        where none is named, the oldest for versions before it.

        Raises:
            UnknownNameError: If the version has no numbers.
        """
        if version is None:
            return self.versions[-1]
        if release(version) is None:
            versions = [listed.version for listed in self.versions]
            raise UnknownNameError(f"version of {self.name}", version, versions, "Such as 0.19.0.")
        fitting = [
            listed
            for listed in self.versions
            if not is_before(version, Span(listed.version, listed.version))
        ]
        return (fitting or self.versions[:1])[-1]

    def find(self, text: str) -> tuple[LineOption | None, bool]:
        """The option of a spelling, and whether it is turned on; argparse takes the beginning of a
        name that no other begins with.
        """
        options = self.options
        if self.lenient and text.startswith("--"):
            for spelled, is_on in ((text, True), (_NEGATION.sub("--", text), False)):
                for spelling in _spellings(spelled):
                    if spelling in options:
                        return options[spelling], is_on
        return options.get(text) or self._begun(text), True

    def _begun(self, text: str) -> LineOption | None:
        """The one option that begins so."""
        matching = [option for name, option in self.options.items() if name.startswith(text)]
        is_short = text.startswith("--") and len(matching) == 1 and self.runs != "trainer"
        return matching[0] if is_short else None


def _spellings(text: str) -> Iterator[str]:
    yield text
    yield text.replace("_", "-")
    yield text.replace("-", "_").replace("__", "--", 1)


class SkyPilot(FrozenModel):
    """What is known of SkyPilot: a version, where it was read, and the clouds it rents at."""

    version: str
    source: str
    clouds: _Words


class _LauncherFile(FrozenModel):
    kind: Literal["launchers"]
    skypilot: SkyPilot
    launchers: Annotated[tuple[Launcher, ...], Field(strict=False)]


@lru_cache(maxsize=1)
def _file() -> _LauncherFile:
    path = data_root() / "calibration" / "launchers" / "launchers.yaml"
    return validated(path, lambda: _LauncherFile.model_validate(read_yaml(path)))


@lru_cache(maxsize=1)
def launchers() -> Mapping[str, Launcher]:
    """All programs by name."""
    return {program.name: program for program in _file().launchers}


def skypilot() -> SkyPilot:
    """What is known of SkyPilot."""
    return _file().skypilot


def launcher(name: str) -> Launcher:
    """A program.

    Raises:
        UnknownNameError: If there is no such.
    """
    programs = launchers()
    if name not in programs:
        raise UnknownNameError("program", name, programs, f"Known: {', '.join(programs)}.")
    return programs[name]


@lru_cache(maxsize=16)
def _options(name: str) -> Mapping[str, LineOption]:
    path = data_root() / "calibration" / "launchers" / f"{name}.csv"
    options: dict[str, LineOption] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            texts = (row[column].split() for column in ("also", "choices", "versions"))
            also, choices, versions = map(tuple, texts)
            option = LineOption(row["option"], also, row["kind"], choices, versions)
            options |= dict.fromkeys((option.name, *also), option)
    return options
