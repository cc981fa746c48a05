"""Pages from plain values: any result has one, hostile names are text, large ones are cut."""

from __future__ import annotations

import pytest

from accelsim.errors import InputError
from accelsim.report.claims import scenario_command
from accelsim.report.comparison_page import comparison_page, pareto_front
from accelsim.report.page import page_html
from accelsim.report.result_page import result_page
from accelsim.report.saved import read_result

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


def test_the_front_of_many_is_that_of_pairs(monkeypatch):
    rows = [row(7 * place % 5003) for place in range(400)]
    pairs = [id(one) for one in pareto_front(rows)]
    monkeypatch.setattr("accelsim.report.comparison_page._MOST_POINTS", 100)
    assert {id(one) for one in pareto_front(rows)} == set(pairs)


def test_many_points_are_drawn_within_limits():
    rows = [row(place) for place in range(12_000)]
    page = comparison_page(rows, "")
    section = page.sections[0]
    drawn = sum(len(trace["x"]) for trace in section.figure["data"])
    assert drawn <= 5_100
    assert len(section.table.rows) == 201
    assert "11,800 more" in section.table.rows[-1][0]
    assert "not drawn" in section.text
    assert len(page_html(page)) < 8e6


@pytest.mark.parametrize("document", [[], {}])
def test_empty_results_say_so(document):
    assert result_page(document, "").decision == ("The result is empty.",)


def test_large_sweeps_are_read_evenly_spaced(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("accelsim.report.saved._MOST_POINTS", 10)
    (tmp_path / "parts").mkdir()
    for part in range(3):
        found = pa.table({"latency_s": range(35 * part, 35 * part + 35), "reason": [""] * 35})
        pq.write_table(found, tmp_path / "parts" / f"{part}.parquet")
    rows = read_result(tmp_path)
    assert [row["latency_s"] for row in rows] == list(range(0, 105, 11))
    assert {row["reason"] for row in rows} == {None}


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


def test_scenarios_of_claims_are_commands():
    run = {"figure": "latency_s", "model": "resnet-50", "device": "t4", "fused_attention": False}
    command = "accelsim estimate resnet-50 --device t4 --unfused-attention"
    said = scenario_command(run | {"over": {"batch": 8}})
    assert said == f"{command}; over the same with --batch 8"
    assert scenario_command({"figure": "device.peak.fp32", "device": "t4"}) == (
        "accelsim devices show t4"
    )
