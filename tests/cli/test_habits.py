"""What people try on the command line: formats by name, words for classes, options of prices."""

import json

import pytest


@pytest.mark.parametrize("name", ["o.json", "o.csv", "o.md", "o.txt"])
def test_a_file_has_the_format_of_its_name(run, tmp_path, name):
    path = tmp_path / name
    assert run("estimate", "lenet-5", "-d", "t4", "--out", path).code == 0
    text = path.read_text()
    checks = {
        "o.json": lambda: json.loads(text)["metrics"],
        "o.csv": lambda: text.splitlines()[0].startswith("workload,"),
        "o.md": lambda: "| largest operators | kind | time | share | limited by |" in text,
        "o.txt": lambda: "╭" in text,
    }
    assert checks[name]()


def test_markdown_tables_keep_their_columns(run):
    out = run("compare", "lenet-5", "-d", "t4,l4", "--format", "md").out
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert lines[1].replace(" ", "").startswith("|---|")


def test_a_page_is_the_report(run, refused, tmp_path):
    pytest.importorskip("plotly")
    page = tmp_path / "o.html"
    assert run("estimate", "lenet-5", "-d", "t4", "--out", page).code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    beside = ("--report", tmp_path / "r.html", "--out", tmp_path / "y.html")
    assert "out" in refused("estimate", "lenet-5", "-d", "t4", *beside)


def test_a_picture_is_a_chart_or_says_what_it_needs(run, refused, tmp_path, monkeypatch):
    from accelsim.report import chart

    path = tmp_path / "o.png"
    if chart.find_spec("matplotlib") is not None:
        assert run("estimate", "lenet-5", "-d", "t4", "--out", path).code == 0
        assert path.read_bytes()[:4] == b"\x89PNG"
        assert "out" in refused("offers", "list", "--out", tmp_path / "x.png")
    monkeypatch.setattr(chart, "find_spec", lambda name: None)
    said = refused("estimate", "lenet-5", "-d", "t4", "--out", tmp_path / "z.png")
    assert "pip install matplotlib" in said


def test_class_words_work_everywhere(run, refused):
    listed = run("devices", "list", "--class", "tpu", "--format", "json").json
    assert listed
    assert all(row["name"].startswith("tpu-") for row in listed)
    offers = run("offers", "list", "--device", "tpu", "--format", "json").json
    assert {row["device"][:4] for row in offers} == {"tpu-"}
    clusters = run("clusters", "list", "--device", "tpu", "--format", "json").json
    assert {row["device"][:4] for row in clusters} == {"tpu-"}
    said = refused("estimate", "lenet-5", "-d", "tpu")
    assert "stands for several" in said
    assert "tpu-v4" in said


def test_sweeps_take_class_words():
    from accelsim.exploration.sweeps.spec import load_sweep

    spec = load_sweep({"name": "s", "vary": {"model": ["lenet-5"], "device": ["tpu", "t4"]}})
    assert spec.vary["device"] == ["tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "t4"]


#: Spot prices of the price book, whatever their age.
ANY_AGE = ("--spot-age-days", "100000")


def test_prices_say_their_kind_date_age_and_place(run, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795305600")  # 2026-11-22
    out = run("estimate", "llama-3.2-1b", "-d", "t4", "--kind", "spot", *ANY_AGE).out
    words = " ".join(out.replace("│", " ").split())
    assert "per million output tokens" in words
    assert ", spot, as of 20" in words
    assert "years old)" in words
    out = run("compare", "lenet-5", "-d", "t4,l4", "--region", "us-*").out
    assert "prices at aws/us-" in out or "prices at gcp/us-" in out
    assert "years old" in out


def test_discounts_and_caps_are_options(run, refused):
    usual = run("estimate", "lenet-5", "-d", "t4", "--provider", "aws", "--format", "json").json
    off = ("--provider", "aws", "--discounts", "aws=50%", "--format", "json")
    halved = run("estimate", "lenet-5", "-d", "t4", *off).json
    assert halved["usd_per_hour"] == pytest.approx(usual["usd_per_hour"] / 2)
    assert "max_usd_per_hour" in refused(
        "estimate", "lenet-5", "-d", "t4", "--max-usd-per-hour", "0.01"
    )


@pytest.mark.parametrize(
    "command",
    [
        ("estimate", "lenet-5", "-d", "t4"),
        ("compare", "lenet-5", "-d", "t4"),
        ("serve", "lenet-5", "-d", "t4", "--rate", "1", "--requests", "5"),
        ("train", "resnet-18", "-d", "t4"),
    ],
)
def test_every_question_takes_the_choice_of_a_price(run, refused, command):
    choice = (
        "--provider",
        "aws",
        "--region",
        "us-*",
        "--kind",
        "spot",
        *ANY_AGE,
        "--format",
        "json",
    )
    found, halved = (
        run(*command, *choice, *more).json for more in ((), ("--discounts", "aws=50%"))
    )
    (usual, half) = (one[0] if isinstance(one, list) else one for one in (found, halved))
    assert usual["offer"].startswith("aws/us-")
    assert usual["offer"].endswith(":spot")
    costs = [name for name in usual if name.startswith("cost_usd") and usual[name]]
    assert [half[name] for name in costs] == pytest.approx([usual[name] / 2 for name in costs])
    assert costs
    capped = (*command, "--max-usd-per-hour", "0.001")
    said = run(*capped).out if command[0] == "compare" else refused(*capped)
    assert "max_usd_per_hour" in said


def test_sweeps_take_the_choice_of_a_price(tmp_path):
    import accelsim

    fixed = {"model": "lenet-5", "device": "t4", "provider": "aws", "discounts": "aws=50%"}
    fixed["spot_age_days"] = 1e5
    spec = {"name": "s", "fixed": fixed, "vary": {"kind": ["on-demand", "spot"]}}
    rows = accelsim.sweep(spec, tmp_path / "out", workers=1).to_frame()
    assert all(name.startswith("aws/") for name in rows["offer"])
    assert [name.endswith(":spot") for name in rows["offer"]] == [False, True]
    usual = accelsim.estimate("lenet-5", "t4", provider="aws").usd_per_hour
    assert rows["usd_per_hour"][0] == pytest.approx(usual / 2)


def test_advice_names_no_option_already_set(run):
    eager = ("estimate", "resnet-50", "-d", "t4", "--batch", "1", "--execution", "eager")
    assert "--execution graph" in run(*eager).out
    for how in ("graph", "compiled"):
        out = run("estimate", "lenet-5", "-d", "t4", "--execution", how).out
        assert "--execution" not in out


def test_options_without_effect_are_refused(refused):
    assert "optimizer" in refused(
        "serve", "llama-3.2-1b", "-d", "t4", "--rate", "1", "--optimizer", "sgd"
    )
    assert "max-batch" in refused("estimate", "lenet-5", "-d", "t4", "--batch", "2", "--max-batch")
    option = ("--operators", "3")
    assert option[0] in refused("estimate", "lenet-5", "-d", "t4", "--batches", "1,2", *option)


def test_batches_show_the_knee(run):
    found = run("estimate", "resnet-50", "-d", "t4", "--batches", "1,8,64", "--format", "json").json
    assert [one["batch"] for one in found["batches"]] == [1, 8, 64]
    out = run("estimate", "resnet-50", "-d", "t4", "--batches", "1,8,64").out
    assert f"{found['knee']}* " in out


def test_the_largest_batch_is_taken(run):
    found = run("estimate", "resnet-50", "-d", "t4", "--max-batch", "--format", "json").json
    assert found["fits"]
    assert found["batch"] > 1000


def test_all_operators_share_the_run(run, refused):
    found = run("estimate", "resnet-50", "-d", "t4", "--operators", "all", "--format", "json").json
    times = [one["time_s"] for one in found["operators"]]
    shares = [one["share_fraction"] for one in found["operators"]]
    assert len(times) > 10
    assert [time / found["latency_s"] for time in times] == pytest.approx(shares)
    assert sum(shares) < 1
    assert "--operators" in refused("estimate", "resnet-50", "-d", "t4", "--operators", "few")
