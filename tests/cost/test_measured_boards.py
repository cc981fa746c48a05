"""The compact file of measured boards: it says what the overlays say, and estimates and validation
read the same.
"""

from pathlib import Path

import numpy as np
import pytest

from accelsim import catalog
from accelsim.cost.gpu import cost_gpu
from accelsim.cost.gpu.measured_boards import (
    FILE,
    _read,
    measured_boards,
    overlay_boards,
    write_measured_boards,
)
from accelsim.cost.registry import tier_parameters
from accelsim.datafile import data_root
from accelsim.errors import ProfileError
from accelsim.planning.estimate import estimate
from accelsim.validation.tiers import choose
from accelsim.workload_catalog import workload
from accelsim.workloads.dtype import PRECISIONS
from accelsim.workloads.model import RunShape
from tools.refit.__main__ import main

SHIPPED = data_root() / "calibration" / "fitted"


def content(boards):
    return {
        board.board.name: (
            board.board,
            dict(board.pinned),
            dict(board.entries),
            board.read_values().tolist(),
        )
        for board in boards
    }


def test_the_shipped_file_says_what_the_overlays_say() -> None:
    """Else write it anew: python -m tools.refit --relatives."""
    assert content(_read(SHIPPED / FILE)) == content(overlay_boards(SHIPPED))


def test_surfaces_are_read_as_the_overlay_has_them() -> None:
    overlay = {board.board.name: board for board in overlay_boards(SHIPPED)}["h100-sxm-80gb"]
    compact = {board.board.name: board for board in measured_boards()}["h100-sxm-80gb"]
    for name in compact.names:
        one, other = compact.surface(name), overlay.surface(name)
        assert np.array_equal(one.flat, other.flat)
        assert all(np.array_equal(a, b) for a, b in zip(one.knots, other.knots, strict=True))
        assert (one.log_sigma, one.rows) == (other.log_sigma, other.rows)


def test_the_command_gathers_the_overlays_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "fitted"
    folder.mkdir()
    (folder / "l40s.yaml").write_bytes((SHIPPED / "l40s.yaml").read_bytes())
    assert main(["--relatives", "--out", str(tmp_path)]) == 0
    assert [board.board.name for board in _read(folder / FILE)] == ["l40s"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes((SHIPPED / FILE).read_bytes()[:2000])
    with pytest.raises(ProfileError, match="--relatives"):
        _read(path)


def test_the_users_own_overlays_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "accelsim" / "calibration" / "fitted"
    own.mkdir(parents=True)
    text = (SHIPPED / "l40s.yaml").read_text(encoding="utf-8")
    (own / "l40s.yaml").write_text(text.replace("rows: ", "rows: 1", 1), encoding="utf-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    names = [board.board.name for board in measured_boards()]
    assert names.count("l40s") == 1
    assert len(names) == len(_read(SHIPPED / FILE))


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    boards = overlay_boards(SHIPPED)[:2]
    for name in ("a.npz", "b.npz"):
        write_measured_boards(boards, tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(
    "name", ["l4", "h100-pcie-80gb", "rtx-4090", "h200-nvl-141gb", "gh200-96gb"]
)
def test_estimates_and_validation_of_a_board_without_overlay_are_the_same(name: str) -> None:
    device = catalog.device(name)
    shape = RunShape(batch=4, seq_len=512)
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
