"""Carbon by hand, and regions that have no figure."""

import pytest

from accelsim.economics.carbon import carbon_kgco2e, grid_kgco2e_per_kwh, pue_ratio
from accelsim.errors import InvalidValueError


def test_by_hand():
    """1 kWh at a PUE of 1.5 under 400 g/kWh: 0.6 kg."""
    assert carbon_kgco2e(3.6e6, 0.4, 1.5) == pytest.approx(0.6)


def test_regions_have_a_figure_of_the_place_and_of_the_market():
    assert grid_kgco2e_per_kwh("gcp", "us-central1") == pytest.approx(0.430)
    assert grid_kgco2e_per_kwh("gcp", "us-central1", "market") == pytest.approx(0.215237)
    assert grid_kgco2e_per_kwh("aws", "us-east-1", "market") is None
    assert grid_kgco2e_per_kwh("vast", "nowhere") is None


def test_overhead_is_that_of_the_region_the_provider_or_the_industry():
    assert [pue_ratio("gcp", "us-central1"), pue_ratio("gcp", "us-west1"), pue_ratio("x", "y")] == [
        1.11,
        1.1,
        1.56,
    ]


@pytest.mark.parametrize(
    ("field", "values"), [("energy_j", (-1, 1, 1)), ("pue_ratio", (1, 1, 0.9))]
)
def test_wrong_figures_are_refused(field, values):
    with pytest.raises(InvalidValueError, match=field):
        carbon_kgco2e(*values)
    with pytest.raises(InvalidValueError, match="carbon_basis"):
        grid_kgco2e_per_kwh("gcp", "us-central1", "moon")
