"""Pages of a calibration: held-out operators of the fit, whole models against the predictions that
were frozen before they were measured, and steps of a server against those fitted to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from accelsim.calibration.held_out import measured_families
from accelsim.plain import Document, Values
from accelsim.report.page import Cell, DataTable, Page, Section, axis, cell, figure, label
from accelsim.report.parts import COLOURS, bars, cut, mapping_section, rows_section
from accelsim.report.quantity import duration, percent, whole

if TYPE_CHECKING:
    from accelsim.calibration.held_out import Fitted, HeldOut
    from accelsim.serving.steps.fitted_steps import FittedSteps, StepColumns

_MOST_POINTS = 5_000
_MEASURED = "Calls timed over all rounds, by family, and why the first that was skipped was."
_SAYS = "Figures of the whole machine; those of each kernel are in the files that were written."
_DIAGONAL: Document = {"color": "#7f8a94", "width": 1}


def fit_page(fitted: Fitted, command: str) -> Page:
    """The report of a fit.

    Args:
        fitted: What it made.
        command: Command that makes the page again.
    """
    run = fitted.run
    said = [
        f"{row['rows']:,} operators held out: median error {percent(row['median_fraction'])}, "
        f"{percent(row['mape_fraction'])} on average{_on_threads(row['threads'])}."
        for row in fitted.errors
        if row["family"] == "all" and row["dtype"] == "all"
    ]
    title = f"Calibration of {run.environment.get('device_name')}"
    about = {
        "device": fitted.device,
        "run": run.digest,
        "budget_s": run.settings.get("budget_s"),
        **({"threads": threads} if (threads := run.settings.get("threads")) else {}),
        "dtypes": run.settings.get("dtypes"),
        "files": ", ".join(map(str, fitted.files)),
    }
    sections = (
        _held_out_section(fitted.held_out),
        _errors_section(fitted.errors),
        rows_section("measured", "What was measured", measured_families(run), _MEASURED),
        mapping_section("says", "What the fit says", fitted.figures, _SAYS),
        mapping_section("about", "Where it comes from", about),
        mapping_section("machine", "The machine", run.environment),
    )
    return Page(title, tuple(said) or (f"{title}.",), sections, command)


def _on_threads(count: int) -> str:
    """Words for the threads of operators; none for a GPU's."""
    return f", on {count} thread{'s' * (count > 1)}" if count else ""


def _held_out_section(held_out: HeldOut) -> Section:
    """Every row that the fit has not seen; the drawn ones are evenly spaced."""
    known = np.flatnonzero(np.isfinite(held_out.errors))
    if not len(known):
        table = DataTable(("operator",), [])
        return Section("held-out", "Predicted against measured", table, "No row was held out.")
    measured, predicted = held_out.measured_s, held_out.predicted_s
    low, high = held_out.band()
    drawn = known[:: len(known) // _MOST_POINTS + 1]
    points: Document = {
        "x": measured[drawn].tolist(),
        "y": predicted[drawn].tolist(),
        "text": [label(held_out.names[place]) for place in drawn],
    }
    worst = known[np.argsort(-np.abs(held_out.errors[known]), kind="stable")].tolist()
    rows: list[tuple[str | Cell, ...]] = [
        (
            held_out.names[place],
            cell(measured[place], duration),
            cell(predicted[place], duration),
            cell(predicted[place] / measured[place] - 1, percent),
        )
        for place in worst
    ]
    text = (
        f"{len(known):,} operators, each by a fit that has not seen its shape; nine of ten took "
        f"{low:.2f} to {high:.2f} times as long as predicted (the band). The table has the "
        "farthest first."
    )
    titles = ("operator, format, threads, condition", ">measured", ">predicted", ">error")
    figure_drawn = _parity(points, "time of an operator, s", (1 / high, 1 / low))
    table = DataTable(titles, cut(rows))
    return Section("held-out", "Predicted against measured", table, text, figure_drawn)


def _errors_section(errors: Sequence[Values]) -> Section:
    names = [f"{row['family']} {row['dtype']} {row['threads'] or ''}".rstrip() for row in errors]
    series = {
        words: [100 * row[field] for row in errors]
        for words, field in (("median", "median_fraction"), ("p90", "p90_fraction"))
    }
    rows: list[tuple[str | Cell, ...]] = [
        (
            name,
            cell(float(row["rows"]), whole),
            *(
                cell(row[field], percent)
                for field in ("mape_fraction", "median_fraction", "p90_fraction")
            ),
        )
        for name, row in zip(names, errors, strict=True)
    ]
    titles = ("operators, format, threads", ">rows", ">MAPE", ">median", ">p90")
    text = "Operators that took no part in the fit: predicted over measured."
    drawn = bars(names, series, "error, %")
    return Section("operators", "Held-out operators", DataTable(titles, cut(rows)), text, drawn)


def check_page(document: Values, command: str) -> Page:
    """The report of a check on whole models.

    Args:
        document: What `results.json` of a calibration holds.
        command: Command that makes the page again.
    """
    rows = document["results"]
    done = [row for row in rows if row["measured_s"] is not None]
    skipped = [(_case(row), str(row["skipped"])) for row in rows if row["measured_s"] is None]
    inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in done)
    errors = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in done]
    decision = "No model was measured."
    if done:
        decision = (
            f"{len(done)} of {len(rows)} whole models measured: median error "
            f"{percent(float(np.median(errors)))}, {percent(inside / len(done))} in their 90 % "
            "interval."
        )
    about = {"frozen predictions": document["frozen_hash"]}
    sections = [
        _checked_section(done, errors),
        Section(
            "skipped",
            "Models that were not measured",
            DataTable(("model", "why"), cut(skipped)),
        ),
        mapping_section("about", "Where it comes from", about),
    ]
    return Page.of("Check of a calibration", (decision,), sections, command)


def _checked_section(done: Sequence[Values], errors: Sequence[float]) -> Section:
    """Models that were measured, beside what was predicted."""
    names = [_case(row) for row in done]
    cells: list[tuple[str | Cell, ...]] = [
        (
            name,
            *(cell(row[part], duration) for part in ("measured_s", "predicted_s", "low_s")),
            cell(row["high_s"], duration),
            cell(error, percent),
        )
        for name, row, error in zip(names, done, errors, strict=True)
    ]
    points = {
        "x": [row["measured_s"] for row in done],
        "y": [row["predicted_s"] for row in done],
        "text": [label(name) for name in names],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [row["high_s"] - row["predicted_s"] for row in done],
            "arrayminus": [row["predicted_s"] - row["low_s"] for row in done],
        },
    }
    titles = ("model", ">measured", ">predicted", ">low", ">high", ">error")
    text = "Predictions were frozen before anything was measured; bars are their 90 % intervals."
    table = DataTable(titles, cut(cells))
    drawn = _parity(points, "time of a run, s") if done else None
    return Section("models", "Predicted against measured", table, text, drawn)


def _case(row: Values) -> str:
    mode = "training" if row["is_training"] else "inference"
    threads = (
        f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
        if row["threads"]
        else row["execution"]
    )
    return f"{row['model']} batch {row['batch']} {row['dtype']}, {threads}, {mode}, {row['heap']}"


def _parity(points: Values, words: str, band: Sequence[float] = ()) -> Document:
    """Predicted over measured, with the line where they are equal and those of a band, factors of
    the measured time.
    """
    both = [*points["x"], *points["y"]]
    ends = [min(both), max(both)]
    own = {"type": "scatter", "mode": "markers", "name": "runs", "marker": {"color": COLOURS[0]}}
    lines = [
        {"type": "scatter", "mode": "lines", "name": name, "x": ends, "line": style}
        | {"y": [factor * end for end in ends]}
        for name, factor, style in (
            ("equal", 1.0, _DIAGONAL),
            *(("90 % band", factor, _DIAGONAL | {"dash": "dot"}) for factor in band),
        )
    ]
    return figure(
        [own | dict(points), *lines],
        xaxis=axis(f"measured {words}", type="log", exponentformat="SI"),
        yaxis=axis(f"predicted {words}", type="log", exponentformat="SI"),
    )


def server_page(steps: StepColumns, fitted: FittedSteps, command: str) -> Page:
    """The report of a server's steps.

    Args:
        steps: Measured steps.
        fitted: The fit to them.
        command: Command that makes the page again.
    """
    said = [
        fitted.step(*batch)[0]
        for batch in zip(
            steps.prefill_tokens.astype(int).tolist(),
            steps.prefill_context_sum.tolist(),
            steps.decode_count.astype(int).tolist(),
            steps.decode_context_sum.tolist(),
            strict=True,
        )
    ]
    stride = len(said) // _MOST_POINTS + 1
    measured = steps.time_s.tolist()
    points = {"x": measured[::stride], "y": said[::stride]}
    rows: list[tuple[str | Cell, ...]] = [
        (
            cell(float(tokens), whole),
            cell(float(count), whole),
            cell(time, duration),
            cell(fit, duration),
        )
        for tokens, count, time, fit in zip(
            steps.prefill_tokens.tolist(), steps.decode_count.tolist(), measured, said, strict=True
        )
    ]
    titles = (">tokens of prompts", ">sequences", ">measured", ">fitted")
    text = "Every step has a row here as far as the page has room; the fit saw the same steps."
    table = DataTable(titles, cut(rows))
    drawn = _parity(points, "step, s")
    section = Section("steps", "Fitted against measured steps", table, text, drawn)
    decision = (
        f"{len(said):,} steps; the fit is {percent(fitted.log_sigma)} off (standard deviation of "
        "the logarithm)."
    )
    return Page("Steps of a server", (decision,), (section,), command)
