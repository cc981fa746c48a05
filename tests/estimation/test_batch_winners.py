"""Winners by batch: they are what a comparison at that batch says, and devices that cannot run take
no part.
"""

from __future__ import annotations

import pytest

import accelsim
from accelsim.errors import InvalidValueError
from accelsim.estimation.batch_winners import DEFAULT_BATCHES, batch_winners

DEVICES = ("a100-sxm-80gb", "tpu-v4", "zcu104", "epyc-9654")


def test_winners_are_the_best_of_each_comparison():
    for found in batch_winners("resnet-50", DEVICES):
        rows = [
            row.estimate for row in accelsim.compare("resnet-50", DEVICES, batch=found.batch).rows
        ]
        known = [e for e in rows if e is not None and e.fits]
        assert found.throughput.value == max(e.throughput_per_s for e in known)
        assert found.energy.value == min(e.energy_per_sample_j for e in known)
        priced = [e for e in known if e.cost_usd_per_1000 is not None]
        assert found.cost.value == min(e.cost_usd_per_1000 for e in priced)
        winner = next(e for e in known if e.device == found.throughput.device)
        assert winner.throughput_per_s == found.throughput.value


def test_batches_come_in_the_order_asked():
    assert [w.batch for w in batch_winners("resnet-18", DEVICES[:2])] == list(DEFAULT_BATCHES)
    assert [w.batch for w in batch_winners("resnet-18", DEVICES[:2], (32, 1))] == [32, 1]


def test_devices_that_cannot_run_do_not_win():
    (found,) = batch_winners("bert-large", ("zcu104", "t4"), (1,))  # the overlay has no attention
    assert found.throughput.device == found.energy.device == "t4"
    (none,) = batch_winners("bert-large", ("zcu104",), (1,))
    assert (none.throughput, none.energy, none.cost) == (None, None, None)


def test_bad_batches_are_refused():
    with pytest.raises(InvalidValueError, match="batches"):
        batch_winners("resnet-50", DEVICES, ())
    with pytest.raises(InvalidValueError, match="batch"):
        batch_winners("resnet-50", DEVICES, (0,))
