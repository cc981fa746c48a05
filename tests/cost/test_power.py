"""Energy per operation and byte, and the power-limited clock: published figures and laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.cost.power import (
    MINIMUM_CLOCK_FRACTION,
    VOLTAGE_FLOOR_FRACTION,
    arithmetic_energy_per_flop_j,
    arithmetic_energy_table_j,
    dram_energy_per_byte_j,
    power_limited_clock_fraction,
    sram_energy_per_byte_j,
)
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError


@pytest.mark.parametrize(
    ("dtype", "node", "multiply_add_pj"),
    [
        (Dtype.FP32, 45, 4.6),  # Horowitz, ISSCC 2014, figure 1.1.9
        (Dtype.FP16, 45, 1.5),
        (Dtype.INT8, 45, 0.23),
        (Dtype.INT32, 45, 3.2),
        (Dtype.FP32, 7, 1.69),  # Jouppi et al., ISCA 2021, table 2
        (Dtype.BF16, 7, 0.32),
        (Dtype.FP16, 7, 0.50),
        (Dtype.INT8, 7, 0.077),
    ],
)
def test_published_arithmetic_energies(dtype: Dtype, node: float, multiply_add_pj: float) -> None:
    assert 2 * arithmetic_energy_per_flop_j(dtype, node) == pytest.approx(
        multiply_add_pj * 1e-12, rel=1e-9
    )


@pytest.mark.parametrize(
    ("wide", "narrow"), [("FP64", "FP32"), ("FP32", "FP16"), ("FP16", "FP8"), ("INT8", "INT4")]
)
def test_wider_formats_cost_more(wide: str, narrow: str) -> None:
    assert arithmetic_energy_per_flop_j(Dtype[wide], 7) > arithmetic_energy_per_flop_j(
        Dtype[narrow], 7
    )


@given(node=st.floats(4, 60), finer=st.floats(0.3, 0.99))
@settings(max_examples=40)
def test_finer_nodes_cost_less(node: float, finer: float) -> None:
    assert (arithmetic_energy_table_j(node * finer) < arithmetic_energy_table_j(node)).all()
    assert sram_energy_per_byte_j(32e3, node * finer) < sram_energy_per_byte_j(32e3, node)


def test_absurd_node_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="process_nm"):
        arithmetic_energy_per_flop_j(Dtype.FP32, 0.1)


@pytest.mark.parametrize(
    ("technology", "pj_per_bit"),
    [
        ("HBM2", 3.95),
        ("GDDR5", 14.0),
        ("GDDR6", 7.5 + 3.2),
        ("GDDR6X", 7.25 + 3.2),
        ("HBM2e", 6.0),
        (None, 10.0),
    ],
)
def test_published_dram_energies(technology: str | None, pj_per_bit: float) -> None:
    assert dram_energy_per_byte_j(technology) == pytest.approx(8e-12 * pj_per_bit)


@pytest.mark.parametrize(
    ("size", "node", "pj"), [(8e3, 45, 10), (32e3, 45, 20), (1e6, 45, 100), (1e6, 7, 14)]
)
def test_published_sram_energies(size: float, node: float, pj: float) -> None:
    assert sram_energy_per_byte_j(size, node) == pytest.approx(pj * 1e-12 / 8)


@given(dynamic=st.floats(0, 2000), static=st.floats(0, 100), limit=st.floats(101, 800))
def test_limited_clock_meets_the_limit(dynamic: float, static: float, limit: float) -> None:
    clock = power_limited_clock_fraction(dynamic, static, limit)
    voltage = np.maximum(clock, VOLTAGE_FLOOR_FRACTION)
    drawn = static + dynamic * clock * voltage**2
    assert MINIMUM_CLOCK_FRACTION <= clock <= 1
    if clock > MINIMUM_CLOCK_FRACTION:
        assert drawn <= limit * (1 + 1e-9)
    if MINIMUM_CLOCK_FRACTION < clock < 1:
        assert drawn == pytest.approx(limit)


@given(dynamic=st.floats(1, 2000), limit=st.floats(30, 800), more=st.floats(1, 3))
def test_clock_is_monotone_in_limit_and_load(dynamic: float, limit: float, more: float) -> None:
    clock = power_limited_clock_fraction(dynamic, 20.0, limit)
    assert power_limited_clock_fraction(dynamic, 20.0, limit * more) >= clock
    assert power_limited_clock_fraction(dynamic * more, 20.0, limit) <= clock


def test_no_load_runs_at_full_clock() -> None:
    assert power_limited_clock_fraction(0.0, 5.0, 10.0) == 1.0


@pytest.mark.parametrize(
    ("limit_w", "average_w", "relative_speed"),
    [
        (200, 189.6, 0.94),
        (175, 169.7, 0.89),
        (150, 146.4, 0.80),
        (125, 121.8, 0.67),
        (100, 99.8, 0.50),
    ],
)
def test_zeus_v100_power_limit_sweep(
    limit_w: float, average_w: float, relative_speed: float
) -> None:
    """BERT on a V100 (Zeus, NSDI 2023, power-limit traces): 226.8 W unlimited, 35 W idle; medians
    over optimizers.
    """
    clock = power_limited_clock_fraction(226.8 - 35.0, 35.0, average_w)
    assert clock == pytest.approx(relative_speed, rel=0.08), limit_w
