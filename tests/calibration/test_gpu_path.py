"""A calibration of ``cuda:0`` from the first probe to the check of whole models, on a GPU that is
not there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

import fake_gpu  # noqa: E402

from accelsim.calibration import check, energy, model_timer  # noqa: E402
from accelsim.calibration import run_measurement as measure  # noqa: E402
from accelsim.calibration.check_models import CHECK_MODELS  # noqa: E402
from accelsim.calibration.gpu_check import gpu_check_list  # noqa: E402
from accelsim.calibration.gpu_fit import fit_gpu_run, gpu_profile, shipped_parameters  # noqa: E402
from accelsim.calibration.measurement import cuda, power, suite  # noqa: E402
from accelsim.calibration.measurement.case import Case  # noqa: E402
from accelsim.calibration.measurement.operators import BUILDERS  # noqa: E402
from accelsim.calibration.measurement.plan import read_plans  # noqa: E402
from accelsim.calibration.measurement.session import Session  # noqa: E402
from accelsim.calibration.measurement.suite import operator_suite  # noqa: E402
from accelsim.calibration.measurement.timing import CudaTimer  # noqa: E402
from accelsim.calibration.run_file import RunFile, read_run  # noqa: E402
from accelsim.cli import main  # noqa: E402
from accelsim.errors import InvalidValueError  # noqa: E402

pytestmark = pytest.mark.torch
SHAPES, COPIES, GRAPH_CALLS = 4, 4, 16


def short(plan):
    """The plan with few shapes; recurrent layers, which fall to pieces on meta tensors, with few
    steps.
    """
    steps = {"steps": "2"} if "steps" in plan.dimensions else {}
    return replace(plan, count=min(plan.count, SHAPES), dimensions={**plan.dimensions, **steps})


@pytest.fixture(scope="module")
def gpu():
    """The stand-in in torch's place, a short suite, and readings that take no second."""
    fake = fake_gpu.FakeGpu()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "cuda", fake)
        patch.setattr(torch, "Generator", fake_gpu.Generator)
        patch.setitem(sys.modules, "pynvml", fake_gpu.fake_nvml())
        plans = [short(plan) for plan in read_plans()]
        patch.setattr(suite, "read_plans", lambda: plans)
        patch.setattr(torch, "compile", lambda function: function)
        patch.setattr(CudaTimer, "BLOCK_S", 4e-5)
        least = CudaTimer.measure
        patch.setattr(CudaTimer, "measure", lambda self, calls, _budget_s: least(self, calls, 0.0))
        patch.setattr(cuda, "_MOST_COPIES", COPIES)
        patch.setattr(cuda.captured, "__defaults__", (GRAPH_CALLS,))
        patch.setattr(energy.time_and_energy, "__defaults__", (0.02,))
        patch.setattr(power, "_WARM_UP_S", 1e-4)
        patch.setattr(power, "_READ_S", 1e-3)
        with fake_gpu.OnMeta(fake), fake_gpu.Clock(fake):
            yield fake


@pytest.fixture(scope="module")
def folder(gpu, tmp_path_factory):
    """A measured run in a folder."""
    path = tmp_path_factory.mktemp("gpu")
    options = "--device cuda:0 --budget 6h --rounds 1 --dtypes fp32,bf16 --out"
    assert measure.main([*options.split(), str(path / "run.jsonl")]) == 0
    return path


def accelsim(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return stop.value.code


def test_the_whole_suite_is_measured(gpu, folder):
    run = read_run(folder / "run.jsonl")
    assert gpu.set_to == "cuda:0"
    assert [row.skipped for row in run.rows if row.skipped] == []
    families = {plan.family for plan in read_plans() if "cuda" in plan.devices}
    assert {row.case.family for row in run.rows} == families
    assert {row.case.execution for row in run.rows} == {"eager", "graph", "compiled"}
    assert {row.case.operator for row in run.rows if row.case.family == "transfer"} == {
        "host_to_device",
        "device_to_host",
    }
    assert run.environment["device_name"] == "NVIDIA H200"
    assert run.environment["driver_version"] == "570.1"
    assert run.environment["power_limit_w"] == 700.0


def test_graphs_show_kernels_and_eager_calls_the_host(folder):
    best = {
        (row.case.label, row.case.dtype, row.case.execution): row.time_s
        for row in read_run(folder / "run.jsonl").rows
        if "energy_j" not in row.details
    }
    small = min(
        (key for key in best if key[0].startswith("relu") and key[2] == "graph"),
        key=lambda key: best[key],
    )
    assert best[small] == pytest.approx(
        fake_gpu.START_S + fake_gpu.GAP_S + fake_gpu.LAUNCH_S / GRAPH_CALLS, rel=0.05
    )
    assert best[(*small[:2], "eager")] == pytest.approx(fake_gpu.ISSUE_S, rel=0.05)


def test_tf32_is_set_for_its_cases_alone(gpu, tmp_path):
    before = torch.backends.cudnn.allow_tf32
    case = Case("gemm", "addmm", {"m": 4096, "n": 4096, "k": 4096}, "fp32", 0, execution="graph")
    with RunFile(tmp_path / "run.jsonl", {}, {"device": "cuda:0"}) as file:
        Session("cuda:0", file, rounds=1).measure(
            [replace(case, dtype=name) for name in ("fp32", "tf32", "bf16")], 600.0
        )
    plain, short, half = (row.time_s for row in read_run(tmp_path / "run.jsonl").rows)
    assert plain == pytest.approx(2 * 4096**3 / fake_gpu.FLOP_PER_S["fp32"], rel=0.1)
    assert short == pytest.approx(2 * 4096**3 / fake_gpu.FLOP_PER_S["tf32"], rel=0.1)
    assert half < short
    assert torch.backends.cudnn.allow_tf32 is before


@pytest.fixture(scope="module")
def fitted(folder):
    """The run's fit, made once."""
    run = read_run(folder / "run.jsonl")
    return fit_gpu_run(run, gpu_profile(run.environment))


def test_the_fit_finds_the_device_behind_the_run(fitted):
    run = fitted.run
    profile = gpu_profile(run.environment)
    numbers = fitted.overlay.parameters
    assert numbers["dispatch.elementwise_s"] == pytest.approx(fake_gpu.ISSUE_S, rel=0.05)
    assert numbers["host.copy_latency_s"] == pytest.approx(fake_gpu.LINK_S, rel=0.2)
    link = numbers["host.link_efficiency"] * profile.host_link.bandwidth_bytes_per_s.value
    assert link == pytest.approx(fake_gpu.LINK_BYTES_PER_S, rel=0.1)
    total = next(row for row in fitted.errors if row["family"] == row["dtype"] == "all")
    assert total["rows"] >= 60
    before = fit_errors(run, profile)
    assert total["median_fraction"] < 0.6 * before


def fit_errors(run, profile):
    """Median error of the parameters that ship on the rows the fit has not seen."""
    from accelsim.calibration import gpu_fit

    graph_rows = [row for row in run.best().values() if row.row and row.case.execution == "graph"]
    rows = gpu_fit._replayed(graph_rows)
    left_out = [row for row in rows if not row.case.fold]
    cells = gpu_fit._cells(left_out, profile, "")
    held_out = gpu_fit._held_out(left_out, cells, shipped_parameters(profile))
    errors = held_out.error_rows(gpu_fit._error_groups)
    return next(row["median_fraction"] for row in errors if row["family"] == row["dtype"] == "all")


def test_calibrate_fits_freezes_checks_and_other_commands_use_it(
    gpu, folder, fitted, monkeypatch, capsys
):
    def same_fit(run, profile, **_settings):
        assert (run.digest, profile) == (fitted.run.digest, gpu_profile(fitted.run.environment))
        return fitted

    monkeypatch.setattr("accelsim.calibration.gpu_fit.fit_gpu_run", same_fit)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    home = folder / "config" / "accelsim" / "calibration"
    few = [c for c in gpu_check_list(["fp32", "bf16"]) if c.model in {"text-cnn", "dlrm"}]
    monkeypatch.setattr("accelsim.calibration.gpu_check.gpu_check_list", lambda _dtypes: few)
    asked = ("calibrate", "--from", str(folder / "run.jsonl"), "--out", str(home))
    assert accelsim(*asked) == 2  # its times are no GPU's
    assert "held-out error" in capsys.readouterr().err
    assert accelsim(*asked, "--despite-noise") == 0
    assert "held out: MAPE" in capsys.readouterr().out
    (home / "run.jsonl").write_bytes((folder / "run.jsonl").read_bytes())

    def in_this_process(case, budget_s, device):
        if case.execution == "compiled":
            raise check.MeasurementError(f"{case.key}: no triton")
        timing, energy_j = model_timer.time_model(
            {name: getattr(case, name) for name in case.__dataclass_fields__}
            | {"budget_s": 0.01, "device": device}
        )
        return timing.time_s, timing.noise_fraction, energy_j, None

    monkeypatch.setattr("accelsim.calibration.check.measure_model", in_this_process)
    assert accelsim("calibrate", "check", "--out", str(home)) == 0
    printed = capsys.readouterr()
    assert "inference:" in printed.out
    assert "training:" in printed.out
    report = (home / "report.md").read_text()
    assert "no triton" in report
    assert "## Energy" in report
    rows = json.loads((home / "results.json").read_text())["results"]
    assert {row["execution"] for row in rows if row["measured_s"]} == {"eager", "graph"}
    assert all(row["predicted_j"] > 0 for row in rows)
    assert accelsim("estimate", "resnet-50", "--device", "h200-sxm", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["tier"] == "fitted"


def test_operands_rotate_past_the_cache(gpu):
    def build():
        x = torch.randn(2**20, device="cuda:0")
        return lambda: x

    calls = cuda.rotated(gpu, "cuda:0", build)
    assert len({id(call()) for call in calls}) == len(calls)
    assert len(calls) == COPIES


def test_large_operands_take_two_copies(gpu):
    assert len(cuda.rotated(gpu, "cuda:0", lambda: torch.randn(2**28, device="cuda:0").clone)) == 2


def test_a_clock_that_does_not_move_is_no_time(gpu, tmp_path):
    with (
        pytest.MonkeyPatch.context() as patch,
        RunFile(tmp_path / "run.jsonl", {}, {"device": "cuda:0"}) as file,
    ):
        patch.setitem(BUILDERS, "tanh", lambda _source: lambda: None)
        Session("cuda:0", file, rounds=1).measure(
            [Case("elementwise", "tanh", {"elements": 64}, "fp32", 0)], 2.0
        )
    (row,) = read_run(tmp_path / "run.jsonl").rows
    assert row.skipped == "the clock did not move forward"


def test_a_call_that_cannot_be_captured_is_skipped_by_name(gpu, tmp_path):
    with (
        pytest.MonkeyPatch.context() as patch,
        RunFile(tmp_path / "run.jsonl", {}, {"device": "cuda:0"}) as file,
    ):
        patch.setitem(
            BUILDERS,
            "tanh",
            lambda _source: gpu.synchronize,
        )
        cases = [
            Case("elementwise", name, {"elements": 64}, "fp32", 0, execution="graph")
            for name in ("tanh", "exp")
        ]
        Session("cuda:0", file, rounds=1).measure(cases, 2.0)
    failed, fine = read_run(tmp_path / "run.jsonl").rows
    assert "stream is capturing" in failed.skipped
    assert gpu.current is gpu.main
    assert fine.time_s is not None


def test_the_suite_of_a_gpu(monkeypatch):
    monkeypatch.setattr(suite, "read_plans", read_plans)
    cases = operator_suite("cuda", ("fp32", "tf32", "bf16"), (0,), ("eager", "graph"))
    assert not any(case.cold for case in cases)
    captured = {case.operator for case in cases if case.execution == "graph"}
    assert not captured & suite.UNCAPTURED_OPERATORS
    assert {case.family for case in cases if case.dtype == "tf32"} == {
        case.family for case in cases if suite.has_matrix_products(case.family)
    }
    counts = {}
    for case in cases:
        if case.family != "routing":
            counts.setdefault(case.family, set()).add(case.label)
    assert min(map(len, counts.values())) >= 30
    flop = [2.0 * c.shape["m"] * c.shape["n"] * c.shape["k"] for c in cases if c.family == "gemm"]
    assert max(flop) > 2e10  # 30 us on the fastest board there is


@pytest.mark.parametrize(
    ("capability", "hip", "formats"),
    [
        ((9, 0), None, ("fp32", "tf32", "bf16")),
        ((7, 5), None, ("fp32", "fp16")),
        ((9, 4), "6.2", ("fp32", "bf16")),
    ],
)
def test_formats_follow_the_generation(gpu, monkeypatch, capability, hip, formats):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(gpu, "get_device_capability", lambda _device: capability)
    assert measure.check_dtypes(torch, (), "cuda:0") == formats


def test_tf32_is_no_format_of_a_cpu():
    with pytest.raises(InvalidValueError, match="tf32"):
        measure.check_dtypes(torch, ("tf32",), "cpu")


def test_a_gpu_the_catalogue_lacks_says_what_to_do():
    with pytest.raises(InvalidValueError, match=r"Abacus.*--name"):
        gpu_profile({"device_name": "NVIDIA Abacus"})
    assert gpu_profile({"device_name": "NVIDIA Abacus"}, "t4").name == "t4"
    with pytest.raises(InvalidValueError, match="a GPU of the catalogue"):
        gpu_profile({"device_name": "NVIDIA T4"}, "epyc-9654")


def test_the_check_list_spans_what_the_guide_says():
    cases = gpu_check_list(["fp32", "tf32", "bf16"])
    assert {case.model for case in cases} <= set(CHECK_MODELS)
    assert len({case.model for case in cases if not case.is_training}) >= 12
    assert {case.dtype for case in cases} == {"fp32", "tf32", "bf16"}
    assert len({case.batch for case in cases if case.model == "resnet-50"}) >= 3
    assert len({case.key for case in cases}) == len(cases)
    assert {case.dtype for case in cases if case.model.startswith("llama")} == {"bf16"}
