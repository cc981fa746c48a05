"""What a file of measured runs says, in one form for all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from accelsim.errors import InvalidValueError
from accelsim.files.datafile import validated
from accelsim.frozen import frozen
from accelsim.option import option
from accelsim.plain import Document, Values

Count = Annotated[int, Field(ge=1, le=100_000_000)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class FileEntry(BaseModel):
    """What an object or a line of a file says; fields that nobody needs are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    @classmethod
    def read(cls, source: str, data: Document) -> Self:
        """An entry, checked.

        Args:
            source: File and place.
            data: Its values.

        Raises:
            ProfileError: Naming the field that is missing or of the wrong kind.
        """
        return validated(Path(source), partial(cls.model_validate, data), data)


@frozen
class Told:
    """What a file does not say of its runs, or is to be read in place of what it says."""

    model: str | None = option("Workload that ran, where the file names none.", metavar="NAME")
    device: str | None = option(
        "Device of every rank, where the file names none.", None, "NAME", "--device -d"
    )
    engine: str | None = option(
        "Software that ran it, such as vllm@0.11, where the file names none.", metavar="NAME"
    )
    tp: int | None = option("Ranks of a replica. Default: 1.", within=(1, 100_000))
    precision: str | None = option("Number format. Default: the usual one.", metavar="NAME")
    driver: str | None = option("Version of the device's driver.", metavar="TEXT")
    cluster: str | None = option("Cluster that trained, where the file names none.", metavar="NAME")
    gpus: int | None = option("Devices that trained together.", within=(1, 1_000_000))
    plan: str | None = option("How they divided the work.", metavar="dp=8,tp=4,...")
    batch: int | None = option("Samples of a batch, on all devices.", within=(1, 100_000_000))
    seq_len: int | None = option("Tokens of a sample.", within=(1, 100_000_000))

    @property
    def is_planned(self) -> bool:
        """Whether it says how several devices work together in training."""
        return bool(self.plan or self.cluster or self.gpus)


@frozen
class Reading:
    """One measured run.

    Attributes:
        source: File and place.
        told: What ran on what.
        measured_s: Measured times by phase: "prompt" (to the first token), "decode" (per further
            token), "inference" or "training" (a batch).
        load: Arguments of `accelsim.Arrivals`, of a server; None of a run of its own.
        shape: Sizes of a run of its own: batch, seq_len, output_len, image_size.
        date: Day; empty where unknown.
    """

    source: str
    told: Told
    measured_s: Mapping[str, float]
    load: Values | None = None
    shape: Values | None = None
    date: str = ""


@frozen
class Entry:
    """A place of a file that is read, or refused, alone.

    Attributes:
        source: File and place.
        read: Reads its runs.
    """

    source: str
    read: Callable[[], Iterable[Reading]]


def filled(
    source: str, from_file: Mapping[str, object], told: Told, needed: tuple[str, ...]
) -> Told:
    """What ran, from a file and from what is told beside it.

    Args:
        source: File and place, for messages.
        from_file: What the file says, by field; empty texts and None are unknown.
        told: What the caller says; it comes first.
        needed: Fields that must be known.

    Raises:
        InvalidValueError: Naming the option of a field that nobody says.
    """
    values = asdict(told)
    for name, told_value in values.items():
        if told_value is None:
            values[name] = from_file.get(name) or None
        if values[name] is None and name in needed:
            remedy = f"Say it: --{name.replace('_', '-')}."
            raise InvalidValueError(name, None, f"a value: {source} does not say it", remedy)
    return Told(**values)
