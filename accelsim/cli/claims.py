"""``accelsim claims``: claims about devices and parallelism, each run and judged."""

from __future__ import annotations

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.option import argument, option

claims = typer.Typer(name="claims", help="List and run claims.", no_args_is_help=True)


@claims.command("list")
@with_output
def list_claims(output: ResultWriter) -> None:
    """List the claims, with how each is checked."""
    from accelsim.claims.scenarios import claim_ids, claim_scenario

    rows = []
    for name in claim_ids():
        scenario = claim_scenario(name)
        rows.append(
            {
                "id": name,
                "title": scenario.title,
                "checked_by": scenario.check or "",
                "source": scenario.source,
                "readings": [reading.name for reading in scenario.readings],
                "reason": scenario.reason,
            }
        )
    output.emit({"claims": rows}, "claim=id | ~title | ~source", rows=rows)


@claims.command("taxonomy")
@with_output
def list_taxonomy(output: ResultWriter) -> None:
    """List devices and ways to parallelise as a tree, each with a command that runs it."""
    from accelsim.claims.taxonomy import TAXONOMY
    from accelsim.report.claims import scenario_command

    rows = [
        {"branch": way.branch, "name": way.name, "what": way.what}
        | {"command": scenario_command(way.scenario)}
        for way in TAXONOMY
    ]
    output.emit(rows, "memory=branch | ~way=name | ~what | ~run it=command")


@claims.command("run")
@with_output
def run_claims(
    output: ResultWriter,
    names: list[str] | None = argument("Claims to run.", "ID", None),
    all_claims: bool = option("Run all claims.", False, flags="--all"),
) -> None:
    """Run claims and judge them: reproduced, refuted or missed, conditional or not checkable."""
    from accelsim.claims.run import run_claim
    from accelsim.claims.scenarios import claim_ids, claim_scenario
    from accelsim.report.claims import claims_listing, verdict_words

    if bool(names) == all_claims:
        allowed = "names of claims, or --all"
        raise InvalidValueError("ID", names, allowed, "See all with: accelsim claims list.")
    wanted = list(claim_ids()) if all_claims else list(dict.fromkeys(map(str.upper, names or [])))
    for name in wanted:
        claim_scenario(name)
    claims_run = []
    with output.progress("claims", "claims") as report:
        for index, name in enumerate(wanted, 1):
            claims_run.append(run_claim(name))
            report(index, len(wanted), name)
    rows = [
        {"id": claim.id, "verdict": claim.verdict.value, **reading.to_dict()}
        for claim in claims_run
        for reading in claim.readings
    ]
    output.emit(
        {"claims": [claim.to_dict() for claim in claims_run]},
        lambda _: claims_listing(claims_run),
        rows=rows,
        note=verdict_words(claims_run),
    )
