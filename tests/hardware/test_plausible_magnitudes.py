"""Numbers of a profile lie within what is plausible; beyond, the file is refused by field."""

import json
import re
import warnings

import pytest
import yaml

from accelsim.catalog import load_device_file
from accelsim.errors import AccelsimWarning, ProfileError
from accelsim.files.datafile import data_root

CHANGES = [
    ("gpu/t4", "sm_count", 10**15),
    ("gpu/t4", "boost_clock_mhz", 1e12),
    ("gpu/t4", "bandwidth_gb_per_s", 1e12),
    ("gpu/t4", "limit_w", 1e9),
    ("cpu/epyc-9654", "core_count", 10**9),
    ("cpu/epyc-9654", "simd_width_bits", 10**9),
]


@pytest.mark.parametrize(("device", "field", "value"), CHANGES)
def test_a_magnitude_beyond_reason_is_refused_by_name(tmp_path, device, field, value):
    text = (data_root() / "device_profiles" / f"{device}.yaml").read_text(encoding="utf-8")
    changed, count = re.subn(rf"({field}: {{value: )[0-9.e+]+", rf"\g<1>{value}", text, count=1)
    assert count == 1
    path = tmp_path / "mine.yaml"
    path.write_text(changed, encoding="utf-8")
    with pytest.raises(ProfileError, match="not plausible"):
        load_device_file(path)


PROFILES = ["cpu/epyc-9654", "gpu/t4", "fpga/zcu104", "asic/tpu-v4", "asic/edge-tpu"]


def numbers_of(data):
    """Entries of a file that hold a number, each as the mapping of its value, with its path."""
    if isinstance(data, dict) and "value" in data:
        yield data
        return
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    for part in inner:
        yield from numbers_of(part)


def is_told(data, path):
    """Whether a file is refused or warned about."""
    path.write_text(json.dumps(data), encoding="utf-8")
    try:
        load_device_file(path)
    except (ProfileError, AccelsimWarning):
        return True
    return False


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize(
    ("factor", "least_share"), [(1e6, 1.0), (1e-6, 1.0), (1e3, 0.6), (1e-3, 0.6)]
)
def test_a_unit_that_slipped_is_told(tmp_path, name, factor, least_share):
    text = (data_root() / "device_profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    data, told = yaml.safe_load(text), []
    for entry in numbers_of({key: part for key, part in data.items() if key != "conflicts"}):
        value = entry["value"]
        changed = value * factor
        entry["value"] = int(changed) if isinstance(value, int) and changed >= 1 else changed
        told.append(is_told(data, tmp_path / "mine.json"))
        entry["value"] = value
    assert len(told) > 10
    assert sum(told) / len(told) >= least_share


def test_the_warning_names_the_field_and_the_range_of_its_class(tmp_path):
    text = (data_root() / "device_profiles/gpu/t4.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(
        text.replace("limit_w: {value: 70,", "limit_w: {value: 70000,"), encoding="utf-8"
    )
    with pytest.warns(AccelsimWarning, match=r"power.limit_w = 7e\+04 .* gpu .* 15 to 1400"):
        load_device_file(path)


def test_no_shipped_profile_is_far_from_its_class():
    with warnings.catch_warnings():
        warnings.simplefilter("error", AccelsimWarning)
        for name in ("cpu", "gpu", "fpga", "asic"):
            for path in (data_root() / "device_profiles" / name).glob("*.yaml"):
                load_device_file(path)
