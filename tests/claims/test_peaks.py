"""Quoted and derived peaks of ASICs."""

from __future__ import annotations

import pytest

from accelsim import catalog
from accelsim.claims.peaks import asic_peaks
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.estimation.estimate import estimate

# The chips the architecture models are for.
CHIPS = [
    "tpu-v1",
    "tpu-v2",
    "tpu-v3",
    "tpu-v4",
    "tpu-v4i",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "tpu-v7",
    "eyeriss",
    "nnp-t-1300",
    "nnp-t-1400",
    "gaudi",
    "gaudi2",
    "gaudi3",
    "trainium1",
    "trainium2",
    "inferentia1",
    "inferentia2",
    "groq-lpu-v1",
    "ipu-gc2",
    "ipu-gc200",
    "ipu-bow",
    "cerebras-wse-2",
    "cerebras-wse-3",
]


@pytest.mark.parametrize("name", CHIPS)
def test_quoted_and_derived_peaks_are_of_one_chip(name):
    peaks = asic_peaks([name])
    assert peaks
    for peak in peaks:
        assert abs(peak.difference_fraction) <= 0.11
        assert peak.quoted_flop_per_s == pytest.approx(
            peak.derived_flop_per_s * (1 + peak.difference_fraction)
        )


def test_gaudi_has_the_peaks_of_its_units():
    # No peak was quoted: two engines of two units of 64 x 64 (32 x 32 in fp32) at 1.9 GHz, after
    # its compiler's sources.
    found = {peak.dtype: peak for peak in asic_peaks(["gaudi"])}
    assert found["bf16"].quoted_flop_per_s == pytest.approx(62.3e12, rel=1e-3)
    assert found["fp32"].rate == 0.25
    assert not any(peak.differs for peak in found.values())


def test_gaudi_trains_resnet_at_its_mlperf_rate():
    # MLPerf Training v1.0, 8 Gaudi: 12,972 images/s. Nothing was fitted to it.
    run = estimate("resnet-50", "gaudi", batch=256, mode="training", precision="bf16")
    assert run.throughput_per_s == pytest.approx(12_972 / 8, rel=0.15)


def test_a_difference_beyond_rounding_is_marked():
    (tpu,) = asic_peaks(["tpu-v1"])  # 256 x 256 x 2 x 700 MHz = 91.75 TOPS, quoted 92
    assert not tpu.differs
    (nnp,) = asic_peaks(["nnp-t-1300"])  # 32 x 32 x 44 x 2 x 950 MHz = 85.6 TFLOP/s, quoted 93.4
    assert nnp.differs
    assert nnp.reason
    assert {peak.dtype: peak.rate for peak in asic_peaks(["trainium1"])}["int8"] == 2.0


def test_all_asics_unless_named_and_others_refused():
    assert {peak.device for peak in asic_peaks()} >= set(CHIPS)
    with pytest.raises(InvalidValueError, match="ASIC"):
        asic_peaks(["t4"])
    with pytest.raises(UnknownNameError):
        asic_peaks(["tpu-v99"])
    assert catalog.device("tpu-v1").training is False
