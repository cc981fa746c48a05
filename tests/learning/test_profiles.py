"""What a profile says of answers: the musts of learning, provenance, other versions."""

from __future__ import annotations

import json

import pytest

from accelsim.cli.entry import main
from accelsim.errors import InvalidValueError
from accelsim.estimation.estimate import estimate
from accelsim.learning.learn import Told, learn, learned_systems
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
from accelsim.serving.serve import serve

BATCHES = (1, 2, 4, 16, 32)
SLOW = 1.3


@pytest.fixture(scope="module")
def plain():
    return {b: estimate("resnet-50", "t4", batch=b).latency_s for b in (*BATCHES, 8, 64)}


def profile(folder, rows, told=None, name="mine.json", header="model,device,batch,latency_s"):
    table = folder / "runs.csv"
    table.write_text("\n".join([header, *rows]) + "\n")
    path = folder / name
    path.write_text(learn([table], told).profile.model_dump_json())
    return path


def rows_of(plain, slow, batches=BATCHES):
    return [f"resnet-50,t4,{b},{slow * plain[b]!r}" for b in batches]


@pytest.mark.parametrize("slip", [10.0, 0.1, 1000.0])
@pytest.mark.parametrize("batch", [8, 64])
def test_a_row_that_is_off_among_five_costs_at_most_a_fifth_of_accuracy(
    tmp_path, plain, slip, batch
):
    rows = rows_of(plain, SLOW, BATCHES[:4])
    off = f"resnet-50,t4,32,{slip * SLOW * plain[32]!r}"
    without, with_it = (
        estimate("resnet-50", "t4", batch=batch, learned=profile(tmp_path, given)).latency_s
        for given in (rows, [*rows, off])
    )
    errors = [abs(one / (SLOW * plain[batch]) - 1) for one in (without, with_it)]
    assert errors[1] <= 1.2 * errors[0]


def test_rows_of_another_model_engine_and_device_change_nothing(tmp_path, plain):
    mine = profile(tmp_path, rows_of(plain, 3.0))
    for other in (("bert-base", "epyc-9654"), ("vit-b-16", "tpu-v5e")):
        alone, beside = (estimate(*other, learned=one) for one in (None, mine))
        assert beside.latency_s == pytest.approx(alone.latency_s, rel=0.01)
        assert beside.latency_high_s == pytest.approx(alone.latency_high_s, rel=0.01)
        assert any("no learned run is like this one" in note for note in beside.warnings)


def test_evidence_names_the_runs(tmp_path, plain):
    mine = profile(tmp_path, [*rows_of(plain, SLOW), "bert-base,t4,1,0.02"])
    sentence = estimate("resnet-50", "t4", batch=8, learned=mine).evidence.sentence
    assert sentence.endswith("; corrected by 6 runs of yours (runs.csv)")


def test_another_driver_widens_and_says_so(tmp_path, plain):
    rows = [f"{row},550.1,2026-01-02" for row in rows_of(plain, SLOW)]
    header = "model,device,batch,latency_s,driver,date"
    older = profile(tmp_path, rows, header=header)
    newer = profile(
        tmp_path, [*rows, "bert-base,t4,1,0.02,570.2,2026-05-06"], None, "newer.json", header
    )
    found = [estimate("resnet-50", "t4", batch=8, learned=one) for one in (None, older, newer)]
    none, same, other = (one.latency_high_s / one.latency_low_s for one in found)
    assert same < other < none
    assert not any("driver" in note for note in found[1].warnings)
    assert any("driver 570.2" in note and "550.1" in note for note in found[2].warnings)


def test_another_version_of_an_engine_widens_and_says_so(tmp_path):
    header = "model,device,stack,users,prompt,output,tpot_ms"
    row = "llama-3.1-8b,h100-sxm-80gb,{},8,512,64,9"
    asked = ("llama-3.1-8b", "h100-sxm-80gb", Arrivals(users=8, prompt="512", output="64"))
    found = []
    for version in ("vllm", "vllm@0.6"):
        mine = profile(tmp_path, [row.format(version)], header=header)
        found.append(serve(*asked, ServingOptions(), learned=mine))
    widths = [one.metrics["tpot_s.mean"].high / one.metrics["tpot_s.mean"].low for one in found]
    assert widths[0] < widths[1]
    assert not any("version" in note for note in found[0].warnings)
    assert any("of version 0.6" in note for note in found[1].warnings)


def test_a_profile_of_another_accelsim_says_so(tmp_path, plain):
    mine = profile(tmp_path, rows_of(plain, SLOW))
    mine.write_text(json.dumps(json.loads(mine.read_text()) | {"accelsim": "0.0.1"}))
    found = estimate("resnet-50", "t4", batch=8, learned=mine)
    assert any("learn from them again" in note for note in found.warnings)
    with pytest.raises(InvalidValueError, match=r"made, not 0\.0\.1"):
        learn([tmp_path / "runs.csv"], known=mine)


def test_a_profile_shows_what_it_holds(tmp_path, plain, capsys):
    header = "model,device,batch,latency_s,date"
    days = ("2026-03-04", "2026-03-02", "", "2026-03-03", "2026-03-02")
    rows = [f"{row},{day}" for row, day in zip(rows_of(plain, SLOW), days, strict=True)]
    mine = profile(tmp_path, rows, Told(driver="550.1"), header=header)
    with pytest.raises(SystemExit) as done:
        main(("learn show", str(mine), "--format", "json"))
    assert not done.value.code
    (row,) = json.loads(capsys.readouterr().out)["systems"]
    assert (row["runs"], row["driver"], row["files"]) == (5, "550.1", "runs.csv")
    assert row["dates"] == "2026-03-02 to 2026-03-04"
    assert row["off_fraction"] == pytest.approx(SLOW - 1)
    assert 0 < row["shift_fraction"] < row["off_fraction"]
    assert row["learned_spread_fraction"] < row["spread_fraction"]


def test_each_system_is_a_row(tmp_path, plain):
    table = tmp_path / "runs.csv"
    rows = [*rows_of(plain, 1.1), "bert-base,t4,1,0.02"]
    table.write_text("\n".join(["model,device,batch,latency_s", *rows]))
    found = learned_systems(learn([table]).profile)
    assert sorted((row["model"], row["runs"]) for row in found) == [
        ("bert-base", 1),
        ("resnet-50", 5),
    ]
