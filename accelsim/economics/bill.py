"""What a cloud bills: instances by steps of time, storage, egress, preemptions and commitments."""

from __future__ import annotations

import math
from dataclasses import asdict, astuple

from accelsim.economics.result import SECONDS_PER_HOUR, SECONDS_PER_MONTH, require
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen


def billed_usd(
    usd_per_hour: float, used_s: float, granularity_s: float = 1.0, minimum_s: float = 0.0
) -> float:
    """What is billed for a time: whole steps of the billing, at least its minimum.

    AWS, for one, bills seconds and at least 60 of them (Amazon EC2 per-second billing, 2017).

    Args:
        usd_per_hour: Price, >= 0.
        used_s: Seconds used, >= 0; none used is nothing billed.
        granularity_s: Step of the billing, > 0: 1 by the second, 3,600 by the hour.
        minimum_s: Least time billed, >= 0.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    terms = {
        "usd_per_hour": usd_per_hour,
        "used_s": used_s,
        "granularity_s": granularity_s,
        "minimum_s": minimum_s,
    }
    for name, value in terms.items():
        if not 0 <= value < math.inf or (name == "granularity_s" and value == 0):
            raise InvalidValueError(name, value, "a finite number >= 0, a granularity > 0")
    steps = math.ceil(max(used_s, minimum_s) / granularity_s - 1e-9)
    return usd_per_hour * steps * granularity_s / SECONDS_PER_HOUR if used_s else 0.0


@frozen(kw_only=True)
class BillCost:
    """Parts of a bill, USD.

    Attributes:
        compute_usd: Work on instances beyond those committed.
        overhead_usd: Work lost to preemptions and done again, restarts included.
        committed_usd: Instances committed, used or not.
        storage_usd: Disks.
        egress_usd: Traffic out of the cloud.
    """

    compute_usd: float
    overhead_usd: float
    committed_usd: float
    storage_usd: float
    egress_usd: float

    @property
    def total_usd(self) -> float:
        """Sum of the parts."""
        return float(sum(astuple(self)))


@frozen(kw_only=True)
class Bill:
    """Terms of a bill.

    Attributes:
        usd_per_hour: Price of an instance.
        instance_count: Instances that work at once.
        granularity_s: Step of the billing, > 0.
        minimum_s: Least time billed.
        storage_gb: Disk, 10⁹ bytes, kept for the whole period.
        storage_usd_per_gb_month: Its price.
        egress_gb: Traffic out, 10⁹ bytes.
        egress_usd_per_gb: Its price.
        preemption_mtbf_s: Mean time between preemptions of the job; None for none.
        lost_s: Work and time that each costs: half a checkpoint interval and a restart.
        committed_count: Instances that are paid for all of the period.
        committed_usd_per_hour: Their price.

    Raises:
        InvalidValueError: If a figure is negative or not finite.
    """

    usd_per_hour: float
    instance_count: int = 1
    granularity_s: float = 1.0
    minimum_s: float = 0.0
    storage_gb: float = 0.0
    storage_usd_per_gb_month: float = 0.0
    egress_gb: float = 0.0
    egress_usd_per_gb: float = 0.0
    preemption_mtbf_s: float | None = None
    lost_s: float = 0.0
    committed_count: int = 0
    committed_usd_per_hour: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None:
                require(name, value)
        if self.preemption_mtbf_s == 0:
            raise InvalidValueError("preemption_mtbf_s", 0, "seconds above 0, or None")

    def cost(self, used_s: float, period_s: float | None = None) -> BillCost:
        """What a piece of work costs: the sum of what public price lists of clouds bill apart.

        Estimate: the first `committed_count` of its instances are those committed. Preemptions
        come once in `preemption_mtbf_s` of work in the mean, each costs `lost_s`.

        Args:
            used_s: Time that each instance works, >= 0.
            period_s: Time that storage is kept and instances are committed; `used_s` where None.

        Raises:
            InvalidValueError: If a time is negative, or the period shorter than the work.
        """
        period = used_s if period_s is None else period_s
        if period < used_s:
            raise InvalidValueError("period_s", period, f"at least used_s, {used_s:g}")
        mtbf = self.preemption_mtbf_s
        lost_s = 0.0 if mtbf is None else used_s / mtbf * self.lost_s
        rented = max(self.instance_count - self.committed_count, 0)
        work = self._usd(used_s)
        committed_usd_per_hour = self.committed_count * self.committed_usd_per_hour
        storage_usd_per_month = self.storage_gb * self.storage_usd_per_gb_month
        return BillCost(
            compute_usd=rented * work,
            overhead_usd=rented * (self._usd(used_s + lost_s) - work),
            committed_usd=committed_usd_per_hour * period / SECONDS_PER_HOUR,
            storage_usd=storage_usd_per_month * period / SECONDS_PER_MONTH,
            egress_usd=self.egress_gb * self.egress_usd_per_gb,
        )

    def _usd(self, used_s: float) -> float:
        return billed_usd(self.usd_per_hour, used_s, self.granularity_s, self.minimum_s)
