"""Numbers of a profile lie within what is plausible; beyond, the file is refused by field."""

import re

import pytest

from accelsim.catalog import load_device_file
from accelsim.errors import ProfileError
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
