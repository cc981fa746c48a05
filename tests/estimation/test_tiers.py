"""Estimates at a tier: fitted overlays are used where there are any, can be refused, and keep the
laws of the model.
"""

from pathlib import Path

import numpy as np
import pytest

import accelsim
from accelsim import catalog
from accelsim.confidence.residual import family_name
from accelsim.cost.gpu import GpuMachine, GpuParameters, cost_gpu
from accelsim.cost.registry import tier_parameters
from accelsim.cost.table import ParameterTier
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.files.datafile import data_root
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import PassShape

FITTED = (
    "a100-pcie-40gb",
    "v100-pcie-32gb",
    "p100-pcie-16gb",
    "t4",
    "p4",
    "mi100",
    "v100-sxm2-16gb",
)


def bert(batch: int, seq_len: int = 512) -> OperatorGraph:
    run = PassShape(batch=batch, seq_len=seq_len)
    return accelsim.workload("bert-large").lower(run, accelsim.dtype.precision("fp32")).graph


def resnet(batch: int) -> OperatorGraph:
    return (
        accelsim.workload("resnet-50")
        .lower(PassShape(batch=batch), accelsim.dtype.precision("fp32"))
        .graph
    )


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("graph", [bert(4), resnet(16)], ids=["bert", "resnet"])
def test_fitted_times_respect_the_roofline_of_what_they_execute(
    name: str, graph: OperatorGraph
) -> None:
    board = catalog.device(name)
    own = tier_parameters(board, "fitted")
    costs = cost_gpu(graph, board, parameters=own)
    machine = GpuMachine.of(board, own)
    assert costs.tier is ParameterTier.FITTED
    peak = np.fmax(machine.contraction_flop_per_s[graph.dtype], machine.vector_flop_per_s)
    assert (costs.time_s * (1 + 1e-9) >= costs.flop / peak).all()
    assert (costs.time_s * (1 + 1e-9) >= costs.bytes / machine.bandwidth_bytes_per_s).all()


@pytest.mark.parametrize("name", FITTED[:4])
def test_larger_batches_take_longer_on_fitted_boards(name: str) -> None:
    board = catalog.device(name)
    own = tier_parameters(board)
    times = [
        cost_gpu(bert(batch), board, parameters=own).total_time_s for batch in (1, 2, 4, 8, 16)
    ]
    assert np.all(np.diff(times) > 0)


def test_the_highest_tier_is_the_default_and_spec_can_be_forced() -> None:
    run = {"precision": "fp32", "batch": 8, "seq_len": 512}
    best = accelsim.estimate("bert-large", "a100-pcie-40gb", **run)
    spec = accelsim.estimate("bert-large", "a100-pcie-40gb", tier="spec", **run)
    assert (best.tier, spec.tier) == ("fitted", "spec")
    assert best == accelsim.estimate("bert-large", "a100-pcie-40gb", tier="fitted", **run)
    assert best.latency_high_s / best.latency_low_s < spec.latency_high_s / spec.latency_low_s
    assert accelsim.estimate("bert-large", "gtx-1080", **run).tier == "spec"


def test_a_tier_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(InvalidValueError, match="gtx-1080"):
        accelsim.estimate("resnet-50", "gtx-1080", tier="fitted")
    with pytest.raises(InvalidValueError, match="guess"):
        accelsim.estimate("resnet-50", "t4", tier="guess")


def test_a_board_with_surfaces_of_its_own_tables_is_measured() -> None:
    run = {"precision": "bf16", "batch": 4, "seq_len": 128}
    best = accelsim.estimate("bert-large", "h100-sxm-80gb", **run)
    assert best.tier == "measured"
    for tier in ("fitted", "measured"):
        assert best == accelsim.estimate("bert-large", "h100-sxm-80gb", tier=tier, **run)


@pytest.mark.parametrize(("device", "there"), [("t4", "fitted"), ("gtx-1080", "best or spec")])
def test_a_board_without_such_surfaces_says_what_it_has(device: str, there: str) -> None:
    with pytest.raises(InvalidValueError, match=there):
        accelsim.estimate("resnet-50", device, tier="measured")


def test_extrapolation_is_said() -> None:
    inside = accelsim.estimate(
        "bert-large", "a100-pcie-40gb", precision="fp32", batch=8, seq_len=512
    )
    outside = accelsim.estimate(
        "bert-large", "a100-pcie-40gb", precision="fp32", batch=512, seq_len=512, mode="inference"
    )
    assert inside.extrapolated_fraction is not None
    assert inside.extrapolated_fraction < 0.2
    assert (
        outside.extrapolated_fraction is None
        or outside.extrapolated_fraction >= inside.extrapolated_fraction
    )


def test_overlays_know_their_families() -> None:
    own = tier_parameters(catalog.device("v100-pcie-32gb"))
    assert isinstance(own, GpuParameters)
    for kind in (
        accelsim.workloads.operator.OperatorKind.GEMM,
        accelsim.workloads.operator.OperatorKind.SOFTMAX,
    ):
        family = own.families[family_name(int(kind), int(Dtype.FP32))]
        assert 0 < family.shared_log_sigma < 0.5
        assert 0 < family.log_sigma < 0.5


def test_an_overlay_that_changed_on_disk_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "accelsim" / "calibration" / "fitted"
    own.mkdir(parents=True)
    folder = data_root() / "calibration" / "fitted"
    held_out = "held_out: {rows: 90, median_fraction: 0.05, p90_fraction: 0.2}\n"
    shipped = held_out + (folder / "t4.yaml").read_text()
    (own / "t4.surfaces.npz").write_bytes((folder / "t4.surfaces.npz").read_bytes())
    entry = "dispatch.convolution_s: {value: "
    before, _, after = shipped.partition(entry)
    run = {"workload": "resnet-50", "device": "t4", "execution": "eager"}
    times = [accelsim.estimate(**run).latency_s]
    for dispatch_s in ("0.01", "0.02"):
        (own / "t4.yaml").write_text(f"{before}{entry}{dispatch_s}{after[after.index(',') :]}")
        times.append(accelsim.estimate(**run).latency_s)
    assert times[0] < times[1] < times[2]
