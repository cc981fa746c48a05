"""The run file: every measurement of a calibration, appended as it is made.

One JSON document per line. The first line says which schema, machine and settings the rows belong
to; every line carries a hash that covers its own content and all lines before it, so that a
changed, lost or reordered line is noticed. A line that was cut off by a kill or a full disk is the
last one and is dropped on the next opening; nothing else is lost. Needs the standard library alone.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

from accelsim.calibration.environment import differences, machine_name
from accelsim.calibration.measured_rows import MeasuredRow, is_size, refuse_fields
from accelsim.calibration.measurement.case import CASE_VERSION, Case
from accelsim.errors import InvalidValueError, OutputError, ProfileError
from accelsim.files.plainfile import MOST_VALUES, open_plain, user_folder
from accelsim.frozen import frozen
from accelsim.plain import Document, Values, grouped

if TYPE_CHECKING:
    from accelsim.workloads.graph import OperatorGraph

SCHEMA = "accelsim-calibration-run"
VERSION = 2
_HASH_DIGITS = 16
_MOST_BYTES = 128_000_000
_LONGEST_LINE = 1_000_000
_LONGEST_S = 1e6


@frozen
class Measurement:
    """One row of a run.

    Attributes:
        case: What was run.
        time_s: Time of one call; None where it was skipped.
        noise_fraction: Median over best time, less 1.
        round_number: Pass over the suite, from 0.
        details: Further figures of the timer.
        skipped: Why there is no time; None where there is one.
        row: The operator row that stands for it; None where none does.
    """

    case: Case
    time_s: float | None
    noise_fraction: float
    round_number: int
    details: Values
    skipped: str | None = None
    row: MeasuredRow | None = None

    @property
    def is_undisturbed(self) -> bool:
        """Whether no other program took a core from it, as far as it says."""
        return bool(self.details.get("undisturbed", True))

    def to_dict(self) -> Document:
        """Plain values for JSON."""
        values = asdict(self)
        values["round"] = values.pop("round_number")
        return values

    @classmethod
    def from_dict(cls, data: Values) -> Measurement:
        """Read `to_dict`'s form.

        Raises:
            ValueError: If a field is missing or of the wrong kind.
        """
        try:
            values = dict(data)
            values["round_number"] = int(values.pop("round"))
            values["case"] = Case(**values["case"])
            if values["row"] is not None:
                values["row"] = MeasuredRow.from_dict(values["row"])
            measurement = cls(**values)
            measurement.check()
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not a measurement ({error})") from None
        return measurement

    def check(self) -> None:
        """Refuse what is no measurement.

        Raises:
            ValueError: Naming the field.
        """
        case = self.case
        names = (case.family, case.operator, case.dtype, case.execution)
        sizes = (*dict(case.shape).values(), case.threads)
        time_s, noise = self.time_s, self.noise_fraction
        refuse_fields(
            (
                ("case", names, all(isinstance(name, str) for name in names)),
                ("case.shape", case.shape, all(map(is_size, sizes))),
                ("time_s", time_s, time_s is None or 0 < float(time_s) < _LONGEST_S),
                ("noise_fraction", noise, 0 <= float(noise) < math.inf),
                ("details", self.details, isinstance(self.details, Mapping)),
            )
        )
        if self.row is not None:
            self.row.check()


@frozen
class CalibrationRun:
    """A whole run file.

    Attributes:
        environment: The machine and software it was measured on.
        settings: Device, threads, formats, budget.
        rows: Measurements in the order they were made.
        notes: Other lines: machine noise, energy, shrunken cases.
        digest: Hash of the last line, which covers the whole file.
        dropped_bytes: Bytes of a last line that was cut off.
    """

    environment: Values
    settings: Values
    rows: Sequence[Measurement]
    notes: Sequence[Values]
    digest: str
    dropped_bytes: int

    @property
    def device(self) -> str:
        """Device it was measured on: "cpu" or "cuda:N"."""
        return str(self.settings.get("device", "cpu"))

    @property
    def is_of_gpu(self) -> bool:
        """Whether it was measured on a GPU."""
        return self.device.startswith("cuda")

    @property
    def machine(self) -> str:
        """A short name of the machine."""
        return machine_name(self.environment)

    @property
    def date(self) -> str:
        """Day it was measured, "unknown" where it does not say."""
        return str(self.environment.get("measured_at") or "")[:10] or "unknown"

    @property
    def source(self) -> str:
        """What its rows are, in words."""
        return f"operators measured on {self.machine}, run {self.digest}"

    def best(self) -> dict[str, Measurement]:
        """The fastest measurement of each case, over rounds: interference only ever adds time."""
        timed = grouped(
            (row for row in self.rows if row.time_s is not None), lambda row: row.case.key
        )
        return {key: min(rows, key=lambda row: row.time_s or 0.0) for key, rows in timed.items()}


def _line(payload: Values, previous: str) -> tuple[bytes, str]:
    body = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digest = sha256((previous + body).encode()).hexdigest()[:_HASH_DIGITS]
    return (body[:-1] + f',"hash":"{digest}"}}\n').encode(), digest


def read_run(path: str | Path) -> CalibrationRun:
    """Read a run file whole.

    Raises:
        ProfileError: If it cannot be read, is of another schema or version, or a line but the last
            does not match its hash.
    """
    path = Path(path)
    header: Document | None = None
    digest, rows, notes = "", [], []
    cut_bytes = 0
    for number, line in enumerate(_lines(path), 1):
        if not line.endswith(b"\n"):
            cut_bytes = len(line)
            break
        document, digest = _checked(path, number, line, digest)
        if header is None:
            _check_header(path, document)
            header = document
        elif "case" not in document:
            notes.append(document)
        else:
            try:
                rows.append(Measurement.from_dict(document))
            except ValueError as error:
                raise ProfileError(str(path), [f"line {number}: {error}"]) from None
    if header is None:
        raise ProfileError(str(path), ["line 1: no complete line; this is not a run file"])
    settings = header["settings"]
    return CalibrationRun(header["environment"], settings, rows, notes, digest, cut_bytes)


def _lines(path: Path) -> Iterator[bytes]:
    """Lines of a file within bounds, read one at a time."""
    size = values = 0
    with open_plain(path) as stream:
        while line := stream.readline(_LONGEST_LINE + 1):
            size += len(line)
            if len(line) > _LONGEST_LINE or size > _MOST_BYTES:
                limits = f"larger than {_MOST_BYTES:,} bytes, or a line of {_LONGEST_LINE:,}"
                raise ProfileError(str(path), [f"{limits}: not a run file"])
            values += sum(line.count(mark) for mark in (b",", b"[", b"{"))
            if values > MOST_VALUES:
                raise ProfileError(str(path), [f"more than {MOST_VALUES:,} values"])
            yield line


def _checked(path: Path, number: int, line: bytes, previous: str) -> tuple[Document, str]:
    try:
        document = json.loads(line)
        claimed = document.pop("hash")
        _, digest = _line(document, previous)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        problem = f"line {number}: not a line of a run file (damaged)"
        raise ProfileError(str(path), [problem]) from None
    if claimed != digest:
        problem = "its hash does not match; the file was changed after it was written"
        raise ProfileError(str(path), [f"line {number}: {problem}"])
    return document, digest


def _check_header(path: Path, header: Values) -> None:
    wanted = {"schema": SCHEMA, "version": VERSION, "case_version": CASE_VERSION}
    problems = [
        f"line 1, {name}: {header.get(name)!r}, this program reads {value!r}; measure again"
        for name, value in wanted.items()
        if header.get(name) != value
    ]
    sections = (header.get("environment"), header.get("settings"))
    if not all(isinstance(section, dict) for section in sections):
        problems.append("line 1: environment or settings missing")
    if problems:
        raise ProfileError(str(path), problems)


class RunFile:
    """Appends rows to a run file; each is in the file when `append` returns.

    Beside it lies ``<path>.case`` while a case runs: it names the case that was running when a
    process was killed or died, so that a kernel that ends the process does not end every resumed
    one too.

    Attributes:
        run: What the file to be continued holds; None for a new one.
        fatal_case: Key of the case during which the previous process ended; None where it ended
            otherwise.

    Args:
        path: The file.
        environment: This machine, as `environment.describe` gives it.
        settings: Device, threads, formats.
        resume: Continue an existing file of the same machine; otherwise it must not exist.

    Raises:
        OutputError: If the file exists and is not to be continued, or cannot be written.
        ProfileError: If the file to be continued is damaged.
        InvalidValueError: If it is from another machine, software or device; names the
            difference.
    """

    def __init__(
        self,
        path: str | Path,
        environment: Values,
        settings: Values,
        *,
        resume: bool = False,
    ) -> None:
        self.path = Path(path)
        self.run: CalibrationRun | None = None
        self.fatal_case: str | None = None
        self._marker = Path(f"{self.path}.case")
        if self.path.is_dir():
            raise OutputError(f"{self.path} is a folder. Give a file.")
        if self.path.exists() and self.path.stat().st_size:
            if not resume:
                raise OutputError(
                    f"{self.path} exists. Continue it with --resume, remove it to measure anew, "
                    "or give another --out."
                )
            self.fatal_case = _text(self._marker)
            self.run = read_run(self.path)
            _check_same(self.path, self.run, environment)
            self._digest = self.run.digest
            self._size = self.path.stat().st_size - self.run.dropped_bytes
            self._open()
            os.ftruncate(self._descriptor, self._size)
            return
        self._digest, self._size = "", 0
        self._open()
        header = {"schema": SCHEMA, "version": VERSION, "case_version": CASE_VERSION}
        self.append({**header, "environment": dict(environment), "settings": dict(settings)})

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error.strerror}.") from None

    def append(self, payload: Values | Measurement) -> None:
        """Write one line.

        Raises:
            OutputError: If the disk is full; what was written before stays whole.
        """
        document = payload.to_dict() if isinstance(payload, Measurement) else payload
        line, digest = _line(document, self._digest)
        try:
            written, reason = os.write(self._descriptor, line), "no space left on the disk"
        except OSError as error:
            written, reason = -1, str(error.strerror)
        if written != len(line):
            with suppress(OSError):  # a line cut off is dropped on the next opening anyway
                os.ftruncate(self._descriptor, self._size)
            raise OutputError(
                f"{self.path} cannot be extended: {reason}. Everything measured before is kept; "
                "make room and continue with --resume."
            )
        self._size += len(line)
        self._digest = digest

    def begin(self, key: str) -> None:
        """Note which case runs next; where that cannot be noted, the run goes on without."""
        with suppress(OSError):
            self._marker.write_text(key, encoding="utf-8")

    def close(self) -> None:
        """Flush to the disk and close."""
        if self._descriptor >= 0:
            with suppress(OSError):  # /dev/stdout and the like cannot be flushed to a disk
                os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(OSError):
            self._marker.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace") or None
    except OSError:
        return None


def _check_same(path: Path, run: CalibrationRun, environment: Values) -> None:
    differing = differences(run.environment, environment)
    if differing:
        remedy = f"Start a new run with another --out. Different: {'; '.join(differing)}."
        raise InvalidValueError("resume", str(path), "a run of this machine and software", remedy)


@contextmanager
def calibration_lock() -> Iterator[Path]:
    """Hold this user's calibration lock for this machine; the system releases it when the process
    ends, however it ends. It lies in the user's own folder, where nobody else can put a link.

    Raises:
        OutputError: If another calibration holds it, or there is no place for it.
    """
    import platform

    from filelock import FileLock, Timeout

    path = user_folder() / f"calibration-{platform.node()}.lock"
    lock = FileLock(path, timeout=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise OutputError(
            f"Another calibration is running (it holds {path}); two at once would measure each "
            "other. Wait for it."
        ) from None
    except OSError as error:
        remedy = "Set XDG_CONFIG_HOME to a folder that can be written."
        raise OutputError(
            f"The lock against a second calibration cannot be made: {error}. {remedy}"
        ) from None
    try:
        yield path
    finally:
        lock.release()


def measured_graph(measurements: Sequence[Measurement]) -> OperatorGraph:
    """One row per measurement, chained.

    Args:
        measurements: Measurements whose ``row`` is known.
    """
    from accelsim.workloads.graph import OperatorGraph
    from accelsim.workloads.operator import DIMENSIONS, OperatorKind

    rows = [m.row for m in measurements if m.row is not None]
    columns: Document = {
        name: [getattr(row, name) for row in rows] for name in MeasuredRow.__dataclass_fields__
    }
    widths = [len(DIMENSIONS[OperatorKind[row.kind.upper()]]) for row in rows]
    columns |= {
        "dims": [
            [*row.dims, *(0,) * width][:width] for row, width in zip(rows, widths, strict=True)
        ],
        "dtype": [m.case.dtype for m in measurements],
        "path": [""] * len(rows),
        "saved_bytes": [0.0] * len(rows),
        "dependencies": [[index - 1] if index else [] for index in range(len(rows))],
    }
    return OperatorGraph.from_dict(columns)
