"""Measures this machine's operators: ``python -m accelsim.calibration.run_measurement``.

Needs torch, numpy and the standard library alone, so that it runs on a bare GPU box; the run file
it writes is fitted anywhere with ``accelsim calibrate --from``. Exit codes: 0 done, 1 a fault of
the program, 2 wrong input or a machine that cannot measure, 130 interrupted (the run is kept and
can be resumed).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from accelsim.errors import AccelsimError, InvalidValueError, MissingDependencyError
from accelsim.frozen import frozen
from accelsim.plain import Document

if TYPE_CHECKING:
    from accelsim.calibration.measurement.case import Case
    from accelsim.calibration.measurement.session import Progress, Session

_FORMATS = {"cpu": ("fp32", "bf16", "fp16"), "cuda": ("fp32", "tf32", "bf16", "fp16")}
#: First generation with TF32 and BF16 products: Ampere. Older boards emulate BF16, which says
#: nothing of their formats.
_AMPERE = 8
#: Part of a budget that goes to compiled operators, and the least budget that leaves enough for the
#: others.
_COMPILED_SHARE = 0.2
_LEAST_COMPILED_S = 240.0
#: Time between lines of progress.
_REPORT_S = 10.0


@frozen
class MeasureSettings:
    """What to measure.

    Attributes:
        device: "cpu" or "cuda:N".
        threads: Thread counts of a CPU, the first in full; empty for one and all cores given.
        dtypes: Formats; empty for those the device has fast units for. "tf32" is FP32 with TF32
            products.
        budget_s: Wall time.
        rounds: Passes over the suite.
        out: Run file.
        resume: Whether to continue it.
    """

    device: str
    threads: tuple[int, ...]
    dtypes: tuple[str, ...]
    budget_s: float
    rounds: int
    out: Path
    resume: bool = False


def parse_budget_s(text: str) -> float:
    """Seconds of a duration such as "60s", "5m" or "1h".

    Raises:
        InvalidValueError: If it is none, or not between 10 s and 6 h.
    """
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:].lower())
    try:
        value = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        value = float("nan")
    if not 10.0 <= value <= 21600.0:
        raise InvalidValueError("budget", text, "a duration from 10s to 6h, such as 60s, 5m or 1h")
    return value


def parse_threads(text: str) -> tuple[int, ...]:
    """Thread counts of a list such as "1,2"; none for an empty one.

    Raises:
        InvalidValueError: If a part is no count.
    """
    counts = parse_formats(text)
    if not all(map(_is_count, counts)):
        raise InvalidValueError("threads", text, "counts such as 1,2")
    return tuple(map(int, counts))


def parse_formats(text: str) -> tuple[str, ...]:
    """Formats of a list such as "fp32,bf16"; none for an empty one."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def measure(settings: MeasureSettings, report: Callable[[Progress], None] | None = None) -> Path:
    """Measure the suite and write the run file.

    Args:
        settings: What to measure.
        report: Called after every case.

    Returns:
        The run file.

    Raises:
        MissingDependencyError: If torch is not installed.
        InvalidValueError: If the device or thread count does not exist here, or a resumed run is
            another machine's.
        OutputError: If another calibration runs, or the file exists or cannot be written.
    """
    torch = require_torch()
    from accelsim.calibration.environment import describe
    from accelsim.calibration.measurement.memory import memory_limit
    from accelsim.calibration.measurement.power import power_suite
    from accelsim.calibration.measurement.session import Session
    from accelsim.calibration.measurement.suite import compiled_suite, operator_suite
    from accelsim.calibration.run_file import RunFile, calibration_lock

    device = check_device(torch, settings.device)
    threads = check_threads(settings.threads, device)
    dtypes = check_dtypes(torch, settings.dtypes, device)
    kind = device.partition(":")[0]
    if kind == "cuda":
        torch.cuda.set_device(device)  # streams, events and graphs belong to the current device
    executions = ("eager", "graph") if kind == "cuda" else ("eager",)
    recorded: Document = {"device": device, "threads": list(threads), "dtypes": list(dtypes)}
    recorded["budget_s"] = settings.budget_s
    # CUDA reserves addresses far beyond what it uses
    guard = memory_limit() if kind == "cpu" else nullcontext()
    has_time = settings.budget_s >= _LEAST_COMPILED_S
    compiling_s = _COMPILED_SHARE * settings.budget_s if has_time else 0.0
    with (
        calibration_lock(),
        guard,
        RunFile(settings.out, describe(device), recorded, resume=settings.resume) as run_file,
    ):
        session = Session(device, run_file, rounds=settings.rounds, report=report)
        cases = operator_suite(kind, dtypes, threads, executions)
        session.measure(cases, settings.budget_s - compiling_s)
        if kind == "cuda":
            session.measure_energy(power_suite(dtypes))
        if compiling_s:
            _measure_compiled(session, compiling_s, compiled_suite(kind, dtypes, threads))
    return settings.out


def _measure_compiled(session: Session, budget_s: float, cases: Sequence[Case]) -> None:
    """Measure what the framework compiles; where it cannot, a note says why."""
    from accelsim.calibration.measurement.compiled_calls import why_not_compiled

    start = time.monotonic()
    reason = why_not_compiled(session.device)
    if reason is None:
        session.measure(cases, budget_s - (time.monotonic() - start))
    else:
        session.run_file.append({"note": "compiled", "skipped": reason})


def require_torch() -> ModuleType:
    """The module torch.

    Raises:
        MissingDependencyError: If it is not installed; names the extra.
    """
    try:
        return import_module("torch")
    except ImportError:
        raise MissingDependencyError("torch", "torch") from None


def check_device(torch: ModuleType, device: str) -> str:
    """The device's full name.

    Raises:
        InvalidValueError: If it does not exist.
    """
    if device == "cpu":
        return device
    kind, _, index = device.partition(":")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ", ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
    number = int(index or "0") if kind == "cuda" and _is_count(index or "0") else count
    if number >= count:
        no_cuda = (
            "This torch finds no CUDA device; check the driver and that torch is a CUDA build."
        )
        remedy = "" if count else no_cuda
        raise InvalidValueError("device", device, f"one of {names}", remedy)
    return f"cuda:{number}"


def check_threads(threads: Sequence[int], device: str) -> tuple[int, ...]:
    """Thread counts to measure; (0,) on a GPU.

    Raises:
        InvalidValueError: If a count is below 1 or above the cores given.
    """
    from accelsim.calibration.environment import describe

    if device != "cpu":
        return (0,)
    available = int(describe()["cpu_count_given"] or 1)
    # several threads are fitted relative to one
    chosen = tuple(dict.fromkeys((1, *(threads or (available,)))))
    for count in chosen:
        if not 1 <= count <= available:
            raise InvalidValueError(
                "threads", count, f"1 to {available}, the CPUs given to this process"
            )
    return chosen


def check_dtypes(torch: ModuleType, dtypes: Sequence[str], device: str) -> tuple[str, ...]:
    """Formats to measure: those asked for, or fp32 and the 16-bit formats the device multiplies
    fast.

    Raises:
        InvalidValueError: If a format is not known.
    """
    formats = _FORMATS[device.partition(":")[0]]
    for name in dtypes:
        if name not in formats:
            raise InvalidValueError("dtypes", name, f"one of {', '.join(formats)}")
    if dtypes:
        return tuple(dict.fromkeys(dtypes))
    if device != "cpu":
        if torch.version.hip:
            return ("fp32", "bf16")
        is_new = torch.cuda.get_device_capability(device)[0] >= _AMPERE
        return ("fp32", "tf32", "bf16") if is_new else ("fp32", "fp16")
    mkldnn = torch.ops.mkldnn
    has_bf16 = torch.backends.mkldnn.is_available() and mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001
    return ("fp32", "bf16") if has_bf16 else ("fp32",)


def _settings(arguments: Sequence[str] | None) -> MeasureSettings:
    parser = argparse.ArgumentParser(
        prog="accelsim.calibration.run_measurement",
        description="Measure this machine's operators.",
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--threads", default="", help="thread counts, as 1,2")
    parser.add_argument("--dtypes", default="", help="formats, as fp32,bf16")
    parser.add_argument("--budget", default="6m", help="wall time: 60s, 6m, 1h")
    parser.add_argument("--rounds", type=int, default=2, help="passes over the suite")
    parser.add_argument(
        "--out", type=Path, default=Path("calibration-run.jsonl"), help="run file to write"
    )
    parser.add_argument("--resume", action="store_true", help="continue that file")
    options = parser.parse_args(arguments)
    return MeasureSettings(
        device=options.device,
        threads=parse_threads(options.threads),
        dtypes=parse_formats(options.dtypes),
        budget_s=parse_budget_s(options.budget),
        rounds=max(1, options.rounds),
        out=options.out,
        resume=options.resume,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program; returns the exit code."""
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > _REPORT_S:
            last = time.monotonic()
            share, left_s = f"{progress.completed}/{progress.total}", progress.remaining_s
            sys.stderr.write(f"{share}, at most {left_s:.0f} s left: {progress.label}\n")

    try:
        path = measure(_settings(arguments), report)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: what was measured is kept; continue with --resume\n")
        return 130
    except AccelsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
