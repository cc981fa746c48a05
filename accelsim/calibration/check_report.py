"""The report of a calibration: ``report.md`` with every operator family and every model, whatever
the figures are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelsim.calibration.check import CheckResult, summary
from accelsim.plain import Values


def report_markdown(
    environment: Values,
    operators: Sequence[Values],
    results: Sequence[CheckResult],
    facts: Values,
) -> str:
    """The report as Markdown.

    Args:
        environment: The machine.
        operators: Rows of `calibrate.operator_errors`.
        results: Whole models; empty before they are measured.
        facts: Further lines: durations, noise, hashes.
    """
    lines = [f"# Calibration of {environment.get('device_name')}", ""]
    shown = ("cpu_count_given", "torch_version", "onednn_version", "measured_at", "load_average")
    lines += [f"- {name}: {environment.get(name)}" for name in shown]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [
        "",
        "## Operators, on shapes left out of the fit",
        "",
        "| family | threads | condition | rows | MAPE | median | 90 % |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [_operator_line(row) for row in operators]
    if results:
        lines += _model_lines(results)
    return "\n".join(lines) + "\n"


def _operator_line(row: Values) -> str:
    figures = " | ".join(
        f"{100 * row[name]:.1f} %" for name in ("mape_fraction", "median_fraction", "p90_fraction")
    )
    return f"| {row['family']} | {row['threads']} | {row['dtype']} | {row['rows']} | {figures} |"


def _model_lines(results: Sequence[CheckResult]) -> list[str]:
    lines = ["", "## Whole models (predictions frozen before measuring)", ""]
    lines += [
        "| mode | format | threads | models | MAPE | median | largest | in the interval |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str, str], list[CheckResult]] = {}
    for result in results:
        case = result.prediction.case
        mode, threads = case.mode, str(case.threads)
        for key in ((mode, case.dtype, threads), (mode, "all", "all"), (mode, "all", threads)):
            groups.setdefault(key, []).append(result)
    lines += _group_lines(groups)
    if any(result.slowdown_ratio is not None for result in results):
        ratios = sorted(
            result.slowdown_ratio for result in results if result.slowdown_ratio is not None
        )
        middle = ratios[len(ratios) // 2]
        lines += [
            "",
            f"Beside the models the reference operator took {middle:.3f} times as long as in the",
            f"calibration (median; {ratios[0]:.3f} to {ratios[-1]:.3f}). The same at the",
            "calibration's speed, each measurement divided by its ratio:",
            "",
            *lines[3:5],
            *_group_lines(
                {
                    key: [result.at_calibrated_speed() for result in group]
                    for key, group in groups.items()
                }
            ),
        ]
    lines += [
        "",
        "| model | predicted | measured | error | interval | noise | slowdown |",
        "|---|---|---|---|---|---|---|",
    ]
    return lines + [_result_line(result) for result in results] + _energy_lines(results)


def _group_lines(groups: Mapping[tuple[str, str, str], Sequence[CheckResult]]) -> list[str]:
    lines = []
    for (mode, dtype, threads), group in sorted(groups.items()):
        total = summary(group)
        if total["count"]:
            names = ("mape_fraction", "median_fraction", "max_fraction", "coverage_fraction")
            figures = " | ".join(f"{100 * total[name]:.1f} %" for name in names)
            lines.append(f"| {mode} | {dtype} | {threads} | {total['count']} | {figures} |")
    return lines


def _energy_lines(results: Sequence[CheckResult]) -> list[str]:
    """Energy of each run, where it was predicted and measured."""
    errors = [(result, result.energy_error_fraction) for result in results]
    compared = [(result, error) for result, error in errors if error is not None]
    if not compared:
        return []
    mape = sum(abs(error) for _, error in compared) / len(compared)
    lines = ["", f"## Energy ({len(compared)} models, MAPE {100 * mape:.1f} %)", ""]
    lines += ["| model | predicted | measured | error |", "|---|---|---|---|"]
    return lines + [
        f"| {result.prediction.case.key} | {result.prediction.energy_j:.3g} J "
        f"| {result.energy_j:.3g} J | {100 * error:+.1f} % |"
        for result, error in compared
    ]


def _result_line(result: CheckResult) -> str:
    prediction = result.prediction
    if result.measured_s is None or result.error_fraction is None or result.noise_fraction is None:
        predicted = f"{1e3 * prediction.time_s:.3g} ms"
        return f"| {prediction.case.key} | {predicted} | not measured: {result.skipped} | | | | |"
    slowdown = "" if result.slowdown_ratio is None else f"{result.slowdown_ratio:.3f}"
    inside = "inside" if result.is_inside else "outside"
    cells = (
        prediction.case.key,
        f"{1e3 * prediction.time_s:.3g} ms",
        f"{1e3 * result.measured_s:.3g} ms",
        f"{100 * result.error_fraction:+.1f} %",
        inside,
        f"{100 * result.noise_fraction:.0f} %",
        slowdown,
    )
    return f"| {' | '.join(cells)} |"
