"""Sweeps killed at random moments: no point lost, none there twice, no process left.

A few kills, or with ``FUZZ_SECONDS`` 60 of a sweep with its workers and 20 on a Dask cluster.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accelsim.errors import OutputError
from accelsim.exploration.sweeps.results import points
from accelsim.exploration.sweeps.run import sweep

pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parents[2]
_IS_LONG = bool(os.environ.get("FUZZ_SECONDS"))
_SEED = os.environ.get("FUZZ_SEED", "0")
#: How long the processes of a sweep may outlive it.
_GONE_S = 120.0
_POINTS = 36_000 if _IS_LONG else 7200
SPEC = f"""
name: killed
vary:
  model: [resnet-18, mobilenet-v2, bert-base]
  device: [t4, l4, a10g, v100-sxm2-16gb, a100-sxm-40gb, h100-sxm-80gb]
  batch: {list(range(1, _POINTS // 18 + 1))}
"""


def ordered(folder):
    """All points of a folder in one order."""
    return points(folder).sort_values("point").reset_index(drop=True)


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("killed") / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(spec):
    out = spec.parent / "whole"
    assert sweep(spec, out, workers=1).point_count == _POINTS
    return ordered(out)


def started(spec, out, *options):
    """A sweep in a process of its own; all that it starts hold its pipe."""
    command = [sys.executable, "-m", "accelsim.cli", "sweep", spec, "--out", out, "-q", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def said_to_its_end(process):
    """What a process and all that it started said, once none of them is left."""
    pipe, said, end = process.stdout, b"", time.monotonic() + _GONE_S
    while select.select([pipe], [], [], max(end - time.monotonic(), 0.0))[0]:
        block = os.read(pipe.fileno(), 65536)
        if not block:
            pipe.close()
            return process.wait(), said.decode()
        said += block
    raise AssertionError(f"a process of {process.args} outlives it: {said.decode()}")


def killed(process, sent):
    """Whether a sweep was killed, not finished before; it left nothing behind."""
    process.send_signal(sent)
    code, said = said_to_its_end(process)
    if code == 0:
        return False
    assert code in {-sent, 128 + sent}, said
    assert "Traceback" not in said or sent == signal.SIGKILL, said
    return True


def check_as_far_as_it_is(out, whole):
    """Each finished point is there once, with the figures of a sweep that was not killed."""
    try:
        found = ordered(out)
    except OutputError as error:
        assert "no finished points" in str(error)  # noqa: PT017  (one of two ways it may go)
        return
    assert found["point"].is_unique
    same = whole[whole["point"].isin(found["point"])].reset_index(drop=True)
    assert found.equals(same)


def check_to_the_end(spec, out, whole):
    """Gone on with, it is the sweep that was not killed."""
    assert sweep(spec, out, workers=1).point_count == _POINTS
    assert ordered(out).equals(whole)


class Moments:
    """Moments of kills: most of them before a sweep ends, some while it starts."""

    def __init__(self, name):
        self.draw = random.Random(f"{name} {_SEED}")
        self.longest_s = 5.0
        self.kills = self.runs = 0

    def wait(self):
        time.sleep(self.draw.uniform(0.1, 1.0) * self.longest_s)

    def note(self, was_killed):
        """Later after a sweep that was killed, earlier after one that was not."""
        self.runs += 1
        self.kills += was_killed
        self.longest_s *= 1.1 if was_killed else 0.8


def report(capfd, moments):
    with capfd.disabled():
        told = f"{moments.kills} kills in {moments.runs} sweeps of {_POINTS:,} points"
        sys.stdout.write(f"\n{told}: none lost, none twice, no process left\n")


def test_a_killed_sweep_loses_nothing_and_leaves_no_process(spec, whole, tmp_path, capfd):
    moments, folder = Moments("sweep"), 0
    while moments.kills < (60 if _IS_LONG else 3):
        out = tmp_path / str(folder)
        process = started(spec, out, "--workers", "2")
        moments.wait()
        was_killed = killed(process, (signal.SIGKILL, signal.SIGTERM)[moments.runs % 2])
        moments.note(was_killed)
        check_as_far_as_it_is(out, whole)
        if not was_killed or not moments.kills % 5:
            check_to_the_end(spec, out, whole)
            folder += 1
    check_to_the_end(spec, tmp_path / str(folder), whole)
    report(capfd, moments)


def processes_of(cluster):
    """Numbers of the processes that answer."""
    return [worker.process.pid for worker in cluster.workers.values() if worker.pid]


def test_a_killed_client_and_workers_of_dask_lose_nothing(spec, whole, tmp_path, capfd):
    distributed = pytest.importorskip("distributed")
    moments, folder, lost = Moments("dask"), 0, 0
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    numbers = []
    while moments.kills < (20 if _IS_LONG else 1):
        out = tmp_path / str(folder)
        with distributed.LocalCluster(**options, silence_logs=50) as cluster:
            where = cluster.scheduler_address.replace("tcp://", "dask://")
            process = started(spec, out, "--executor", where)
            moments.wait()
            for number in processes_of(cluster)[: moments.runs % 3]:
                os.kill(number, signal.SIGKILL)
                lost += 1
            time.sleep(moments.draw.uniform(0.0, 0.5))
            was_killed = killed(process, moments.draw.choice((signal.SIGKILL, signal.SIGTERM)))
            numbers += processes_of(cluster)
        moments.note(was_killed)
        check_as_far_as_it_is(out, whole)
        if not was_killed or not moments.kills % 5:
            check_to_the_end(spec, out, whole)
            folder += 1
    check_to_the_end(spec, tmp_path / str(folder), whole)
    assert not [number for number in numbers if Path(f"/proc/{number}").exists()]
    assert lost or not _IS_LONG
    report(capfd, moments)
