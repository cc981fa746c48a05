"""Sweeps: every point once, as `estimate` has it, resumed after a kill, errors at their point."""

import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import accelsim
from accelsim.errors import InputError, OutputError, ProfileError
from accelsim.exploration.saved import read_result
from accelsim.exploration.sweeps import content, executors, run
from accelsim.exploration.sweeps.batch import compute
from accelsim.exploration.sweeps.content import content_hashes
from accelsim.exploration.sweeps.executors import worker_pool
from accelsim.exploration.sweeps.points import point_groups
from accelsim.exploration.sweeps.results import points
from accelsim.exploration.sweeps.run import sweep
from accelsim.exploration.sweeps.spec import load_sweep

pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parents[2]
GRID = {
    "name": "grid",
    "fixed": {"precision": "fp16"},
    "vary": {"model": ["resnet-18", "bert-base"], "device": ["t4", "l4"], "batch": [1, 2, 3]},
}


def ordered(result):
    """All points in one order."""
    return result.to_frame().sort_values("point").reset_index(drop=True)


def test_points_are_estimates_and_are_done_once(tmp_path):
    first = sweep(GRID, tmp_path, workers=1)
    assert (first.point_count, first.new_count, first.error_count) == (12, 12, 0)
    again = sweep(GRID, tmp_path, workers=1)
    assert (again.point_count, again.new_count) == (12, 0)
    table = again.to_frame()
    assert len(table) == table["point"].nunique() == 12
    row = table.query("workload == 'bert-base' and device == 'l4' and batch == 3").iloc[0]
    one = accelsim.estimate("bert-base", "l4", batch=3, precision="fp16")
    assert row["latency_s"] == pytest.approx(one.latency_s, rel=1e-9)
    more = {**GRID, "vary": {**GRID["vary"], "batch": [1, 2, 3, 4]}}
    assert sweep(more, tmp_path, workers=1).new_count == 4


@pytest.mark.parametrize("threads", [1, 2])
def test_processes_find_what_one_finds_as_copies_and_as_new_ones(tmp_path, monkeypatch, threads):
    monkeypatch.setattr(executors, "active_count", lambda: threads)
    one = ordered(sweep(GRID, tmp_path / "one", workers=1))
    assert ordered(sweep(GRID, tmp_path / "two", workers=2)).equals(one)


def test_errors_stay_at_their_points(tmp_path):
    spec = {
        "name": "some wrong",
        "method": "list",
        "points": [
            {"model": "resnet-50", "device": "t4", "batch": 1},
            {"model": "resnet-50", "device": "t4", "batch": -1},
            {"model": "resnet-50", "device": "t4", "batch": 1, "precision": "fp3"},
            {"model": "resnet-5000", "device": "t4", "batch": 1},
            {"device": "t4"},
        ],
    }
    result = sweep(spec, tmp_path, workers=1)
    assert (result.point_count, result.error_count) == (5, 4)
    reasons = sorted(result.to_frame()["reason"])
    assert reasons[0] == ""
    assert all(reasons[1:])
    assert any("fp3" in reason for reason in reasons)
    assert any("batch" in reason for reason in reasons)


def test_a_damaged_part_is_computed_again(tmp_path):
    sweep(GRID, tmp_path, workers=1)
    more = {**GRID, "vary": {**GRID["vary"], "batch": [1, 2, 3, 4]}}
    assert sweep(more, tmp_path, workers=1).new_count == 4
    whole = ordered(sweep(more, tmp_path, workers=1))
    sizes = {path.stat().st_size: path for path in (tmp_path / "parts").iterdir()}
    content = bytearray(sizes[min(sizes)].read_bytes())
    content[len(content) // 3] ^= 1  # still as long, and perhaps still a Parquet file
    sizes[min(sizes)].write_bytes(content)
    (tmp_path / "parts" / f".{sizes[min(sizes)].name}.new").write_bytes(b"left by a kill")
    mended = sweep(more, tmp_path, workers=1)
    assert mended.new_count == 4
    assert ordered(mended).equals(whole)
    with sqlite3.connect(tmp_path / "_index.sqlite") as index:  # other points of the same length
        index.execute("update part set points = zeroblob(64) where length(points) = 64")
    assert sweep(more, tmp_path, workers=1).new_count == 4
    assert ordered(sweep(more, tmp_path, workers=1)).equals(whole)


def tree(folder):
    """Every file below a folder with its content."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("named", ["parts/thesis.txt", "thesis.txt", "_lock", "_index.sqlite"])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_of_other_files_is_refused_and_left_as_it_is(tmp_path, named, is_link):
    theirs, out = tmp_path / "theirs", tmp_path / "link"
    (theirs / named).parent.mkdir(parents=True)
    (theirs / named).write_text("thesis", encoding="utf-8")
    out.symlink_to(theirs)
    before = tree(theirs)
    with pytest.raises(OutputError, match=r"another folder|new or an empty folder"):
        sweep(GRID, out if is_link else theirs, workers=1)
    assert tree(theirs) == before


def test_only_what_the_index_names_is_read_or_taken_out(tmp_path):
    """A part that was copied, a folder and a file of others, and a link to one, stay."""
    out = tmp_path / "out"
    whole = ordered(sweep(GRID, out, workers=1))
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("thesis", encoding="utf-8")
    parts = out / "parts"
    one = min(parts.iterdir())
    for name in ("copy.parquet", f"{'0' * 32}.parquet"):
        (parts / name).write_bytes(one.read_bytes())
    (parts / "thesis.txt").symlink_to(thesis)
    (parts / "deeper.parquet").mkdir()
    before = tree(out / "parts")
    again = sweep(GRID, out, workers=1)
    assert again.new_count == 0
    assert tree(out / "parts") == before
    assert ordered(again).equals(whole)
    assert len(read_result(out)) == len(whole)
    assert thesis.read_text(encoding="utf-8") == "thesis"


@pytest.mark.parametrize(
    "change",
    [
        "update part set name = '../../thesis.txt'",
        "update part set name = null",
        "update part set hash = null",
        "update part set points = null",
        (
            "create table two as select * from part union all select * from part;"
            "drop table part; alter table two rename to part"
        ),
        "drop table part",
    ],
)
def test_a_damaged_index_is_refused_and_takes_nothing_out(tmp_path, change):
    out = tmp_path / "out"
    (tmp_path / "thesis.txt").write_text("thesis", encoding="utf-8")
    sweep(GRID, out, workers=1)
    with sqlite3.connect(out / "_index.sqlite") as index:
        index.executescript(change)
    before = tree(tmp_path)
    for use in (lambda out: sweep(GRID, out, workers=1), points, read_result):
        with pytest.raises(OutputError, match=r"damaged|no such table"):
            use(out)
    assert tree(tmp_path) == before


def test_every_kept_kill_is_gone_on_with(tmp_path, monkeypatch):
    """Killed after its lock, after its empty index, and between the index and the part."""
    (tmp_path / "_lock").touch()
    (tmp_path / "_index.sqlite").touch()
    with pytest.raises(OutputError, match="no finished points"):
        points(tmp_path)
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        sweep(GRID, tmp_path, workers=1)
    monkeypatch.undo()
    assert [path.suffix for path in (tmp_path / "parts").iterdir()] == [".new"]
    with pytest.raises(OutputError, match="no finished points"):
        points(tmp_path)
    assert len(ordered(sweep(GRID, tmp_path, workers=1))) == 12
    assert {path.suffix for path in (tmp_path / "parts").iterdir()} == {".parquet"}


def killed(*_):
    raise KeyboardInterrupt


def test_another_version_is_refused_and_so_is_a_second_sweep(tmp_path):
    sweep(GRID, tmp_path, workers=1)
    with sqlite3.connect(tmp_path / "_index.sqlite") as index:
        index.execute("update about set value = '0.0.1' where name = 'version'")
    with pytest.raises(OutputError, match=r"0\.0\.1"):
        sweep(GRID, tmp_path, workers=1)
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    with pytest.raises(OutputError, match="file"):
        sweep(GRID, tmp_path / "file", workers=1)


def test_a_folder_made_before_an_edit_is_refused_by_name(tmp_path, monkeypatch):
    """Of a profile of one's own that is missing, appears, and is edited."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profile = tmp_path / "accelsim" / "devices" / "mine.yaml"
    profile.parent.mkdir(parents=True)
    text = (ROOT / "device_profiles" / "gpu" / "t4.yaml").read_text(encoding="utf-8")
    text = text.replace("name: t4\n", "name: mine\n")
    spec = {"name": "own", "vary": {"model": ["resnet-18"], "device": ["l4", "mine"]}}
    assert sweep(spec, tmp_path / "missing", workers=1).error_count == 1
    profile.write_text(text, encoding="utf-8")
    with pytest.raises(OutputError, match="before device mine changed"):
        sweep(spec, tmp_path / "missing", workers=1)
    assert sweep(spec, tmp_path / "there", workers=1).error_count == 0
    assert sweep(spec, tmp_path / "there", workers=1).new_count == 0
    profile.write_text(text + "\n# a remark\n", encoding="utf-8")
    assert sweep(spec, tmp_path / "there", workers=1).new_count == 0
    profile.write_text(text.replace("title: ", "title: edited "), encoding="utf-8")
    with pytest.raises(OutputError, match="before device mine changed"):
        sweep(spec, tmp_path / "there", workers=1)


def test_a_folder_made_with_other_prices_or_parameters_is_refused(tmp_path, monkeypatch):
    prices = tmp_path / "prices.csv"
    row = "provider,region,instance,device,on_demand_usd_per_hour,source\nme,here,one,t4,{},test\n"
    prices.write_text(row.format(0.01), encoding="utf-8")
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(prices))
    sweep(GRID, tmp_path / "out", workers=1)
    prices.write_text(row.format(0.02), encoding="utf-8")
    with pytest.raises(OutputError, match=r"before prices changed\. Sweep into another folder"):
        sweep(GRID, tmp_path / "out", workers=1)
    monkeypatch.delenv("ACCELSIM_PRICE_PATH")
    with pytest.raises(OutputError, match="before prices changed"):
        sweep(GRID, tmp_path / "out", workers=1)


def test_parameters_and_the_catalogue_of_a_scenario_are_content(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "data_root", lambda: tmp_path)
    for edited, role in (
        ("calibration/class/gpu.yaml", "parameters"),
        ("calibration/stacks/vllm.yaml", "parameters"),
        ("device_profiles/gpu/t4.yaml", "catalogue"),
        ("workloads/bert.yaml", "catalogue"),
    ):
        before = content_hashes({"scenario": ["plan.yaml"]})
        (tmp_path / edited).parent.mkdir(parents=True)
        (tmp_path / edited).write_text("edited", encoding="utf-8")
        after = content_hashes({"scenario": ["plan.yaml"]})
        assert [name for name in before if before[name] != after[name]] == [role]


def test_a_clusters_content_is_that_of_its_device_too(monkeypatch):
    before = content_hashes({"cluster": ["dgx-h100"]})
    monkeypatch.setattr(content, "device_parts", lambda device: {"device": f"edited {device.name}"})
    assert content_hashes({"cluster": ["dgx-h100"]}) != before


def test_a_full_disk_keeps_what_is_there(tmp_path):
    """Files of at most 10 kB: writing fails as on a full disk; with room it goes on."""
    code = (
        "import resource, accelsim, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))\n"
        f"accelsim.sweep({GRID!r}, {str(tmp_path)!r}, workers=1)"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "OutputError" in done.stderr
    assert len(sweep(GRID, tmp_path, workers=1).to_frame()) == 12


def test_random_points_come_from_their_ranges_and_seed():
    content = {
        "name": "random",
        "method": "random",
        "points": 50,
        "vary": {"batch": {"low": 1, "high": 1000, "scale": "log"}, "model": ["a", "b"]},
    }
    for method in ("random", "sobol", "latin-hypercube"):
        drawn = [
            keys_and_batches({**content, "method": method, "seed": seed}) for seed in (0, 0, 1)
        ]
        assert drawn[0] == drawn[1] != drawn[2]
        keys, batches = drawn[0]
        assert len(keys) == len(batches) == 50
        assert min(batches) >= 1
        assert max(batches) <= 1000
        assert np.median(batches) == pytest.approx(1000**0.5, rel=0.5)  # even on a log scale


def keys_and_batches(content):
    groups = list(point_groups(load_sweep(content)))
    keys = [key for group in groups for key in group.point_keys()]
    return keys, [int(size) for group in groups for size in group.sizes["batch"]]


def test_a_latin_hypercube_has_a_point_in_every_slice_and_sobol_is_even():
    content = {"name": "even", "points": 64, "vary": {"batch": {"low": 0, "high": 6399}}}
    content["vary"]["seq_len"] = {"low": 0, "high": 6399}
    for method in ("latin-hypercube", "sobol"):
        for group in point_groups(load_sweep({**content, "method": method})):
            for sizes in group.sizes.values():
                assert len(set(sizes // 100)) >= 62  # rounding may cross a border


def test_a_point_has_one_key_however_it_is_asked():
    asked = {"model": "bert-base", "device": "t4", "batch": 2, "precision": "fp16"}
    ways = [
        {"method": "list", "points": [{**asked, "seq_len": None}]},
        {"fixed": asked | {"batch": 3}, "vary": {"batch": [2]}},
        {
            "fixed": {"precision": "fp16", "batch": 2},
            "vary": {"model": ["bert-base"], "device": ["t4"]},
        },
        {"method": "sobol", "points": 1, "fixed": asked, "vary": {"batch": {"low": 2, "high": 2}}},
    ]
    keys = {
        key
        for way in ways
        for group in point_groups(load_sweep({"name": "one", **way}))
        for key in group.point_keys()
    }
    assert len(keys) == 1


def test_other_functions_are_swept_with_their_fields(tmp_path):
    train = {
        "name": "training",
        "of": "train",
        "fixed": {"model": "bert-base", "device": "a100-sxm-80gb", "gpus": 4, "global_batch": 64},
        "vary": {"microbatch": [1, 2, 5], "recompute": ["none", "full"]},
    }
    table = sweep(train, tmp_path / "train", workers=1).to_frame()
    assert len(table) == 6
    assert set(table.query("reason != ''")["asked_microbatch"]) == {5.0}  # 16 samples a rank
    one = accelsim.train(
        "bert-base",
        device="a100-sxm-80gb",
        gpus=4,
        global_batch=64,
        plan="recompute=full,microbatch=2",
    )
    row = table.query("asked_microbatch == 2 and asked_recompute == 'full'").iloc[0]
    assert row["iteration_s"] == one.iteration_s
    serve = {
        "name": "serving",
        "of": "serve",
        "fixed": {"model": "resnet-50", "device": "t4", "requests": 200, "intervals": False},
        "vary": {"rate_per_s": [100.0, 200.0], "max_seqs": [1, 8]},
    }
    table = sweep(serve, tmp_path / "serve", workers=1).to_frame()
    assert (table["reason"] == "").all()
    row = table.query("asked_rate_per_s == 200 and asked_max_seqs == 8").iloc[0]
    load = accelsim.Arrivals(rate_per_s=200.0, requests=200, prompt="1", output="0")
    one = accelsim.serve("resnet-50", "t4", load, max_seqs=8, intervals=False)
    assert row["e2e_s.p99"] == one.e2e_s["p99"]


def test_plans_are_swept_by_paths_into_a_scenario(tmp_path):
    from tests.capacity.test_capacity import SMALL

    (tmp_path / "small.json").write_text(json.dumps(SMALL), encoding="utf-8")
    spec = {
        "name": "plans",
        "of": "plan",
        "fixed": {"scenario": str(tmp_path / "small.json")},
        "vary": {
            "services.0.requests_per_s": [1000.0, 4000.0],
            "constraints.budget_usd_per_month": [None, 1.0],
        },
    }
    table = sweep(spec, tmp_path / "out", workers=1).to_frame()
    free = table[table["asked_constraints.budget_usd_per_month"].isna()]
    costs = free.sort_values("asked_services.0.requests_per_s")["cost_usd_per_month"]
    assert costs.is_monotonic_increasing
    poor = table[table["asked_constraints.budget_usd_per_month"].notna()]
    assert poor["conflicts"].str.contains("budget").all()


def test_a_dask_cluster_that_loses_a_worker_finds_what_one_process_finds(tmp_path):
    distributed = pytest.importorskip("distributed")
    spec = {**GRID, "vary": {**GRID["vary"], "batch": list(range(1, 1101))}}
    killed = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        first = next(iter(cluster.workers.values()))

        def kill_one(done, _total):
            if not killed:
                killed.append(done)
                os.kill(first.pid, signal.SIGKILL)

        where = cluster.scheduler_address.replace("tcp://", "dask://")
        result = sweep(spec, tmp_path / "dask", executor=where, report=kill_one)
    assert killed
    assert killed[0] < result.point_count == 4400
    local = ordered(sweep(spec, tmp_path / "local", workers=1))
    assert ordered(result).equals(local)


MANY = {**GRID, "vary": {**GRID["vary"], "batch": list(range(1, 301))}}


def test_a_process_that_is_killed_is_replaced_and_nothing_is_lost_or_twice(tmp_path):
    killed = []

    def kill_one(_done, _total):
        if not killed:
            killed.extend(multiprocessing.active_children()[:1])
            killed[0].kill()

    result = sweep(MANY, tmp_path / "killed", workers=2, report=kill_one)
    assert killed
    assert (result.point_count, result.error_count) == (1200, 0)
    assert ordered(result).equals(ordered(sweep(MANY, tmp_path / "whole", workers=1)))


@pytest.mark.parametrize("failures", [2, 3])
def test_a_batch_without_memory_is_tried_again_and_at_last_ends_the_sweep(
    tmp_path, monkeypatch, failures
):
    """Twice is mended at once; after a third time another run mends it."""
    left = [None] * failures

    def without_memory(batch):
        if left:
            left.pop()
            raise MemoryError
        return compute(batch)

    monkeypatch.setattr(run, "compute", without_memory)
    if failures == 3:
        with pytest.raises(OutputError, match="fewer workers"):
            sweep(GRID, tmp_path, workers=1)
    table = sweep(GRID, tmp_path, workers=1).to_frame()
    assert len(table) == table["point"].nunique() == 12
    assert (table["reason"] == "").all()


def test_a_cluster_that_disappears_is_named_and_gone_on_without(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address=None,
        silence_logs=50,
    ) as cluster:
        where = cluster.scheduler_address.replace("tcp://", "dask://")
        with pytest.raises(OutputError, match="disappeared"):
            sweep(MANY, tmp_path, executor=where, report=lambda *_: cluster.close())
    assert len(sweep(MANY, tmp_path, workers=1).to_frame()) == 1200


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes the certificate")
def test_a_cluster_with_tls_is_reached_by_dasks_own_configuration(tmp_path):
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    line = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out ca.pem -subj /CN=me"
    subprocess.run(["openssl", *line.split()], cwd=tmp_path, check=True, capture_output=True)
    found = {"default-scheme": "tls", "require-encryption": True}
    found["tls.ca-file"] = str(tmp_path / "ca.pem")
    for role in ("scheduler", "worker", "client"):
        found[f"tls.{role}.cert"] = str(tmp_path / "ca.pem")
        found[f"tls.{role}.key"] = str(tmp_path / "key.pem")
    options = {"n_workers": 1, "processes": False, "dashboard_address": None, "protocol": "tls://"}
    with (
        dask.config.set({f"distributed.comm.{name}": value for name, value in found.items()}),
        distributed.LocalCluster(**options, security=distributed.Security()) as cluster,
    ):
        where = cluster.scheduler_address.replace("tls://", "dask://")
        assert sweep(GRID, tmp_path / "out", executor=where).new_count == 12


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vary": {"bacth": [1]}}, "bacth"),
        ({"vary": {}}, "vary"),
        ({"method": "magic"}, "method"),
        ({"method": "random"}, "points"),
        ({"vary": {"batch": {"low": 1, "high": 2}}}, "range"),
        ({"vary": {"batch": list(range(10_001)), "seq_len": list(range(10_001))}}, "points"),
        ({"of": "serve", "vary": {"tokens": [1]}}, "tokens"),
        ({"of": "plan", "vary": {"Services 0": [1]}}, "Services"),
    ],
)
def test_what_is_wrong_is_named(change, named, tmp_path):
    with pytest.raises(ProfileError, match=named):
        load_sweep({**GRID, **change})
    with pytest.raises(InputError):
        sweep(GRID, "unused", workers=0)
    with pytest.raises(InputError, match="executor"):
        sweep(GRID, tmp_path, executor="spark://x")


def test_workers_are_not_waited_for_where_a_sweep_ends_in_an_error():
    def interrupted():
        with worker_pool("local", 2) as crew:
            running.append(crew.executor.submit(time.sleep, 600))
            raise KeyboardInterrupt

    running = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert isinstance(running[0].exception(), BrokenProcessPool)


@pytest.mark.parametrize("wait_s", [0.2, 0.4, 0.6])
def test_workers_that_end_while_they_write_an_answer_hold_nobody_up(wait_s):
    """Most answers of 200 MB are half written at these times."""

    def interrupted():
        with suppress(KeyboardInterrupt), worker_pool("local", 2) as crew:
            for _ in range(8):
                crew.executor.submit(bytes, 200_000_000)
            time.sleep(wait_s)
            raise KeyboardInterrupt

    ended = Thread(target=interrupted, daemon=True)
    ended.start()
    ended.join(300.0)
    assert not ended.is_alive()


@pytest.mark.parametrize("method", ["grid", "random"])
def test_points_of_a_large_sweep_take_few_bytes_before_the_first_answer(method):
    sizes = {"batch": [*range(1, 501)], "seq_len": [*range(1, 601)]}
    ranges = {name: {"low": 1, "high": len(values)} for name, values in sizes.items()}
    content = {"name": "large", "method": method, "vary": sizes if method == "grid" else ranges}
    spec = load_sweep(content if method == "grid" else {**content, "points": 300_000})
    tracemalloc.start()
    todo = run._Todo.of(spec, [])
    first = next(todo.batches(lambda: 1, {}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 1000 < len(first.keys) <= 1024
    assert todo.count == (300_000 if method == "grid" else pytest.approx(190_000, rel=0.01))
    assert peak < 100 * spec.count


def test_draws_keep_whole_numbers_of_any_size_and_sign():
    for low, high in ((-(2**40), 2**40), (2**40, 2**53), (-5, 5)):
        spec = load_sweep(
            {
                "name": "wide",
                "method": "random",
                "points": 20,
                "vary": {"batch": {"low": low, "high": high}},
            }
        )
        drawn = [
            int(batch)
            for group in point_groups(spec)
            for batch in group.sizes.get("batch", [group.fields.get("batch")])
        ]
        assert all(low <= batch <= high for batch in drawn)
        assert max(abs(batch) for batch in drawn) > high / 2
