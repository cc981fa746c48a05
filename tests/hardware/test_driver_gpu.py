"""Boards the catalogue has, described by their drivers alone: the profile made of that is close to
the data sheet.
"""

from __future__ import annotations

import pytest

from accelsim import catalog
from accelsim.dtype import Dtype
from accelsim.files.datafile import data_root, read_mapping
from accelsim.hardware.driver_gpu import device_document, estimated_gpu_profile, reference_board
from accelsim.hardware.profile import GpuProfile, parse_device

#: Compute capability, SMs, clock and memory clock in MHz, bus in bits, as ``deviceQuery`` prints
#: them.
FACTS = {
    "l4": ("8.9", 58, 2040, 6251, 192),
    "rtx-4090": ("8.9", 128, 2520, 10501, 384),
    "a10": ("8.6", 72, 1695, 6251, 384),
    "h200-sxm-141gb": ("9.0", 132, 1980, 3201, 6144),
    "v100-sxm2-16gb": ("7.0", 80, 1530, 877, 4096),
    "p40": ("6.1", 30, 1531, 3615, 384),
}


def described(name: str) -> dict[str, object]:
    capability, sms, clock, memory_clock, bits = FACTS[name]
    board = catalog.device(name)
    return {
        "device_name": "NVIDIA Abacus 7",
        "compute_capability": capability,
        "multiprocessor_count": sms,
        "boost_clock_mhz": clock,
        "memory_clock_max_mhz": memory_clock,
        "memory_bus_bits": bits,
        "device_memory_bytes": board.memory.capacity_bytes.value,
        "power_limit_w": 100.0,
    }


def made(name: str) -> GpuProfile:
    facts = described(name)
    kin = catalog.device(reference_board(facts) or "")
    assert isinstance(kin, GpuProfile)
    assert kin.name != name
    return estimated_gpu_profile(facts, kin)


@pytest.mark.parametrize("name", FACTS)
def test_rates_and_bandwidth_come_close_to_the_data_sheet(name):
    profile, board = made(name), catalog.device(name)
    assert profile.memory_bandwidth_bytes_per_s == pytest.approx(
        board.memory_bandwidth_bytes_per_s, rel=0.03
    )
    assert profile.vector_flop_per_s[Dtype.FP32].value == pytest.approx(
        board.vector_flop_per_s[Dtype.FP32].value, rel=0.02
    )
    if Dtype.FP16 in board.matrix_flop_per_s:
        assert profile.matrix_flop_per_s[Dtype.FP16].value == pytest.approx(
            board.matrix_flop_per_s[Dtype.FP16].value, rel=0.02
        )


def test_the_document_reads_back_as_the_profile():
    profile = made("l4")
    assert parse_device(device_document(profile)) == profile
    assert profile.name == "nvidia-abacus-7"
    assert profile.power.limit_w is not None


@pytest.mark.parametrize(
    "change",
    [
        {"memory_bus_bits": None},
        {"compute_capability": "99.0"},
        {"hip_version": "6.2"},
        {"boost_clock_mhz": 0},
    ],
)
def test_what_the_driver_does_not_say_is_not_made_up(change):
    assert reference_board({**described("l4"), **change}) is None


def test_boards_of_class_data_are_in_the_catalogue():
    data = read_mapping(data_root() / "calibration" / "class" / "gpu-boards.yaml")
    boards = {*data["compute_capability_boards"].values(), *data["fitted_boards"]}
    for name in boards:
        assert isinstance(catalog.device(name), GpuProfile)
    folder = data_root() / "calibration"
    assert all((folder / "fitted" / f"{name}.yaml").is_file() for name in data["fitted_boards"])


def test_a_capability_nobody_catalogued_has_no_reference():
    facts = described("l4")
    assert reference_board(facts) == "l40s"
    assert reference_board(facts | {"compute_capability": "3.5"}) is None
