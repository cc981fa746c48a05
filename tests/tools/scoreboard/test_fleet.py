"""Suite fleet: rows are answered by the call they name, or refused alone."""

from __future__ import annotations

import csv
import json

import pytest

from accelsim import Arrivals, serve, train
from accelsim.scoreboard import validate
from tools.scoreboard.fleet import FLEET_SCHEMA

TRAIN = {"cluster": "dgx-h100", "gpus": 8, "global_batch": 8, "precision": "bf16", "seq_len": 512}
LOAD = {"users": 4, "requests": 8, "prompt": "64", "output": "16"}
SERVE = {"device": "h100-sxm-80gb", "load": LOAD, "run": {"precision": "fp8"}, "serving": {"tp": 1}}
TINY = {"vocab_size": 1000, "hidden_size": 512, "layers": 2, "heads": 8, "intermediate_size": 2048}


@pytest.fixture
def scored(tmp_path):
    """Predictions of rows, and refusals by reason."""

    def score(*rows):
        path = tmp_path / FLEET_SCHEMA.file
        path.parent.mkdir(exist_ok=True)
        models = {"tiny-lm": {"family": "decoder", "parameters": TINY}}
        (path.parent / "fleet_models.json").write_text(json.dumps(models), encoding="utf-8")
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, [column.name for column in FLEET_SCHEMA.columns])
            writer.writeheader()
            writer.writerows(rows)
        (found,) = validate(["fleet"], tmp_path).suites
        return found

    return score


def row(call, metric, unit, options, value=1.0, **cells):
    named = {
        "id": metric,
        "kind": "k",
        "model": "llama-3.1-8b",
        "device": "x",
        "confidence": "high",
    }
    asked = {"call": call, "metric": metric, "unit": unit, "value": value}
    return named | asked | {"confidence": "high"} | cells | {"options": json.dumps(options)}


def predicted(found) -> list[float]:
    return [value for part in found.rows for value in part.predicted_s.tolist()]


def test_figures_are_those_of_the_library(scored):
    whole = train("llama-3.1-8b", check_memory=False, plan="zero=3", **TRAIN)
    plan = TRAIN | {"plan": "zero=3"}
    per_device = scored(row("train", "tok_s_dev", "tokens/s/device", plan))
    assert predicted(per_device) == [pytest.approx(whole.tokens_per_s / 8)]
    load = Arrivals(**LOAD)
    rate = serve("llama-3.1-8b", "h100-sxm-80gb", load, precision="fp8").output_tokens_per_s
    assert predicted(scored(row("serve", "out_tok_s", "tokens/s", SERVE))) == [pytest.approx(rate)]


def test_cache_bytes_of_a_token_are_exact(scored):
    options = {"device": "l4", "batch": 2, "seq_len": 96, "output_len": 32, "kv_format": "bf16"}
    found = scored(row("estimate", "kv_kb_token", "kB/token", options))
    assert predicted(found) == [pytest.approx(2 * 8 * 128 * 32 * 2 / 1000)]


def test_what_fits_is_right_or_wrong(scored):
    right, wrong = (row("serve", "fits", "1/0", SERVE, value, id=f"{value}") for value in (1, 0))
    assert sorted(predicted(scored(right, wrong))) == [1, 2]


def test_rows_with_unknown_words_are_refused_alone(scored):
    good = row("train", "iter_s", "s", TRAIN | {"plan": "dp=8"}, model="tiny-lm")
    odd = good | {"options": json.dumps(TRAIN | {"colour": 3})}
    found = scored(
        good, odd, good | {"metric": "mood"}, good | {"unit": "h"}, good | {"call": "dig"}
    )
    assert found.figures.rows_answered == 1
    reasons = " / ".join(found.refused)
    assert all(word in reasons for word in ("colour", "mood", "iter_s in h", "dig"))


def test_low_confidence_is_a_group_of_its_own(scored):
    good = row("train", "iter_s", "s", TRAIN | {"plan": "dp=8"}, model="tiny-lm")
    found = scored(good, good | {"confidence": "low"})
    names = {one["stack"] for one in found.suite.findings(found.rows)["stacks"]}
    assert names == {"k", "k (low confidence)", "all"}
