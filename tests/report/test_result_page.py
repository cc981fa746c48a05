"""Pages from plain values: any result has one, hostile names are text, large ones are cut."""

from __future__ import annotations

import io
from contextlib import suppress

import numpy as np
import pytest

import accelsim
from accelsim.capacity.breakeven import DeploymentOption, breakeven
from accelsim.errors import InputError
from accelsim.estimation.batches import estimate_batches
from accelsim.estimation.compare import known_best
from accelsim.exploration.saved import read_result
from accelsim.exploration.sweeps.store import SweepStore
from accelsim.files.formats import plain_values
from accelsim.quantity import words, written
from accelsim.report.claims import scenario_command
from accelsim.report.comparison_page import comparison_page
from accelsim.report.page import page_html
from accelsim.report.result_page import result_page

HOSTILE = "</script><script>alert(1)</script>=1+1[red]\x1b[31m"


def row(place, **more):
    found = {
        "workload": "m",
        "device": f"d{place}",
        "mode": "inference",
        "reason": None,
        "latency_s": 1.0 + place % 997,
        "throughput_per_s": 10.0,
        "energy_per_sample_j": 5.0 + place % 89,
        "cost_usd_per_1000": 2.0 + place % 61,
        "average_power_w": 100.0,
        "usd_per_hour": 1.0,
        "offer": None,
        "bound": "memory",
    }
    return found | more


def test_hostile_names_are_text_in_tables_figures_and_data():
    rows = [row(0, device=HOSTILE, workload=HOSTILE), row(1, reason=HOSTILE, latency_s=None)]
    text = page_html(result_page(rows, HOSTILE))
    assert "<script>alert" not in text
    assert "\x1b" not in text


def test_many_points_are_drawn_within_limits():
    rows = [row(place) for place in range(12_000)]
    page = comparison_page(rows, "")
    section = page.sections[0]
    drawn = sum(len(trace["x"]) for trace in section.figure["data"])
    assert drawn <= 5_100
    assert {trace["type"] for trace in section.figure["data"]} == {"scatter"}  # needs no WebGL
    assert len(section.table.rows) == 201
    assert "11,800 more" in section.table.rows[-1][0]
    assert "not drawn" in section.text
    assert len(page_html(page)) < 8e6


def test_many_models_share_the_points_of_a_page(monkeypatch):
    monkeypatch.setattr("accelsim.report.comparison_page._MOST_DRAWN", 400)
    rows = [row(place, workload=f"m{place % 20}") for place in range(2_000)]
    sections = comparison_page(rows, "").sections
    figures = [one.figure for one in sections if "time, cost and energy" in one.title]
    assert len(figures) == 20
    for figure in figures:
        assert all(len(trace["x"]) <= 400 // 20 for trace in figure["data"])


@pytest.mark.parametrize("document", [[], {}])
def test_empty_results_say_so(document):
    assert result_page(document, "").decision == ("The result is empty.",)


def test_the_best_of_a_large_sweep_are_those_of_all_points(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("accelsim.exploration.saved._MOST_POINTS", 10)
    rng = np.random.default_rng(1)
    names = ("latency_s", "energy_per_sample_j", "cost_usd_per_1000", "throughput_per_s")
    numbers = {name: rng.integers(1, 40, 120).astype(float) for name in names}
    numbers["cost_usd_per_1000"][::5] = np.nan
    words = {"workload": ["m"] * 120, "device": ["t4", "l4"] * 60, "mode": ["inference"] * 120}
    whole = pa.table(
        words | {"batch": range(120), "reason": ["", "", "too large"] * 40} | numbers,
    )
    with SweepStore(tmp_path) as store:
        for part in range(3):
            content = io.BytesIO()
            pq.write_table(whole.slice(40 * part, 40), content)
            store.add(f"{part:032x}.parquet", content.getvalue(), [])
    rows = read_result(tmp_path)
    every = [
        row | {"reason": row["reason"] or None} for row in whole.to_pandas().to_dict("records")
    ]
    every = [{k: None if v != v else v for k, v in row.items()} for row in every]
    good = [row for row in every if row["reason"] is None]
    read = [row for row in rows if row["reason"] is None]
    assert len(rows) < 60
    for name in names:
        best = max if name == "throughput_per_s" else min
        assert best(r[name] for r in read if r[name]) == best(r[name] for r in good if r[name])
    fronts = [{row["batch"] for row in known_best(found)} for found in (good, read)]
    assert fronts[0] == fronts[1]
    assert f"{len(rows)} of 120 points are shown" in result_page(rows, "").warnings[0]


def zeroed(value):
    """A result whose numbers are all 0, but for its version."""
    if isinstance(value, dict):
        return {k: one if k == "schema_version" else zeroed(one) for k, one in value.items()}
    if isinstance(value, list):
        return [zeroed(one) for one in value]
    return 0 if type(value) in {int, float} else value


def test_results_of_zeros_have_a_page_or_a_reason():
    reference = DeploymentOption("gpu", 0.0, 1000.0, 500.0, 50.0)
    chip = DeploymentOption("chip", 1e6, 800.0, 1000.0, 20.0)
    found = (
        accelsim.train("resnet-18", device="t4", gpus=1),
        accelsim.serve("resnet-18", "t4", accelsim.Arrivals(rate_per_s=50.0, requests=20)),
        breakeven(reference, [chip]),
    )
    for result in found:
        plain = plain_values(
            [one.to_dict() for one in result] if isinstance(result, tuple) else result.to_dict()
        )
        fields = [] if isinstance(plain, list) else [plain | {n: zeroed(plain[n])} for n in plain]
        for document in (zeroed(plain), *fields):
            with suppress(InputError):
                page_html(result_page(document, ""))


def test_any_mapping_has_a_page():
    found = {
        "name": "x",
        "metrics": {"time_s": {"value": 2.0, "low": 1.0, "high": 3.0, "level": 0.9}},
    }
    page = result_page(found | {"rows": [{"a": 1, "b": "t"}], "parts": {"c_fraction": 0.5}}, "")
    assert [section.name for section in page.sections] == ["figures", "about", "rows", "parts"]
    assert page.sections[0].table.rows[0][1].text == "2.00 s"
    assert page.sections[3].table.rows[0][1].text == "50 %"
    with pytest.raises(InputError, match="schema_version"):
        result_page({"schema_version": 2}, "")


def sections_of(document):
    return {section.name: section for section in result_page(document, "").sections}


def values(section, column):
    return [getattr(row[column], "value", row[column]) for row in section.table.rows]


def test_the_page_of_a_break_even_has_its_lines_cross_at_its_volume():
    gpu = DeploymentOption("t4", 0.0, 2000.0, 1000.0, 70.0)
    chips = [
        DeploymentOption("tpu-v4i", 1e6, 300.0, 2000.0, 50.0),
        DeploymentOption("zcu104", 5e3, 90_000.0, 500.0, 20.0),
    ]
    points = [point.to_dict() for point in breakeven(gpu, chips)]
    found = sections_of(points)
    assert set(found) == {"break-even", "cost", "numbers"}
    assert values(found["break-even"], 3) == ["", points[0]["volume"], "never"]
    first, second = found["break-even"].figure["data"][:2]
    at = [np.interp(points[0]["volume"], line["x"], line["y"]) for line in (first, second)]
    assert at[0] == pytest.approx(at[1], rel=0.01)
    chip = next(o for o in found["cost"].calculator["options"] if o["name"] == "tpu-v4i")
    whole_life = 36 * (730.5 * chip["usd_per_hour"] / 2.0 + chip["fixed_usd_per_month"])
    assert whole_life == pytest.approx(points[0]["usd_per_demand"] + 1e6)
    assert result_page(points, "").decision[0].startswith("tpu-v4i is cheaper than t4 from")


def test_saved_estimates_have_costs_offers_and_accuracy():
    run = accelsim.estimate("resnet-50", "t4", batch=8)
    found = sections_of(plain_values(run.to_dict()))
    assert {"figures", "operators", "memory", "cost", "offers", "accuracy"} <= set(found)
    assert sum(values(found["memory"], 1)) == run.memory_bytes
    per_1000 = dict(zip(values(found["offers"], 1), values(found["offers"], 3), strict=True))
    assert per_1000[f"{run.offer}, on demand"] == pytest.approx(run.cost_usd_per_1000)
    curve = estimate_batches("resnet-50", "t4", [1, 64])
    page = result_page(plain_values(curve.to_dict()), "")
    assert page.decision[0].startswith(f"From batch {curve.knee} on")
    assert values(page.sections[0], 0) == [1, 64]


def test_names_of_fields_as_people_read_them():
    assert words("ttft_s.p99.9") == "ttft, p99.9"
    assert words("throughput_per_s") == "throughput per s"
    assert words("energy_per_sample_j") == "energy per sample"
    assert written("ttft_s.p99.9", 0.5) == "500 ms"


def test_tables_of_any_rows_write_numbers_with_their_units():
    rows = [
        {"year": 2024, "memory_bandwidth_bytes_per_s": 5e11, "peak_flop_per_s": {"fp32": 3.6e12}},
        {"year": 2025, "memory_bandwidth_bytes_per_s": None, "peak_flop_per_s": {"fp32": None}},
    ]
    page = result_page(rows, "accelsim devices list --vendor x")
    assert page.title == "accelsim devices list"
    (section,) = page.sections
    assert section.table.titles == (">year", ">memory bandwidth", "peak")
    texts = [[getattr(one, "text", one) for one in row] for row in section.table.rows]
    assert texts == [["2024", "500 GB/s", "fp32 3.60 TFLOP/s"], ["2025", "unknown", ""]]
    assert words("cost_usd_per_month") == "cost per month"
    assert words("usd_per_hour") == "usd per hour"


def test_values_have_the_unit_of_their_field_or_of_what_holds_them():
    number = {"field": "memory.bandwidth_bytes_per_s", "value": 3.2e11}
    document = {"name": "d", "class": "gpu", "numbers": [number], "peak_flop_per_s": {"fp32": 8e12}}
    page = result_page(document, "accelsim devices show d")
    found = {section.name: section for section in page.sections}
    assert found["numbers"].table.rows[0][1].text == "320 GB/s"
    assert found["peak_flop_per_s"].table.rows[0][1].text == "8.00 TFLOP/s"
    assert page.decision == ("d: class gpu.",)
    listed = {"claims": [{"id": "S01", "title": "t", "readings": []}]}
    assert result_page(listed, "").sections[0].table.rows == [["S01", "t", "none"]]
    assert words("device_count") != words("device")
    with pytest.raises(InputError, match="slo_s"):
        result_page(document, "", {"slo_s": 0.1})
    (line,) = (
        trace
        for trace in result_page([row(0), row(1)], "", {"slo_s": 1.5}).sections[0].figure["data"]
        if trace["name"] == "latency target"
    )
    assert line["x"] == [1.5, 1.5]


def test_scenarios_of_claims_are_commands():
    run = {"figure": "latency_s", "model": "resnet-50", "device": "t4", "fused_attention": False}
    command = "accelsim estimate resnet-50 --device t4 --unfused-attention"
    said = scenario_command(run | {"over": {"batch": 8, "optimizer": None}})
    assert said == f"{command}; over the same with --batch 8"
    assert scenario_command({"figure": "device.peak.fp32", "device": "t4"}) == (
        "accelsim devices show t4"
    )
