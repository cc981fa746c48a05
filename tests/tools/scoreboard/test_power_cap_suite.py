"""Runs under power limits: which rows are asked, and that a row's own network is never fitted."""

import numpy as np
import pytest

from accelsim.scoreboard import scoreboard_dict, validate
from accelsim.scoreboard.data_folder import DataFolder
from tools.scoreboard.cap_response import CapResponse, capped_run
from tools.scoreboard.power_cap import CAP_SCHEMA, load

HEAD = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power,gpu\n"
TRUE = CapResponse(1.0, 45.0, 0.8, 230.0, 0.4, 0.8)


def rows_of(network, batch, power_w):
    """A run whose board answers limits as `TRUE` does."""
    lines = []
    for limit in (100.0, 150.0, 200.0, 250.0):
        time, power = capped_run(np.array([power_w]), np.array([min(limit, 249.0)]), TRUE)
        lines.append(f"d,{network},{batch},adam,{limit},{60 * time[0]},{power[0]},V100")
    return lines


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    (root / "power").mkdir()
    runs = [
        ("a", 8, 180),
        ("a", 16, 220),
        ("b", 8, 160),
        ("b", 64, 210),
        ("c", 8, 200),
        ("small", 8, 60),
    ]
    lines = [line for run in runs for line in rows_of(*run)]
    path = root / CAP_SCHEMA.file.removesuffix(".gz")
    path.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return load(DataFolder(root))


def test_a_board_that_the_catalogue_lacks_is_answered_beside_the_others(tmp_path):
    (tmp_path / "power").mkdir()
    lines = rows_of("a", 8, 180) + rows_of("b", 8, 220) + rows_of("c", 8, 200)
    both = lines + [line.replace("V100", "Z9") for line in lines]
    path = tmp_path / CAP_SCHEMA.file.removesuffix(".gz")
    path.write_text(HEAD + "\n".join(both) + "\n", encoding="utf-8")
    score = scoreboard_dict(validate(["power-cap"], tmp_path))["suites"]["power-cap"]
    asked = [batch for batch in load(DataFolder(tmp_path)) if not batch.refusal]
    assert score["rows_answered"] == sum(map(len, asked)) > 0
    assert {batch.device for batch in asked} == {"V100", "Z9"}


def test_limits_that_bind_are_asked_and_all_others_named(batches):
    counts = {batch.refusal: len(batch) for batch in batches}
    assert counts.pop("") == 3 * (2 + 3 + 2 + 3 + 2)
    reasons = dict(sorted(counts.items()))
    assert [("above the power" in reason, n) for reason, n in reasons.items()] == [
        (True, 6),
        (False, 6),
    ]


def test_a_network_alone_on_its_board_is_refused_by_name(tmp_path):
    (tmp_path / "power").mkdir()
    path = tmp_path / CAP_SCHEMA.file.removesuffix(".gz")
    path.write_text(HEAD + "\n".join(rows_of("a", 8, 220)) + "\n", encoding="utf-8")
    counts = {batch.refusal: len(batch) for batch in load(DataFolder(tmp_path))}
    assert counts == {
        "no two other networks on its board to fit its response to": 3,
        "the highest limit of its run, which the others are relative to": 1,
    }


def test_other_networks_predict_a_board_that_answers_as_the_model_does(batches):
    (asked,) = (batch for batch in batches if not batch.refusal)
    predicted = asked.predict(None)
    error = np.abs(predicted.time_s / asked.measured_s - 1)
    assert error.mean() < 0.02
    assert set(asked.group) == {"time", "power", "energy"}
