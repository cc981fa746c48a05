"""Power of matrix chips: below the limit, and near what was measured."""

from __future__ import annotations

import pytest

import accelsim
from accelsim import catalog

CHIPS = [
    name
    for name in catalog.device_names()
    if (d := catalog.device(name)).device_class == "asic" and d.matrix_flop_per_s
]


@pytest.mark.parametrize("device", CHIPS)
def test_no_chip_draws_more_than_its_limit_at_any_batch(device):
    limit = catalog.device(device).power.limit_w
    for batch in (1, 64):
        run = accelsim.estimate("resnet-50", device, batch=batch)
        if limit is None or not run.fits:
            assert run.average_power_w is None
        else:
            assert 0 < run.average_power_w <= limit.value * (1 + 1e-9)


@pytest.mark.parametrize(("model", "batch"), [("bert-large", 32), ("resnet-50", 256)])
def test_tpu_v4_draws_what_was_measured(model, batch):
    # Jouppi et al., ISCA 2023, table 4: 90 W lowest, 170 W mean, 192 W highest of a TPU v4 in
    # production.
    run = accelsim.estimate(model, "tpu-v4", batch=batch, mode="training")
    assert run.average_power_w == pytest.approx(170, rel=0.2)
    assert 90 < run.average_power_w <= 192
