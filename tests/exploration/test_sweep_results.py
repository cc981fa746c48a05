"""What is read from a sweep's points."""

import numpy as np
import pandas as pd
import pytest

from accelsim.errors import InputError, OutputError
from accelsim.exploration.sweeps import results
from accelsim.exploration.sweeps.run import sweep
from accelsim.report.page import page_html
from accelsim.report.sweep_page import pareto_page

pytest.importorskip("pyarrow")

SPEC = {
    "name": "read",
    "fixed": {"precision": "fp16", "model": "resnet-18"},
    "vary": {"device": ["t4", "l4", "h100-sxm-80gb"], "batch": [1, 8, 64]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("results")
    sweep(SPEC, path, workers=1)
    return path


def test_notebooks_show_the_points(folder):
    assert sweep(SPEC, folder, workers=1)._repr_html_().count("resnet-18") == 9


def test_the_folder_is_a_data_set_for_others(folder):
    """pandas and whatever else reads folders of Parquet pass over names that begin with _."""
    frame = pd.read_parquet(folder)
    assert len(frame) == 9
    assert set(frame["device"].astype(str)) == {"t4", "l4", "h100-sxm-80gb"}


def test_top_is_the_smallest_or_the_largest(folder):
    frame = results.points(folder)
    best = results.top(frame, "latency_s", 4)["latency_s"].tolist()
    assert best == sorted(frame["latency_s"])[:4]
    most = results.top(frame, "throughput_per_s:max", 1)["throughput_per_s"].item()
    assert most == frame["throughput_per_s"].max()
    assert set(results.points(folder, "device=t4,batch=8")["device"]) == {"t4"}


def test_the_front_is_what_nothing_beats(folder):
    frame = results.points(folder)
    front = results.pareto(frame, ["latency_s", "throughput_per_s:max"])
    for _, point in frame.iterrows():
        beats = (front["latency_s"] <= point["latency_s"]) & (
            front["throughput_per_s"] >= point["throughput_per_s"]
        )
        assert beats.any()
    page = page_html(pareto_page(frame, front, ["latency_s", "throughput_per_s:max"], ""))
    assert "h100-sxm-80gb" in page
    assert "throughput_per_s" in page


def test_a_pivot_has_a_cell_for_each_pair(folder):
    frame = results.points(folder)
    table = results.pivot(frame, "device", "batch", "latency_s")
    assert table.shape == (3, 3)
    row = frame.query("device == 'l4' and batch == 8")["latency_s"].item()
    assert table.loc["l4", 8] == row


def test_a_difference_is_counted_and_its_ratio_shown(folder, tmp_path):
    frame = results.points(folder)
    assert results.diff(frame, frame).empty
    changed = frame.copy()
    changed.loc[changed["device"] == "t4", "latency_s"] *= 2
    changed.loc[0, "energy_j"] = np.nan
    changed = changed[changed["device"] != "l4"]
    table = results.diff(frame, changed).set_index("figure")
    assert table.loc["latency_s", "points_changed"] == 3
    assert table.loc["latency_s", "largest_ratio"] == pytest.approx(2.0)
    assert set(table.index) <= {"latency_s", "energy_j"}
    assert table.attrs["only_before"] == 3


def test_pandas_polars_and_duckdb_read_the_same(folder):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    parts = str(folder / "parts" / "*.parquet")
    frame = results.points(folder).sort_values("point")
    by_polars = polars.read_parquet(parts).sort("point")
    by_duckdb = duckdb.sql(f"select * from '{parts}' order by point")
    assert by_polars.columns == by_duckdb.columns == list(frame)
    assert by_polars.rows() == by_duckdb.fetchall()
    assert by_polars["point"].to_list() == frame["point"].tolist()
    for name in frame.select_dtypes("number"):
        np.testing.assert_array_equal(by_polars[name].to_numpy(), frame[name])
    query = f"select device, min(latency_s) from '{parts}' group by device order by device"
    best = frame.groupby("device")["latency_s"].min().sort_index()
    assert duckdb.sql(query).fetchall() == list(best.items())


def test_what_is_wrong_is_named(folder, tmp_path):
    frame = results.points(folder)
    for call in (
        lambda: results.top(frame, "latncy_s"),
        lambda: results.top(frame, "device"),
        lambda: results.top(frame, "latency_s", 0),
        lambda: results.pareto(frame, ["latency_s"]),
        lambda: results.pivot(frame, "device", "batch", "latency_s", "sum of squares"),
        lambda: results.diff(frame, frame.assign(point="none")),
        lambda: results.points(folder, "device=none"),
        lambda: sweep(SPEC, "", workers=1),
    ):
        with pytest.raises(InputError):
            call()
    with pytest.raises(OutputError, match="no finished points"):
        results.points(tmp_path)
    assert isinstance(frame, pd.DataFrame)


def test_points_whose_device_is_not_known_are_named_by_what_was_asked(tmp_path):
    spec = {
        "name": "s",
        "of": "serve",
        "fixed": {"model": "llama-3.1-8b", "device": "t4", "rate_per_s": 1},
        "vary": {"session": ["steps=0"]},
    }
    sweep(spec, tmp_path, workers=1)
    (row,) = results.refusals(tmp_path)
    assert row["points_count"] == 1
    assert "nan" not in row["first"]
    assert "model llama-3.1-8b" in row["first"]
    assert "session steps=0" in row["first"]
