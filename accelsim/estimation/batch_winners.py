"""Which device wins at which batch: most samples per second, least energy and fewest dollars per
sample.

Chips with fixed functions are full at small batches, GPUs at large ones, so that the order of
devices depends on the batch. A device whose memory a batch does not fit, or that lacks an operator,
takes no part at that batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Unpack

from accelsim.errors import InvalidValueError
from accelsim.estimation.compare import compare, tied_devices
from accelsim.estimation.estimate import Estimate
from accelsim.estimation.options import (
    EstimateKeywords,
    PriceChoice,
    RunOptions,
    of_mode,
    options_and_price,
)
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.workloads.model import Workload

#: From one sample at a time to a batch that fills every device.
DEFAULT_BATCHES = (1, 8, 64, 512)


@frozen
class Win:
    """The best device of one figure, the figure, and whether it wins beyond the intervals.

    Attributes:
        device: Predicted best.
        value: Its figure.
        is_tied: Whether another device's interval meets its own.
    """

    device: str
    value: float
    is_tied: bool = False


@frozen
class BatchWinners:
    """The best devices at one batch; None where no device has the figure.

    Attributes:
        workload: Model.
        batch: Samples per iteration.
        throughput: Most samples per second.
        energy: Fewest joules per sample.
        cost: Fewest USD per 1,000 samples.
    """

    workload: str
    batch: int
    throughput: Win | None
    energy: Win | None
    cost: Win | None


def batch_winners(
    workload: str | Workload,
    devices: Iterable[str | DeviceProfile],
    batches: Sequence[int] = DEFAULT_BATCHES,
    options: RunOptions | None = None,
    price: PriceChoice | None = None,
    **keywords: Unpack[EstimateKeywords],
) -> tuple[BatchWinners, ...]:
    """The winners of inference at each batch.

    Args:
        workload: Name or workload.
        devices: Names or profiles.
        batches: Samples per iteration, in the order wanted.
        options: What runs; batch and mode are set here.
        price: What it costs.
        keywords: Fields of either, in place of theirs.

    Raises:
        InputError: If a name, batch or setting is wrong.
    """
    if not batches:
        raise InvalidValueError("batches", list(batches), "at least one batch")
    listed = list(devices)
    asked, paid = options_and_price(options, price, keywords)
    asked = of_mode(asked, "inference")
    found = []
    for batch in batches:
        rows = compare(workload, listed, asked, paid, batch=batch).rows
        done = [row.estimate for row in rows if row.estimate is not None and row.reason is None]
        best = (_best(done, column, sign) for column, sign in _FIGURES)
        name = rows[0].workload if rows else str(workload)
        found.append(BatchWinners(name, batch, *best))
    return tuple(found)


#: Columns of throughput, energy and cost, and whether the largest or the least wins.
_FIGURES = (
    ("throughput_per_s", -1.0),
    ("energy_per_sample_j", 1.0),
    ("cost_usd_per_1000", 1.0),
)


def _best(estimates: Sequence[Estimate], column: str, sign: float) -> Win | None:
    known = [
        (sign * value, e.device) for e in estimates if (value := getattr(e, column)) is not None
    ]
    if not known:
        return None
    value, device = min(known)
    return Win(device, sign * value, bool(tied_devices(estimates, device, column)))
