"""Pages hold their figures' data as tables, need no network, and show hostile names as text."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser
from zlib import decompress

import numpy as np
import pytest

import accelsim
from accelsim.catalog import device
from accelsim.errors import MissingDependencyError, OutputError
from accelsim.estimation.compare import known_best
from accelsim.files.formats import plain_values
from accelsim.report.comparison_page import comparison_page
from accelsim.report.curves import Curve, curves_section
from accelsim.report.operators import OperatorRun
from accelsim.report.page import (
    Cell,
    DataTable,
    Page,
    Section,
    figure,
    label,
    page_html,
    write_page,
)
from accelsim.report.run_page import operator_frame, run_page
from accelsim.report.serving_page import serving_page, step_runs
from accelsim.report.training_page import step_section, training_page
from accelsim.simulation.timeline import StepFunction

HOSTILE = "<script>alert(1)</script>[bold]=1+1\x1b[31m"


class Tables(HTMLParser):
    """Rows of each table by its id: numbers where a cell has one, else its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.row, self.tags = {}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        if tag == "table":
            self.rows = self.found[given["id"]] = []
        elif tag == "tr":
            self.row = []
            self.rows.append(self.row)
        elif tag == "td":
            value = given.get("data-value")
            self.row.append(float(value) if value else "")

    def handle_data(self, data):
        if self.tags[-1:] == ["td"] and self.row and self.row[-1] == "":
            self.row[-1] = data

    def handle_endtag(self, tag):
        if tag in self.tags:
            del self.tags[len(self.tags) - 1 - self.tags[::-1].index(tag) :]

    def __getitem__(self, name):
        return [row for row in self.found[name] if row]


def page_of(model, name, **keywords):
    result, run = accelsim.estimate(model, name, **keywords), None
    if result.fits:
        run = accelsim.simulate(model, name, **keywords)
    return result, run, page_html(run_page(result, device(name), run, "accelsim ..."))


def test_tables_of_a_run_hold_the_numbers_of_its_figures():
    result, run, text = page_of("resnet-50", "t4", batch=8)
    tables = Tables(text)
    total_s = run.passes[0].table.total_time_s
    for name in ("by-kind", "by-layer"):
        assert sum(row[1] for row in tables[name]) == pytest.approx(total_s)
        assert sum(row[2] for row in tables[name]) == pytest.approx(1.0)
        assert sum(row[3] for row in tables[name]) == pytest.approx(
            run.passes[0].table.total_energy_j
        )
    assert sum(row[4] for row in tables["roofline"]) == pytest.approx(total_s)
    spans = tables["timeline"]
    assert sum(row[3] for row in spans) == pytest.approx(
        sum(run.timeline.busy_s(name) for name in run.timeline.resources)
    )
    powers = [row[2] for row in tables["power"] if row[0] == "power, W"]
    assert max(powers) <= device("t4").power.limit_w.value * 1.01
    assert result.offer in text


def test_a_page_asks_no_server_and_stays_small():
    text = page_of("resnet-50", "t4", batch=8)[2]
    assert len(text) < 2.5e6
    assert "default-src 'none'" in text
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", text)


def packed_scripts(text):
    [packed] = re.findall(r'class="packed">([^<]+)<', text)
    return json.loads(decompress(b64decode(packed)))


def test_a_page_runs_its_own_scripts_alone():
    text = page_of("resnet-50", "t4", batch=8)[2]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        bodies += packed_scripts(text) if tag == "script" else []
        hashes = (b64encode(sha256(body.encode()).digest()).decode() for body in bodies)
        assert bodies
        assert {f"'sha256-{one}'" for one in hashes} <= set(parts[name].split())
        assert "unsafe" not in parts[name]
    assert parts["base-uri"] == parts["form-action"] == parts["default-src"] == "'none'"


def test_a_model_that_does_not_fit_says_so_first():
    text = page_of("llama-3.1-70b", "t4")[2]
    assert "<p>llama-3.1-70b does not fit on t4.</p>" in text


def test_a_page_without_figures_has_no_script():
    assert len(page_html(Page("a", ("b",), (), "c"))) < 10_000


def test_hostile_names_are_text():
    drawn = figure([{"type": "bar", "x": [1], "y": [label(HOSTILE)], "name": label(HOSTILE)}])
    table = DataTable((HOSTILE, ">n"), [(HOSTILE, Cell(HOSTILE, 1.0))])
    page = Page(HOSTILE, (HOSTILE,), (Section("a", HOSTILE, table, HOSTILE, drawn),), HOSTILE)
    text = page_html(page)
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;[bold]=1+1\\x1b[31m</h1>" in text


def test_long_runs_are_drawn_within_limits_and_say_so():
    run = accelsim.simulate(
        "llama-3.1-8b", "h100-sxm-80gb", stack="pytorch", seq_len=64, output_len=512
    )
    result = accelsim.estimate(
        "llama-3.1-8b", "h100-sxm-80gb", stack="pytorch", seq_len=64, output_len=512
    )
    page = run_page(result, device("h100-sxm-80gb"), run, "")
    section = next(one for one in page.sections if one.name == "timeline")
    drawn = sum(len(trace["x"]) for trace in section.figure["data"])
    assert drawn <= 2_000 + len(run.timeline.resources) < len(run.timeline)
    assert len(section.table.rows) == 201
    total_s = sum(row[3].value for row in section.table.rows)
    assert total_s == pytest.approx(float(run.timeline.duration_s.sum()))
    assert "more" in section.table.rows[-1][0]
    assert f"{len(run.timeline):,} spans" in section.text


def test_the_front_of_a_comparison_has_those_that_no_other_beats():
    names = ["t4", "a100-sxm-80gb", "h100-sxm-80gb", "xeon-platinum-8480+", "graviton3"]
    found = accelsim.compare("resnet-50", names, batch=8)
    rows = found.to_dict()
    front = {row["device"] for row in known_best(rows)}
    best = {found.best(c)["resnet-50", "inference"] for c in ("latency_s", "cost_usd_per_1000")}
    assert best <= front < set(names)
    page = comparison_page(rows, "accelsim", slo_s=4e-3, budget_usd=1.0)
    shown = {row[0]: row for row in Tables(page_html(page))["pareto-0"]}
    for row in rows:
        assert shown[row["device"]][1] == pytest.approx(row["latency_s"])
        assert shown[row["device"]][4] == pytest.approx(row["cost_usd_per_1000"])
        assert shown[row["device"]][5] == ("yes" if row["device"] in front else "no")
    kept = [row["device"] for row in rows if row["latency_s"] <= 4e-3]
    assert f"within the limits: {', '.join(kept)}" in page.decision[0]
    assert found.best("latency_s")["resnet-50", "inference"] in page.decision[0]


def test_a_comparison_has_every_operator_of_its_front_and_every_offer():
    options = {"batch": 8, "execution": "compiled"}
    found = accelsim.compare("resnet-50", ["t4", "l4"], **options)
    runs = {name: accelsim.simulate("resnet-50", name, **options) for name in ("t4", "l4")}
    operators = [
        OperatorRun(device(name), found[place].estimate.precision, operator_frame(run))
        for place, (name, run) in enumerate(runs.items())
    ]
    key = ("resnet-50", "inference")
    page = comparison_page(found.to_dict(), "", operators={key: operators})
    tables = Tables(page_html(page))
    spent = {run.device.name: run.frame[run.frame["flop"] > 0]["time_s"].sum() for run in operators}
    rows = tables["roofline-0"]
    shown = {name: [row for row in rows if row[0] == name] for name in runs}
    assert sum(row[5] for row in rows) == pytest.approx(sum(spent.values()))
    for run in operators:
        assert len(shown[run.device.name]) > 20
        rates = [row[4] for row in shown[run.device.name]]
        assert max(rates) <= run.peak_flop_per_s
    for column in ("kind", "layer"):
        rows = tables[f"energy-{column}-0"]
        for name, run in runs.items():
            spent_j = sum(row[3] for row in rows if row[1] == name)
            assert spent_j == pytest.approx(run.passes[0].table.total_energy_j)
    paid = {(row[0], row[1]): row[3] for row in tables["offers-0"]}
    for row in found:
        e = row.estimate
        assert paid[e.device, f"{e.offer}, on demand"] == pytest.approx(e.cost_usd_per_1000)


def test_a_training_page_has_every_operator_of_a_microbatch():
    found = accelsim.train("llama-3.2-1b", cluster="dgx-h100", gpus=8, plan="tp=2", record=True)
    tables = Tables(page_html(training_page(found.to_dict(), "", found.iteration)))
    costs, unit = found.iteration.costs, found.iteration.unit
    parts = ("compute", "tensor", "context", "expert")
    total_s = sum(
        costs[f"{part}_{word}_s"][unit].sum() for part in parts for word in ("forward", "backward")
    )
    for name in ("by-kind", "by-layer", "by-bound"):
        assert sum(row[1] for row in tables[name]) == pytest.approx(total_s)
    frame = found.iteration.to_frame()
    assert frame["flop"].sum() > 0
    has_place = frame[frame["flop"] > 0]
    assert sum(row[4] for row in tables["roofline"]) == pytest.approx(has_place["time_s"].sum())
    layers = (re.search(r"\((\d+) ×\)$", row[0]) for row in tables["roofline"])
    assert sum(int(found[1]) if found else 1 for found in layers) == len(has_place)


def test_a_training_page_has_lines_of_its_limits():
    length = accelsim.RunLength(iterations=1e5)
    where = {"cluster": "dgx-h100", "gpus": 2, "length": length, "record": True}
    found = accelsim.train("llama-3.2-1b", search=True, plan="tp=2", **where)
    limits = {"deadline_s": found.time_to_train_s / 2, "budget_usd": 2 * found.total_cost_usd}
    page = training_page(found.to_dict(), "", found.iteration, **limits)
    assert [line.split(" is ")[1][:6] for line in page.decision[-2:]] == ["missed", "kept: "]
    front = next(section for section in page.sections if section.name == "pareto")
    lines = {trace["name"]: trace for trace in front.figure["data"]}
    assert lines["deadline"]["x"][0] == pytest.approx(found.iteration_s / 2)
    assert lines["budget"]["x"][0] == pytest.approx(2 * found.iteration_s)
    assert lines["memory of a device"]["y"][0] == found.iteration.setup.capacity_bytes


@pytest.mark.parametrize("plan", ["tp=2,pp=2", "zero=3", "pp=2,schedule=interleaved,chunks=2"])
def test_power_and_memory_of_an_iteration_are_its_energy_and_its_worst_rank(plan):
    where = {"cluster": "dgx-h100", "gpus": 4, "global_batch": 8, "record": True}
    found = accelsim.train("llama-3.2-1b", plan=plan, **where)
    iteration, lines = found.iteration, found.timeline
    section = step_section(iteration, lines)
    rows = [tuple(getattr(one, "value", one) for one in row) for row in section.table.rows]
    power = [row for row in rows if row[0] == "power, W"]
    edges = [*(row[1] for row in power), lines.makespan_s]
    spent_j = sum(row[2] * (end - row[1]) for row, end in zip(power, edges[1:], strict=True))
    waits_j = iteration.setup.energy_j(0.0, found.iteration_s - lines.makespan_s)
    assert spent_j == pytest.approx(found.energy_j - waits_j)
    held = [row[2] for row in rows if row[0] == "memory of the worst rank, B"]
    assert max(held) == pytest.approx(found.memory_bytes)
    assert held[-1] == pytest.approx(found.memory_bytes - found.memory["activation_bytes"])


def test_a_serving_page_has_power_and_memory():
    load = accelsim.Arrivals(rate_per_s=8.0, requests=80)
    asked = ("llama-3.2-1b", "l4", load, accelsim.ServingOptions())
    found = accelsim.serve(*asked)
    document = plain_values(found.to_dict())
    tables = Tables(page_html(serving_page(document, "", found)))
    power = [row for row in tables["power"] if row[0] == "power, W"]
    edges = [*(row[1] for row in power), found.duration_s]
    energy_j = sum(
        row[2] * (end - start) for row, start, end in zip(power, edges[:-1], edges[1:], strict=True)
    )
    assert energy_j == pytest.approx(found.energy_j)
    held = [row[2] / 100 for row in tables["power"] if row[0] == "cache in use, %"]
    assert 0 < max(held) <= 1.0001 * found.kv_occupancy_fraction["peak"]
    waits = [row for row in tables["requests"] if row[0] == "further tokens"]
    assert max(row[2] for row in waits) >= 1
    prompt, further = step_runs(found)
    lengths = found.to_requests()[["prompt_tokens", "output_tokens"]].mean()
    assert prompt.name == f"prompt of {round(lengths['prompt_tokens']):,}"
    for run in (prompt, further):
        spent = [row for row in tables["by-kind"] if row[1] == run.name]
        assert sum(row[2] for row in spent) == pytest.approx(run.frame["time_s"].sum())
        placed = run.frame["flop"] > 0
        rows = [row[5] for row in tables["roofline"] if row[0] == run.name]
        assert 0 < sum(rows) <= 1.0001 * run.frame["time_s"][placed].sum()
    assert prompt.frame["time_s"].sum() > further.frame["time_s"].sum()


def test_pairs_that_cannot_run_keep_their_reason():
    found = accelsim.compare("llama-3.1-70b", ["t4", "alveo-u280"])
    page = comparison_page(found.to_dict(), "")
    rows = page.sections[0].table.rows
    assert [bool(row[-1]) for row in rows] == [True, True]
    assert "2 of 2 cannot run it" in page.decision[0]


def test_files_are_kept_and_missing_libraries_named(tmp_path, monkeypatch):
    page = Page("a", ("b",), (), "c")
    path = tmp_path / "r.html"
    write_page(page, path)
    with pytest.raises(OutputError, match="--force"):
        write_page(page, path)
    write_page(page, path, force=True)
    monkeypatch.setitem(__import__("sys").modules, "plotly.graph_objects", None)
    with pytest.raises(MissingDependencyError, match=r"accelsim\[report\]"):
        page_html(page)


def test_a_curve_has_a_row_where_its_value_changes_by_more_than_rounding():
    values = np.array([616.0, 616.0 + 1e-10, 70.0, 616.0])
    steps = StepFunction(np.arange(4.0), values)
    curve = Curve("power, W", steps, "{:.4g}".format)
    rows = curves_section("power", "Power", [curve], 4.0, "Power").table.rows
    assert [row[2] for row in rows] == [
        Cell(text, value) for text, value in (("616", 616.0), ("70", 70.0), ("616", 616.0))
    ]
