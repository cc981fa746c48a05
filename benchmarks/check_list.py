"""How far a calibrated CPU is off on whole networks: the committed run fitted anew, its check list
predicted, and the predictions joined to what was measured.

Nothing of the check list takes part in the fit. The two tables are those of the report of
``accelsim calibrate check``: as measured, and at the calibration's speed, where each measurement is
divided by how much slower the reference operator ran beside it.

The committed run holds times, not the page faults that were counted beside them, so its own fit
would have fresh memory for nothing: the price of a fresh byte is that of a note in ``run.json``.
The operators of 17 of the 28 networks, captured once, lie beside the run (``networks.json.gz``);
the runs of the others are named.

``python benchmarks/check_list.py [--run DIR] [--models NAME,NAME] [--each]``
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accelsim.calibration.calibrate import Calibration, fit_run
from accelsim.calibration.check import CheckCase, CheckResult, predict
from accelsim.calibration.run_file import CalibrationRun
from accelsim.cost.cpu import cpu_parameters
from accelsim.cost.cpu.fitted_kernels import FittedKernels
from accelsim.cost.cpu.kernel_terms import TERMS
from accelsim.cost.cpu.threads import THREAD_TERMS
from accelsim.hardware.local import CpuFacts, local_cpu_profile
from accelsim.workloads.graph import OperatorGraph
from tools.committed_run import COMMITTED_RUN, read_committed_networks, read_committed_run


def profile_of(environment: Mapping[str, Any]) -> Any:
    """The profile of the machine the run is from, whatever machine this is."""
    cores = int(environment["cpu_count_given"])
    last_level = str(environment["cpu_caches"]["L3"])
    facts = CpuFacts(
        model_name=str(environment["cpu_model"]),
        vendor="AuthenticAMD",
        vcpu_count=cores,
        core_count=cores,
        clock_hz=1e6 * float(environment["cpu_mhz"]),
        flags=frozenset(environment["cpu_flags"]),
        memory_bytes=float(environment["memory_bytes"]),
        cache_bytes=1024.0 * int(last_level.removesuffix("K")),
    )
    return local_cpu_profile(facts, None)


@contextmanager
def answered_rows(counts: dict[str, int]):
    """Counts the operators that the calibration is asked for, and those it has a kernel for."""
    original = FittedKernels.times

    def times(kernels, graph, *arguments, **options):
        result = original(kernels, graph, *arguments, **options)
        counts["asked"] += len(result.time_s)
        counts["answered"] += int(np.isfinite(result.time_s).sum())
        return result

    FittedKernels.times = times
    try:
        yield
    finally:
        FittedKernels.times = original


def priced_kernels(calibration: Calibration) -> FittedKernels:
    """The fitted kernels with the noted price of fresh memory."""
    noted = [note for note in calibration.run.notes if note["note"] == "fresh memory"]
    if not noted:
        return calibration.kernels
    price = noted[0]
    cases, names = calibration.rows.cases, calibration.rows.names.tolist()
    elementwise = {
        name
        for name, case in zip(names, cases, strict=True)
        if case.family in {"elementwise", "optimizer", "embedding"}
    }
    fits = {}
    for (kernel, dtype, threads), fit in calibration.kernels.fits.items():
        terms = TERMS if threads == 1 else THREAD_TERMS
        if threads == 1:
            cost = price["one_thread_s_per_byte"]
        elif kernel in elementwise:
            cost = price["two_threads_elementwise_s_per_byte"]
        else:
            cost = price["two_threads_s_per_byte"]
        is_fresh = np.array(terms) == "fresh_bytes"
        coefficients = np.where(is_fresh, cost, fit.coefficients)
        fits[kernel, dtype, threads] = replace(fit, coefficients=coefficients)
    return replace(calibration.kernels, fits=fits)


def check_case(row: Mapping[str, Any]) -> CheckCase:
    return CheckCase(**{name: row[name] for name in CheckCase.__dataclass_fields__})


def graph_name(case: CheckCase) -> str:
    """Name of a case's operators among those that were captured."""
    mode = "training" if case.is_training else "inference"
    return f"{case.model} b{case.batch} {case.dtype} {mode}"


def results_of(
    rows: Sequence[Mapping[str, Any]],
    run: CalibrationRun,
    networks: Mapping[str, OperatorGraph],
    counts: dict[str, int],
) -> list[CheckResult]:
    kernels = priced_kernels(fit_run(run))
    parameters = replace(cpu_parameters(), kernels=kernels)
    cases = [check_case(row) for row in rows]
    with answered_rows(counts):
        predictions = predict(
            cases, profile_of(run.environment), parameters, lambda case: networks[graph_name(case)]
        )
    return [
        CheckResult(
            prediction,
            row["measured_s"],
            row["noise_fraction"],
            slowdown_ratio=row["slowdown_ratio"],
        )
        for prediction, row in zip(predictions, rows, strict=True)
    ]


def figures(results: Iterable[CheckResult]) -> str:
    results = list(results)
    errors = np.abs([result.error_fraction for result in results])
    inside = np.mean([result.is_inside for result in results])
    columns = (errors.mean(), np.median(errors), np.quantile(errors, 0.9), errors.max(), inside)
    return f"{len(results):5d}" + "".join(f"{100 * value:9.2f} %" for value in columns)


def print_table(results: Sequence[CheckResult]) -> None:
    """Errors by mode, heap and threads."""
    print(f"{'mode':24s}{'threads':>8s} runs{'MAPE':>11s}{'median':>11s}", end="")
    print(f"{'p90':>11s}{'largest':>11s}{'covered':>11s}")
    groups: dict[tuple[str, str], list[CheckResult]] = {}
    for result in results:
        case = result.prediction.case
        for threads in ("all", str(case.threads)):
            groups.setdefault((case.mode, threads), []).append(result)
    for (mode, threads), group in sorted(groups.items()):
        print(f"{mode:24s}{threads:>8s}{figures(group)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=COMMITTED_RUN, help="folder of a committed run")
    parser.add_argument("--models", default="", help="networks to predict, all if left out")
    parser.add_argument("--each", action="store_true", help="print every network")
    arguments = parser.parse_args()
    run = read_committed_run(arguments.run)
    rows = json.loads((arguments.run / "results.json").read_text(encoding="utf-8"))["results"]
    networks = read_committed_networks(arguments.run)
    captured = {name.partition(" ")[0] for name in networks}
    chosen = set(arguments.models.split(",")) - {""} or captured
    known = [row for row in rows if row["model"] in chosen & captured and row["measured_s"]]
    counts = {"asked": 0, "answered": 0}
    start = time.monotonic()
    results = results_of(known, run, networks, counts)
    if arguments.each:
        for result in results:
            case = result.prediction.case
            print(f"{case.key + ' ' + case.heap:58s} {100 * result.error_fraction:+7.1f} %")
    print("as measured")
    print_table(results)
    print("at the calibration's speed")
    print_table([result.at_calibrated_speed() for result in results])
    networks = len({row["model"] for row in known})
    print(f"networks {networks}, runs {len(known)} of {len(rows)} measured")
    gone = Counter(row["model"] for row in rows if row["model"] not in captured)
    if gone:
        named = ", ".join(f"{name} {count}" for name, count in sorted(gone.items()))
        print(f"left out, not captured: {gone.total()} runs ({named})")
    print(f"operators answered {counts['answered']} of {counts['asked']}")
    print(f"took {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
