"""Pages of a calibration: held-out operators of the fit, whole models against the predictions that
were frozen before they were measured, and steps of a server against those fitted to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from accelsim.calibration.held_out import measured_families
from accelsim.plain import Rows, Values
from accelsim.quantity import percent, say
from accelsim.report.page import Page, Section
from accelsim.report.parity import parity_figure
from accelsim.report.parts import bars, mapping_section, rows_section
from accelsim.scoreboard.device_rows import DeviceRows, farthest

if TYPE_CHECKING:
    from accelsim.calibration.held_out import Fitted, HeldOut

_MOST_POINTS = 5_000
_MEASURED = "Calls timed over all rounds, by family, and why the first that was skipped was."
_SAYS = "Figures of the whole machine; those of each kernel are in the files that were written."
#: Columns of times.
_TIMES = ">measured=measured:s | >predicted=predicted:s | >error=error_fraction"


def fit_page(fitted: Fitted, command: str) -> Page:
    """The report of a fit.

    Args:
        fitted: What it made.
        command: Command that makes the page again.
    """
    run, settings = fitted.run, fitted.run.settings
    form = (
        "{rows} operators held out: median error {median_fraction}, {mape_fraction} on average"
        "[, threads: {threads}]."
    )
    title = f"Calibration of {run.environment.get('device_name')}"
    decision = [
        say(form, row) for row in fitted.errors if row["family"] == "all" and row["dtype"] == "all"
    ]
    about = {
        "device": fitted.device,
        "run": run.digest,
        "budget_s": settings.get("budget_s"),
        **({"threads": threads} if (threads := settings.get("threads")) else {}),
        "dtypes": settings.get("dtypes"),
        "files": ", ".join(map(str, fitted.files)),
    }
    sections = (
        _held_out_section(fitted.held_out, fitted.device),
        _errors_section(fitted.errors),
        rows_section("measured", "What was measured", measured_families(run), _MEASURED),
        mapping_section("says", "What the fit says", fitted.figures, _SAYS),
        mapping_section("about", "Where it comes from", about),
        mapping_section("machine", "The machine", run.environment),
    )
    return Page(title, tuple(decision) or (f"{title}.",), sections, command)


def _held_out_section(held_out: HeldOut, device: str) -> Section:
    """Every row that the fit has not seen, with the band that holds nine of ten."""
    known, title = np.flatnonzero(np.isfinite(held_out.errors)), "Predicted against measured"
    if not len(known):
        return Section.of("held-out", title, "operator", [], "No row was held out.")
    low, high = held_out.band()
    predicted_s = held_out.predicted_s[known]
    names = [held_out.cases[index].key for index in known.tolist()]
    measured_s = held_out.measured_s[known]
    rows = DeviceRows.of(
        device, names, measured_s, predicted_s, predicted_s * low, predicted_s * high
    )
    text = (
        f"{len(known):,} operators, each by a fit that has not seen its shape; nine of ten took "
        f"{low:.2f} to {high:.2f} times as long as predicted (the band). The table has the "
        "farthest first."
    )
    picture = parity_figure([rows], "time of an operator, s", _MOST_POINTS)
    columns = f"operator, format, threads, condition=group | {_TIMES}"
    return Section.of("held-out", title, columns, farthest([rows]), text, picture)


def _errors_section(errors: Rows) -> Section:
    operators = "{family} {dtype}[ {threads}]"
    series = {name: [100 * row[f"{name}_fraction"] for row in errors] for name in ("median", "p90")}
    columns = (
        f"operators, format, threads={operators} | >rows | >MAPE=mape_fraction | "
        ">median=median_fraction | >p90=p90_fraction"
    )
    text = "Operators that took no part in the fit: predicted over measured."
    picture = bars([say(operators, row) for row in errors], series, "error, %")
    return Section.of("operators", "Held-out operators", columns, errors, text, picture)


def check_page(document: Values, command: str) -> Page:
    """The report of a check on whole models.

    Args:
        document: What `results.json` of a calibration holds.
        command: Command that makes the page again.
    """
    rows = [{**row, "case": _case(row)} for row in document["results"]]
    measured = [row for row in rows if row["measured_s"] is not None]
    skipped = [row for row in rows if row["measured_s"] is None]
    decision = "No model was measured."
    if measured:
        inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in measured)
        errors = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in measured]
        decision = (
            f"{len(measured)} of {len(rows)} whole models measured: median error "
            f"{percent(float(np.median(errors)))}, "
            f"{percent(inside / len(measured))} in their 90 % interval."
        )
    about = {"frozen predictions": document["frozen_hash"]}
    title = "Models that were not measured"
    sections = [
        _checked_section(measured, "runs") if measured else None,
        Section.of("skipped", title, "model=case | why=skipped", skipped),
        mapping_section("about", "Where it comes from", about),
    ]
    return Page.of("Check of a calibration", (decision,), sections, command)


def _checked_section(measured: Rows, machine: str) -> Section:
    """Models that were measured, beside what was predicted."""
    times_s = (
        np.array([row[name] for row in measured], dtype=float)
        for name in ("measured_s", "predicted_s", "low_s", "high_s")
    )
    rows = DeviceRows.of(machine, [row["case"] for row in measured], *times_s)
    picture = parity_figure([rows], "time of a run, s", _MOST_POINTS)
    text = "Predictions were frozen before anything was measured; bars are their 90 % intervals."
    columns = f"model=group | {_TIMES} | >low=low:s | >high=high:s"
    title = "Predicted against measured"
    return Section.of("models", title, columns, farthest([rows]), text, picture)


def _case(row: Values) -> str:
    threads = f"{row['threads']} thread{'s' * (row['threads'] > 1)}" if row["threads"] else ""
    mode = "training" if row["is_training"] else "inference"
    values = {**row, "mode": mode, "where": threads or row["execution"]}
    return say("{model} batch {batch} {dtype}, {where}, {mode}, {heap}", values)
