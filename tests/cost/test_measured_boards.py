"""The list of measured boards: it says what the overlays say, and estimates and validation read the
same.
"""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from accelsim import catalog
from accelsim.catalog.workloads import workload
from accelsim.cost.fitted import fitted_parameters
from accelsim.cost.gpu import cost_gpu
from accelsim.cost.gpu.measured_boards import FILE, _shipped_boards, measured_boards, overlay_boards
from accelsim.cost.registry import tier_parameters
from accelsim.cost.surface_file import surface_file_name
from accelsim.dtype import PRECISIONS
from accelsim.errors import ProfileError
from accelsim.estimation.estimate import estimate
from accelsim.files.datafile import data_root
from accelsim.scoreboard.tiers import choose
from accelsim.workloads.model import PassShape
from tools.refit.__main__ import main
from tools.refit.files import write_measured_boards

SHIPPED = data_root() / "calibration" / "fitted"


def content(boards):
    return {
        board.board.name: (asdict(board.board), dict(board.pinned), list(board.names))
        for board in boards
    }


def test_the_shipped_file_says_what_the_overlays_say() -> None:
    """Else write it anew: python -m tools.refit --relatives."""
    assert content(_shipped_boards(SHIPPED / FILE)) == content(overlay_boards(SHIPPED))


def test_surfaces_are_those_of_the_overlay() -> None:
    overlay = fitted_parameters("h100-sxm-80gb")
    listed = {board.board.name: board for board in measured_boards()}["h100-sxm-80gb"]
    assert set(listed.names) == set(overlay.surfaces) == set(listed.surfaces)
    for name in listed.names:
        assert np.array_equal(listed.surfaces[name].flat, overlay.surfaces[name].flat)


def test_no_surface_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes((SHIPPED / FILE).read_bytes())
    board = _shipped_boards(tmp_path / FILE)[0]  # no file of surfaces lies beside it
    assert board.names
    with pytest.raises(ProfileError, match="surfaces"):
        board.surfaces[board.names[0]]


def test_the_command_lists_the_overlays_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "fitted"
    folder.mkdir()
    copy_overlay("l40s", folder)
    copy_overlay("t4", folder)  # of tier `fitted`: no relative of others
    assert main(["--relatives", "--out", str(tmp_path)]) == 0
    assert [board.board.name for board in _shipped_boards(folder / FILE)] == ["l40s"]


def copy_overlay(device: str, folder: Path) -> None:
    for name in (f"{device}.yaml", surface_file_name(device)):
        (folder / name).write_bytes((SHIPPED / name).read_bytes())


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes((SHIPPED / FILE).read_bytes()[:2000])
    with pytest.raises(ProfileError, match="--relatives"):
        _shipped_boards(path)


def test_the_users_own_overlays_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "accelsim" / "calibration" / "fitted"
    own.mkdir(parents=True)
    copy_overlay("l40s", own)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    names = [board.board.name for board in measured_boards()]
    assert names.count("l40s") == 1
    (found,) = (board for board in measured_boards() if board.board.name == "l40s")
    assert found.surfaces.path.parent == own
    assert len(names) == len(_shipped_boards(SHIPPED / FILE))


def test_relatives_of_earlier_fits_still_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "accelsim" / "calibration" / "fitted"
    own.mkdir(parents=True)
    copy_overlay("l40s", own)
    path = own / "l40s.yaml"
    gone = "pinned:\n  gemm.k_contiguous_ratio: 0.8983\n"
    path.write_text(path.read_text().replace("pinned:\n", gone))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert tier_parameters(catalog.device("l4")).relatives == ("l40s",)


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    boards = overlay_boards(SHIPPED)[:2]
    for name in ("a.json", "b.json"):
        write_measured_boards(boards, tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    "name", ["l4", "h100-pcie-80gb", "rtx-4090", "h200-nvl-141gb", "gh200-96gb"]
)
def test_estimates_and_validation_of_a_board_without_overlay_are_the_same(name: str) -> None:
    device = catalog.device(name)
    shape = PassShape(batch=4, seq_len=512)
    graph = workload("bert-large").lower(shape, PRECISIONS["fp16"]).graph
    own, validated = tier_parameters(device), choose(device, "spec").parameters
    assert own.relatives
    assert own.relatives == validated.relatives
    ours, theirs = (
        cost_gpu(graph, device, parameters=own),
        cost_gpu(graph, device, parameters=validated),
    )
    assert np.array_equal(ours.time_s, theirs.time_s)
    assert np.array_equal(ours.log_sigma, theirs.log_sigma)
    plain = cost_gpu(graph, device)
    assert not np.allclose(ours.time_s, plain.time_s, rtol=1e-3)


def test_an_estimate_names_the_boards_it_rests_on() -> None:
    found = estimate("bert-large", "l4", precision="bf16")
    assert found.tier == "spec"
    assert "l40s" in found.relatives
    assert found.to_dict()["relatives"] == list(found.relatives)
    assert estimate("bert-large", "t4").relatives == ()
