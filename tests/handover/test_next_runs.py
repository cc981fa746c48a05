"""Which runs to measure before a fleet is rented."""

import json

import pytest

import accelsim
from accelsim.errors import InputError
from accelsim.handover.line import read_line
from accelsim.handover.next_runs import measure_next
from accelsim.learning.learn import learn
from accelsim.learning.readings import Told

TALK = {
    "name": "talk",
    "services": [
        {
            "name": "talk",
            "model": "llama-3.1-8b",
            "requests_per_s": 20,
            "prompt": "512",
            "output": "64",
            "ttft_p99_s": 0.5,
            "tpot_p99_s": 0.05,
        }
    ],
    "candidates": {"devices": ["a100-sxm-80gb", "h100-sxm-80gb"]},
}


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(TALK), encoding="utf-8")
    return path


def test_runs_are_lines_that_start_one_replica(scenario):
    found = measure_next(scenario, months=60)
    plan = accelsim.plan(scenario)
    assert found.figures()["alternatives"][0]["cost_usd_per_month"] == pytest.approx(
        plan.recommended.cost_usd_per_month
    )
    assert 0 < found.saves_usd <= found.regret_usd
    assert sum(run.cost_usd for run in found.runs) < found.saves_usd
    for run in found.runs:
        assert not read_line(run.line).problems
        assert "--data-parallel-size" not in run.line
        assert "--num-prompts" in run.benchmark


def test_a_decision_that_no_run_can_change_is_safe(scenario):
    found = measure_next(scenario, months=1e-6)
    assert found.runs == ()
    assert found.saves_usd == 0.0
    assert found.figures()["is_safe"]
    alone = TALK | {"candidates": {"devices": ["h100-sxm-80gb"]}}
    scenario.write_text(json.dumps(alone), encoding="utf-8")
    assert measure_next(scenario).figures()["is_safe"]


def test_learned_runs_reach_the_plan_and_narrow_it(scenario, tmp_path):
    """A measured server of one device: what rests on it is surer, and so is the decision."""
    table, profile = tmp_path / "runs.csv", tmp_path / "mine.json"
    table.write_text(
        "model,device,stack,users,prompt,output,metric,value\n"
        "llama-3.1-8b,h100-sxm-80gb,vllm,16,512,64,tpot_ms,7.5\n"
        "llama-3.1-8b,h100-sxm-80gb,vllm,32,512,64,tpot_ms,8.5\n",
        encoding="utf-8",
    )
    learnt = learn([table], Told())
    profile.write_text(learnt.profile.model_dump_json(), encoding="utf-8")
    before = {row["fleet"]: row["log_sigma"] for row in measure_next(scenario).alternatives}
    then = {
        row["fleet"]: row["log_sigma"]
        for row in measure_next(scenario, learned=profile).alternatives
    }
    (name,) = [one for one in before if "h100" in one]
    (after,) = [one for one in then if "h100" in one]
    assert then[after] < before[name]


@pytest.mark.parametrize(("name", "value"), [("runs", 0), ("runs", 11), ("months", 0.0)])
def test_what_cannot_be_is_refused_by_name(scenario, name, value):
    with pytest.raises(InputError, match=f"{name} = "):
        measure_next(scenario, **{name: value})


def test_a_scenario_without_a_fleet_is_refused(scenario):
    none = TALK | {"constraints": {"power_w": 1.0}}
    scenario.write_text(json.dumps(none), encoding="utf-8")
    with pytest.raises(InputError, match="one that some fleet carries"):
        measure_next(scenario)


def test_a_profile_that_is_none_is_refused_as_such(scenario, tmp_path):
    with pytest.raises(InputError, match="learned"):
        measure_next(scenario, learned=tmp_path / "none.json")
