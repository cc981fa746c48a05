"""Traits of GPU generations are one record: what is early is so everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accelsim import catalog
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.condition import EARLY, board_conditions
from accelsim.cost.gpu.generation import generation_of
from accelsim.cost.gpu.machine import GpuMachine, memory_efficiency_name
from accelsim.files.datafile import data_root, read_mapping
from accelsim.hardware.profile import GpuProfile

BOARDS = [
    profile
    for name in catalog.device_names()
    if isinstance(profile := catalog.device(name), GpuProfile)
]


def test_every_architecture_of_the_record_has_a_board():
    data = read_mapping(data_root() / "calibration" / "class" / "gpu-generations.yaml")
    assert set(data["architectures"]) <= {board.architecture for board in BOARDS}
    assert set(data["vendors"]) <= {board.vendor for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_an_early_board_is_early_in_memory_residuals_and_attention(board):
    generation = generation_of(board)
    is_early = generation.is_early
    assert is_early == (memory_efficiency_name(board) == "memory.early_efficiency")
    assert is_early or EARLY not in board_conditions(board)
    assert not (is_early and generation.has_flash_attention)


def test_first_libraries_of_an_early_board_take_the_usual_tiles():
    p100, k40 = (catalog.device(name) for name in ("p100-pcie-16gb", "k40"))
    assert isinstance(p100, GpuProfile)
    assert isinstance(k40, GpuProfile)
    today = GpuParameters.class_wide()
    now, first = (
        GpuMachine.of(p100, replace(today, is_early_library=is_first)) for is_first in (False, True)
    )
    assert now.has_page_walks
    assert not first.has_page_walks
    assert first.plain_tiles == GpuMachine.of(k40, today).plain_tiles != now.plain_tiles
