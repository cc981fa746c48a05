"""Measuring: timers on stand-ins, every operator on tiny shapes, and what happens when a case
cannot run.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from accelsim.calibration import run_measurement as entry  # noqa: E402
from accelsim.calibration.measurement import timing as timing_module  # noqa: E402
from accelsim.calibration.measurement.case import Case  # noqa: E402
from accelsim.calibration.measurement.operators import BUILDERS, OperandPool, build_call, prepare  # noqa: E402
from accelsim.calibration.measurement.session import Session  # noqa: E402
from accelsim.calibration.measurement.suite import operator_suite  # noqa: E402
from accelsim.calibration.measurement.timing import CpuTimer, CudaTimer, Timing  # noqa: E402
from accelsim.calibration.noise import refuse_noise  # noqa: E402
from accelsim.calibration.run_file import Measurement, RunFile, read_run  # noqa: E402
from accelsim.errors import InvalidValueError, MissingDependencyError, OutputError  # noqa: E402

pytestmark = pytest.mark.torch
REPOSITORY = Path(__file__).parents[2]


class FakeCuda:
    """A device whose clock moves by a known time per call, recorded by events as
    torch.cuda's are.
    """

    def __init__(self, times_ms):
        self.now_ms, self.times_ms, self.calls, self.synchronized = 0.0, times_ms, 0, 0
        fake = self

        class Event:
            def __init__(self, *, enable_timing):
                assert enable_timing

            def record(self):
                self.at = fake.now_ms

            def synchronize(self):
                fake.synchronized += 1

            def elapsed_time(self, other):
                return other.at - self.at

        self.Event = Event

    def synchronize(self):
        self.synchronized += 1

    def call(self):
        self.now_ms += self.times_ms(self.calls)
        self.calls += 1


def test_cuda_timer_takes_the_median_of_blocks_after_warming_up():
    fake = FakeCuda(
        lambda n: 100.0 if n < 3 else 5.0 if n % 50 == 0 else 0.5
    )  # slow first calls, rare spikes
    timing = CudaTimer(fake).measure([fake.call], 0.02)
    assert timing.time_s == pytest.approx(0.5e-3, rel=0.3)
    assert timing.block_count >= 7
    assert timing.minor_faults is None
    assert fake.synchronized > timing.block_count


def test_cuda_timer_rotates_operands():
    seen = []
    fake = FakeCuda(lambda _: 3.0)
    calls = [lambda i=i: (seen.append(i), fake.call()) for i in range(5)]
    CudaTimer(fake).measure(calls, 0.02)
    assert set(seen) == set(range(5))


class Clock:
    """Time that passes only in what takes it: of the processor, and waited beside it."""

    def __init__(self):
        self.cpu_s = self.waited_s = 0.0

    def pass_by(self, cpu_s, waited_s=0.0):
        self.cpu_s += cpu_s
        self.waited_s += waited_s

    def thread_time(self):
        return self.cpu_s

    def perf_counter(self):
        return self.cpu_s + self.waited_s


@pytest.fixture
def clock(monkeypatch):
    """What timers read; other programs take no core."""
    undisturbed = SimpleNamespace(ru_nivcsw=0, ru_minflt=0)
    usage = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: undisturbed)
    monkeypatch.setattr(timing_module, "resource", usage)
    monkeypatch.setattr(timing_module, "time", clock := Clock())
    return clock


def test_cpu_timer_counts_calls_and_cycles_through_them(clock):
    seen = []
    calls = [lambda i=i: (seen.append(i), clock.pass_by(1e-5)) for i in range(7)]
    timing = CpuTimer(1).measure(calls, 0.0045)
    assert seen[13:] == [(1 + i) % 7 for i in range(500)]  # blocks of 1 ms, after 1 + 12 to try
    assert timing.block_count == 5
    assert (timing.time_s, timing.mean_s) == pytest.approx((1e-5, 1e-5))
    assert timing.noise_fraction == pytest.approx(0.0)


def test_cpu_timer_ignores_time_spent_waiting(clock):
    timing = CpuTimer(1).measure([lambda: clock.pass_by(1e-4, waited_s=0.004)], 0.02)
    assert timing.time_s == pytest.approx(1e-4)


@pytest.mark.parametrize(("call_s", "blocks"), [(0.05, 1), (0.01, 2), (0.002, 3)])
def test_cpu_timer_spends_no_repeats_on_calls_far_longer_than_its_budget(clock, call_s, blocks):
    assert CpuTimer(1).measure([lambda: clock.pass_by(call_s)], 0.004).block_count == blocks


def test_amid_others_each_call_is_timed_after_other_work(clock):
    order, slow = [], itertools.cycle([0.0, 0.0, 0.0, 0.0, 0.002])

    def advance(name, time_s):
        clock.pass_by(time_s)
        order.append(name)

    timing = CpuTimer(1).measure_amid(
        [lambda: advance("call", 0.001 + next(slow))], lambda: advance("other", 0.01), 0.11
    )
    # ten calls of 1 ms, each fifth of 3 ms; the other work counts towards the budget alone
    assert order == ["other", "call"] * 10
    assert timing.block_count == 10
    assert timing.time_s == pytest.approx(0.001)
    assert timing.mean_s == pytest.approx(0.0014)


def test_blocks_during_which_threads_waited_are_not_calm():
    block = timing_module._Block(1.0, 1.0, switches=9, faults=0, waited_s=0.001)
    assert block.is_calm
    assert not replace(block, waited_s=0.1).is_calm
    assert not replace(block, waited_s=None).is_calm
    assert replace(block, waited_s=None, switches=0).is_calm


SMALLEST = {}
for case in operator_suite("cpu", ("fp32",), (1,)):
    size = 1.0
    for value in case.shape.values():
        size *= max(value, 1)
    if case.operator not in SMALLEST or size < SMALLEST[case.operator][0]:
        SMALLEST[case.operator] = (size, case)


@pytest.fixture(scope="module")
def pool():
    return OperandPool("cpu")


@pytest.mark.parametrize("operator", sorted(SMALLEST))
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_every_operator_of_the_suite_runs(pool, operator, dtype):
    case = replace(SMALLEST[operator][1], dtype=dtype)
    with torch.set_grad_enabled(True):
        build_call(case, pool)()


def test_cold_calls_have_weights_of_their_own(pool):
    case = Case("gemv", "addmm", {"m": 1, "n": 2048, "k": 2048}, cold=True)
    calls = prepare(case, pool).calls
    assert len(calls) >= 2
    assert len(calls) * 4 * 2048 * 2048 >= 64 * 2**20
    assert not torch.equal(calls[0](), calls[1]())


def test_inputs_are_written_again_weights_are_not(pool):
    prepared = prepare(Case("gemm", "addmm", {"m": 8, "n": 16, "k": 32}), pool)
    assert [tuple(x.shape) for x in prepared.inputs] == [(8, 32)]
    before = prepared.calls[0]()
    prepared.inputs[0].mul_(2.0)
    assert not torch.equal(prepared.calls[0](), before)


def test_a_cpu_case_gives_a_row_alone_and_a_row_amid_others(tmp_path):
    file = RunFile(tmp_path / "run.jsonl", {"device": "cpu"}, {"device": "cpu"}, resume=True)
    Session("cpu", file, rounds=1).measure(
        [CASES[0], Case("framework", "compiled_call", {"count": 1}, execution="compiled")], 600.0
    )
    file.close()
    rows = read_run(tmp_path / "run.jsonl").rows
    assert [(m.case.operator, m.case.amid) for m in rows] == [
        ("relu", False),
        ("relu", True),
        ("compiled_call", False),
    ]
    assert len({m.case.key for m in rows}) == 3
    assert all(m.time_s > 0 for m in rows)


def test_data_are_random_never_zeros(pool):
    values = pool.take(torch.float32, 10_000)
    assert 0.9 < float(values.std()) < 1.1
    assert int((values == 0).sum()) == 0


class FixedTimer:
    """Reads the same times again and again."""

    def __init__(self, *times_s):
        self.times_s = itertools.cycle(times_s or (1e-3,))

    def measure(self, calls, _budget_s):
        calls[0]()
        time_s = next(self.times_s)
        return Timing(time_s, time_s, 0.0, 3, 0.0, True)


def session(tmp_path, *times_s, **options):
    file = RunFile(tmp_path / "run.jsonl", {"device": "cpu"}, {"device": "cpu"}, resume=True)
    timer = FixedTimer(*times_s)
    return Session("cpu", file, timer=lambda _threads: timer, **{"rounds": 1, **options}), file


CASES = [Case("elementwise", "relu", {"elements": n}) for n in (10, 20, 30)]


def test_session_writes_every_row_and_its_noise(tmp_path):
    seen = []
    running, file = session(tmp_path, report=seen.append)
    assert running.measure(CASES, 600.0) == 3
    file.close()
    run = read_run(tmp_path / "run.jsonl")
    assert [m.case.shape["elements"] for m in run.rows] == [10, 20, 30]
    assert [p.completed for p in seen] == [1, 2, 3]


@pytest.mark.parametrize(
    ("times_s", "is_refused"), [((1e-3, 1.05e-3), False), ((1e-3, 1.6e-3, 1.6e-3), True)]
)
def test_a_run_on_a_disturbed_clock_is_refused(tmp_path, times_s, is_refused):
    running, file = session(tmp_path, *times_s)
    running.measure([Case("elementwise", "relu", {"elements": n}) for n in range(1, 200)], 600.0)
    file.close()
    refused = pytest.raises(InvalidValueError, match=r"machine noise.*--despite-noise")
    with refused if is_refused else nullcontext():
        refuse_noise(read_run(tmp_path / "run.jsonl"))


def test_times_of_a_clock_that_steps_back_are_left_out(tmp_path):
    running, file = session(tmp_path, -1e-3, 1e-3)
    running.measure(CASES, 600.0)
    file.close()
    run = read_run(tmp_path / "run.jsonl")
    assert {row.time_s for row in run.rows} == {None, 1e-3}
    assert "clock did not move forward" in str([row.skipped for row in run.rows])
    refuse_noise(run)


def test_resuming_measures_only_what_is_left(tmp_path):
    running, file = session(tmp_path)
    running.measure(CASES[:2], 600.0)
    file.close()
    running, file = session(tmp_path)
    assert running.measure(CASES, 600.0) == 1
    file.close()
    assert len(read_run(tmp_path / "run.jsonl").rows) == 3


def test_every_case_of_the_suite_is_known_again_in_its_file(tmp_path):
    cases = operator_suite("cpu", ("fp32", "bf16"), (1, 2))
    with RunFile(tmp_path / "run.jsonl", {"device": "cpu"}, {"device": "cpu"}) as file:
        for case in cases:
            file.append(Measurement(case, 1e-3, 0.0, 0, {}))
    running, file = session(tmp_path)
    assert running.measure(cases, 600.0) == 0
    file.close()


def test_an_interrupt_keeps_what_was_measured(tmp_path):
    def stop(progress):
        if progress.completed == 2:
            raise KeyboardInterrupt

    running, file = session(tmp_path, report=stop)
    with pytest.raises(KeyboardInterrupt), file:
        running.measure(CASES, 600.0)
    assert len(read_run(tmp_path / "run.jsonl").rows) == 2


def test_out_of_memory_halves_the_case_and_notes_it(tmp_path, monkeypatch):
    def build(source):
        if source.shape["elements"] > 300:
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"
            )
        return lambda: None

    monkeypatch.setitem(BUILDERS, "relu", build)
    running, file = session(tmp_path)
    running.measure([Case("elementwise", "relu", {"elements": 1000})], 600.0)
    file.close()
    (row,) = read_run(tmp_path / "run.jsonl").rows
    assert row.case.shape == {"elements": 250}
    assert row.details["shrunk_from"] == {"elements": 1000}


def test_cases_measured_later_run_on_their_threads_too(tmp_path, monkeypatch):
    seen = []

    def build(_source):
        seen.append(torch.get_num_threads())
        return lambda: None

    monkeypatch.setitem(BUILDERS, "relu", build)
    running, file = session(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for elements in (100, 200):  # in between the caller has its own threads back
            running.measure([Case("elementwise", "relu", {"elements": elements}, threads=1)], 600.0)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
        file.close()
    assert set(seen) == {1}


def test_a_kernel_that_raises_is_skipped_by_name(tmp_path, monkeypatch):
    def build(_source):
        raise RuntimeError("not implemented for 'BFloat16'")

    monkeypatch.setitem(BUILDERS, "relu", build)
    running, file = session(tmp_path)
    running.measure(
        [
            CASES[0],
            Case("x", "no_such_operator", {"elements": 1}),
            Case("elementwise", "tanh", {"elements": 5}),
        ],
        600.0,
    )
    file.close()
    rows = read_run(tmp_path / "run.jsonl").rows
    assert [m.skipped is None for m in rows] == [False, False, True]
    assert "BFloat16" in rows[0].skipped
    assert "no_such_operator" in rows[1].skipped


def test_the_budget_is_kept(tmp_path):
    now = iter(range(10**6))
    running, file = session(tmp_path, clock=lambda: next(now) * 1.0)
    many = [Case("elementwise", "relu", {"elements": n}) for n in range(1, 500)]
    assert running.measure(many, 30.0) < 40
    file.close()


def test_a_budget_too_short_for_repeats_goes_to_further_cases(tmp_path):
    now = iter(range(10**6))
    running, file = session(tmp_path, clock=lambda: next(now) * 1.0, rounds=2)
    cases = [Case("elementwise", "relu", {"elements": n}) for n in range(1, 500)]
    running.measure(cases, 30.0)
    file.close()
    rows = read_run(tmp_path / "run.jsonl").rows
    assert {row.round_number for row in rows} == {0}
    assert len({row.case.key for row in rows}) == len(rows) > 10


def test_devices_threads_and_formats_are_checked():
    with pytest.raises(InvalidValueError, match=r"cuda:7.*cpu"):
        entry.check_device(torch, "cuda:7")
    with pytest.raises(InvalidValueError, match="tpu"):
        entry.check_device(torch, "tpu")
    with pytest.raises(InvalidValueError, match="threads"):
        entry.check_threads((10_000,), "cpu")
    with pytest.raises(InvalidValueError, match="fp13"):
        entry.check_dtypes(torch, ("fp13",), "cpu")
    assert entry.check_threads((), "cuda:0") == (0,)


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("5m", 300), ("1h", 3600), ("90", 90)])
def test_budgets(text, seconds):
    assert entry.parse_budget_s(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "1s", "-5m", "nan", "1e9", "5 apples"])
def test_wrong_budgets(text):
    with pytest.raises(InvalidValueError, match="budget"):
        entry.parse_budget_s(text)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"accelsim\[torch\]"):
        entry.measure(entry.MeasureSettings("cpu", (), (), 60.0, 1, Path("unused")))


def test_an_unwritable_place_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        RunFile(tmp_path / "file" / "run.jsonl", {}, {})


def test_measuring_imports_torch_and_the_standard_library_alone():
    code = (
        "import sys; import accelsim.calibration.run_measurement as m, "
        "accelsim.calibration.measurement.session, accelsim.calibration.environment, "
        "accelsim.calibration.energy, accelsim.calibration.model_timer; "
        "bad = {'pydantic', 'yaml', 'scipy', 'pandas', 'simpy', 'rich', 'typer'}; "
        "print(sorted(bad & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def test_the_program_reports_wrong_input_with_code_2(capsys):
    assert entry.main(["--device", "cuda:99"]) == 2
    assert "cuda:99" in capsys.readouterr().err
    assert entry.main(["--budget", "never"]) == 2
