"""Claims are listed, run by name, and written as JSON and as a page."""

from __future__ import annotations

KEYS = {"id", "title", "verdict", "expected", "simulated", "tolerance", "scenario", "source"}


def test_the_tree_of_ways_to_parallelise_names_commands_that_run(run):
    rows = run("claims", "taxonomy", "--format", "json").json
    assert [row["name"] for row in rows] == [
        *("CPU", "GPU", "FPGA", "ASIC"),
        *("data", "model", "pipeline"),
    ]
    for row in (rows[2], rows[-1]):
        program, *words = row["command"].split()
        assert program == "accelsim"
        assert run(*words).code == 0


def test_claims_are_listed(run):
    claims = run("claims", "list", "--format", "json").json["claims"]
    assert len(claims) == 66
    assert claims[4]["id"] == "S05"


def test_chosen_claims_are_run_and_shown(run, tmp_path):
    page = tmp_path / "claims.html"
    found = run("claims", "run", "s05", "S09", "S48", "--format", "json", "--report", page).json
    verdicts = {claim["id"]: claim["verdict"] for claim in found["claims"]}
    assert verdicts == {"S05": "reproduced", "S09": "not checkable", "S48": "reproduced"}
    assert all(claim.keys() >= KEYS for claim in found["claims"])
    assert "Of 3 claims: 2 reproduced, 1 not checkable." in page.read_text(encoding="utf-8")
    assert "reproduced" in run("claims", "run", "S05").out


def test_what_is_not_a_claim_is_refused(refused):
    assert "claims list" in refused("claims", "run", "S99")
    assert "--all" in refused("claims", "run")
    assert "--all" in refused("claims", "run", "S05", "--all")
