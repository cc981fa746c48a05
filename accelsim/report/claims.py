"""Claims as a table, and as the page that shows every verdict with its readings."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from accelsim.plain import Document, Values
from accelsim.report.listing import Listing
from accelsim.report.page import Page, Section, figure
from accelsim.report.parts import rows_section

if TYPE_CHECKING:
    from accelsim.claims.claim import JudgedClaim

#: Verdicts in the order a reader looks for them.
_ORDER = ("refuted", "missed", "conditional", "not checkable", "reproduced")
_VERDICTS = (
    "Those that hold come last. Refuted: what is simulated is not what is claimed. Missed: the "
    "claim is a measurement, and the prediction is off it; accelsim accuracy says how far such "
    "predictions were off. Conditional: it holds in part, or under what is said beside it."
)
#: Options whose flag is not their keyword's name.
_FLAGS = {"--kv-format": "--kv", "--kind": "--price-kind"}


def verdict_words(claims: Iterable[JudgedClaim]) -> str:
    """How many claims came out how."""
    counts = Counter(claim.verdict.value for claim in claims)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


def claims_listing(claims: Sequence[JudgedClaim]) -> Listing:
    """A row per claim: its verdict, its readings that hold, and what it is conditional on."""
    rows = [
        {**claim.to_dict(), "of": len(claim.readings)}
        | {"held": sum(reading.holds for reading in claim.readings)}
        for claim in claims
    ]
    return Listing.of("claim=id | verdict | >holds={held}/{of} | ~title | ~why=reason", rows, gap=2)


def claims_page(document: Values, command: str) -> Page:
    """The report of claims: verdicts, then every reading with the command of its scenario.

    Args:
        document: The command's JSON: judged or listed claims as plain values.
        command: Command that makes the page again.
    """
    claims = document["claims"]
    if any("verdict" not in claim for claim in claims):  # listed, not judged
        section = rows_section("claims", "Claims", claims)
        return Page("Claims", (f"{len(claims)} claims.",), (section,), command)
    counts = Counter(claim["verdict"] for claim in claims)
    ordered = sorted(claims, key=lambda claim: _ORDER.index(claim["verdict"]))
    readings = [_reading(claim, reading) for claim in claims for reading in claim["readings"]]
    bars: Document = {"type": "bar", "x": list(counts), "y": list(counts.values())}
    picture = figure([bars], y="claims", height=300)
    shown = [{"verdict": verdict, "claims": count} for verdict, count in counts.most_common()]
    columns = (
        "claim | reading=name | >expected=expected?:digits | >simulated=simulated?:digits | "
        "accepted=tolerance | holds=held | to change it=run"
    )
    text = (
        "Where a reading has a command, that command runs its scenario: change its options to "
        "ask about another."
    )
    claim_columns = "claim=id | verdict | title | why=reason | source"
    sections = (
        Section.of("counts", "Verdicts", "verdict | >claims", shown, figure=picture),
        Section.of("verdicts", "Claims", claim_columns, ordered, _VERDICTS),
        Section.of("readings", "Readings", columns, readings, text, most=len(readings)),
    )
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    decision = (f"Of {len(claims)} claims: {counted}.",)
    return Page("Claims about CPUs, GPUs, FPGAs and ASICs", decision, sections, command)


def _reading(claim: Values, reading: Values) -> Values:
    verdict = ("yes" if reading["holds"] else "no") if reading["verified"] else "not evidence"
    run = scenario_command(reading["scenario"]) or reading["note"]
    return {**reading, "claim": claim["id"], "held": verdict, "run": run}


def scenario_command(scenario: Values) -> str:
    """The command that runs the scenario of a reading; its words where it is none of a run.

    Args:
        scenario: Fields of the reading's run, with the figure and what it is divided by.
    """
    run = {name: value for name, value in scenario.items() if name not in {"figure", "over"}}
    if str(scenario.get("figure", "")).startswith("device."):
        return f"accelsim devices show {run['device']}"
    if "model" not in run or "check_memory" in run:
        return ", ".join(f"{name} {value}" for name, value in scenario.items())
    command = "train" if {"gpus", "cluster"} & set(run) else "estimate"
    command_words = ["accelsim", command, str(run.pop("model"))]
    if command == "train":
        run.pop("mode", None)
    over = scenario.get("over")
    text = shlex.join([*command_words, *_flags(run)])
    return text if over is None else f"{text}; over the same with {' '.join(_flags(over))}"


def _flags(run: Values) -> Iterator[str]:
    """Words of a command line that give options."""
    for name, value in run.items():
        yield from _flag_words(name, value)


def _flag_words(name: str, value: object) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if flag == "--fused-attention":
        return [] if value else ["--unfused-attention"]
    if value is None or isinstance(value, bool):
        return [flag] if value else []
    return [_FLAGS.get(flag, flag), str(value)]
