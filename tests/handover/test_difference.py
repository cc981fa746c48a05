"""What changes between two plans, loads, runs or lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.capacity.plan import plan
from accelsim.errors import InputError, InvalidValueError
from accelsim.handover.check import LineQuestion
from accelsim.handover.difference import difference
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.training.estimate import train

ASKED = LineQuestion("l4", load=Arrivals(rate_per_s=1, requests=30, prompt="200", output="20"))
LINE = "vllm serve meta-llama/Llama-3.2-1B --max-model-len 4096"
SCENARIO = """\
name: chat
services:
  - name: chat
    model: llama-3.2-1b
    requests_per_s: {rate}
    prompt: "200"
    output: "20"
    ttft_p99_ms: 900
candidates: {{devices: [l4], providers: [gcp], regions: [us-central1]}}
"""
OPPOSITE = {"better": "worse", "worse": "better", "": ""}


def verdicts(found):
    return {row["what"]: row["verdict"] for row in found.changes}


@settings(max_examples=10, deadline=None)
@given(seqs=st.integers(1, 256), memory=st.sampled_from([0.7, 0.8, 0.9]))
def test_a_thing_does_not_differ_from_itself(seqs, memory):
    line = f"{LINE} --max-num-seqs {seqs} --gpu-memory-utilization {memory}"
    found = difference(line, line, ASKED, 0.0)
    assert found.changes == ()
    assert not found.is_worse
    assert found.sentence.startswith("Nothing changes")
    # equal in what they say, not in their words
    other = line.replace("--max-num-seqs", "--max_num_seqs=").replace("= ", "=")
    assert difference(line, other, ASKED, 0.0).changes == ()


def test_the_other_way_round_better_is_worse():
    pair = f"{LINE} -tp 1", f"{LINE} -tp 2"
    there, back = difference(*pair, ASKED), difference(*reversed(pair), ASKED)
    assert verdicts(back) == {what: OPPOSITE[one] for what, one in verdicts(there).items()}
    assert verdicts(there)["cost_usd_per_month"] == "worse"
    assert verdicts(there)["tpot_p99_s"] == "better"
    row = next(row for row in there.changes if row["what"] == "cost_usd_per_month")
    assert row["after"] == pytest.approx(2 * row["before"])
    assert row["change_fraction"] == pytest.approx(1.0)
    assert there.is_worse
    assert back.is_worse  # first tokens take longer


@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.2, 0.99])
def test_a_wider_tolerance_tells_less(tolerance):
    pair = f"{LINE} --gpu-memory-utilization 0.9", f"{LINE} --max-num-seqs 1"
    wide = difference(*pair, ASKED, tolerance)
    narrow = difference(*pair, ASKED, 0.0)
    assert {row["what"] for row in wide.changes} <= {row["what"] for row in narrow.changes}


def test_a_line_that_does_not_fit_any_more_is_worse():
    found = difference(LINE, f"{LINE} --swap-space 4", ASKED)
    assert found.is_worse
    assert found.sentence == "It does not fit any more."
    assert not difference(f"{LINE} --swap-space 4", LINE, ASKED).is_worse


def saved(tmp_path, name, document):
    path = tmp_path / name
    path.write_text(json.dumps(document))
    return str(path)


def test_plans_as_scenarios_and_as_json(tmp_path):
    small, large = (tmp_path / name for name in ("small.yaml", "large.yaml"))
    small.write_text(SCENARIO.format(rate=2))
    large.write_text(SCENARIO.format(rate=400))
    old, new = (saved(tmp_path, f"{p.stem}.json", plan(p).to_dict()) for p in (small, large))
    found = difference(old, new)
    assert found.is_worse
    assert verdicts(found)["cost_usd_per_month"] == "worse"
    assert "chat: fleet" in verdicts(found)
    assert difference(str(small), new).changes == found.changes
    assert difference(old, str(small), tolerance=0.0).changes == ()


def test_a_plan_that_nothing_keeps_any_more_is_worse(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(SCENARIO.format(rate=2))
    old = plan(path).to_dict()
    none = saved(tmp_path, "b.json", old | {"recommended": None, "placement": []})
    found = difference(saved(tmp_path, "a.json", old), none)
    assert found.is_worse
    assert found.changes[0]["what"] == "fits"


def test_training_runs_and_their_risk(tmp_path):
    made = {
        zero: train(
            "llama-3.2-1b",
            device="h100-sxm-80gb",
            gpus=8,
            plan=f"zero={zero}",
            global_batch=64,
            seq_len=2048,
        ).to_dict()
        for zero in (1, 3)
    }
    old, new = (saved(tmp_path, f"{zero}.json", one) for zero, one in made.items())
    found = difference(old, new)
    row = next(row for row in found.changes if row["what"] == "iteration_s")
    assert (row["before"], row["after"]) == (made[1]["iteration_s"], made[3]["iteration_s"])
    assert row["verdict"] == ("worse" if row["after"] > row["before"] else "better")
    risky = saved(tmp_path, "risky.json", made[1] | {"fit_probability_fraction": 0.5})
    assert verdicts(difference(old, risky))["risk_fraction"] == "worse"


def test_what_cannot_be_compared_is_refused(tmp_path):
    run = train("lenet-5", device="t4", global_batch=8).to_dict()
    path = saved(tmp_path, "run.json", run)
    for old, new, words in (
        (path, LINE, "figure"),
        (str(tmp_path / "none.json"), path, "exists"),
        (saved(tmp_path, "k.json", {"kind": "estimate"}), path, "kind"),
        (saved(tmp_path, "t.json", {"kind": "training"}), path, "training"),
        ("rm -rf /", path, "begins with"),
    ):
        with pytest.raises(InputError, match=words):
            difference(old, new, LineQuestion())
    with pytest.raises(InvalidValueError, match="tolerance"):
        difference(LINE, LINE, ASKED, -1)


def test_examples_are_the_same_as_themselves():
    for path in sorted(Path("examples").glob("night_power_cap.yaml")):
        assert difference(str(path), str(path)).changes == ()
