"""The order of device classes by energy per sample, beside the order the literature finds for small
batches.

At batch 1 the literature puts fixed-function chips below FPGAs, FPGAs below GPUs and GPUs below
CPUs (Nurvitadhi et al., FPT 2016; Jouppi et al., ISCA 2017; Sze et al., Proc. IEEE 105(12), 2017).
Each class is represented by its most frugal device in the comparison; where the order differs, the
answer names the pair and what each draws at which rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from accelsim import catalog
from accelsim.errors import UnknownNameError
from accelsim.estimation.estimate import Estimate
from accelsim.frozen import frozen

#: Classes from the least energy per sample to the most, at batch 1.
LITERATURE_ORDER = ("asic", "fpga", "gpu", "cpu")


@frozen
class ClassEnergy:
    """The most frugal device of a class."""

    device_class: str
    device: str
    energy_per_sample_j: float
    average_power_w: float
    throughput_per_s: float

    def __str__(self) -> str:
        energy = self.energy_per_sample_j
        amount = f"{energy:.3g} J" if energy >= 1 else f"{1e3 * energy:.3g} mJ"
        return f"{self.device_class} {amount} ({self.device})"


def class_energies(estimates: Iterable[Estimate]) -> tuple[ClassEnergy, ...]:
    """The most frugal device of each class, least energy first; devices without a known energy are
    left out.
    """
    best: dict[str, ClassEnergy] = {}
    for estimate in estimates:
        energy, power, rate = (
            estimate.energy_per_sample_j,
            estimate.average_power_w,
            estimate.throughput_per_s,
        )
        if energy is None or power is None or rate is None:
            continue
        try:
            name = catalog.device(estimate.device).device_class
        except UnknownNameError:  # a device file of the user's
            continue
        found = ClassEnergy(name, estimate.device, energy, power, rate)
        if name not in best or energy < best[name].energy_per_sample_j:
            best[name] = found
    return tuple(sorted(best.values(), key=lambda entry: entry.energy_per_sample_j))


def energy_order_text(estimates: Iterable[Estimate]) -> str:
    """One line: the order found at batch 1 and, where it differs from the literature's, why; empty
    under two classes.
    """
    found = class_energies(estimate for estimate in estimates if estimate.batch == 1)
    if len(found) < 2:
        return ""
    order = "energy at batch 1: " + " < ".join(str(entry) for entry in found)
    wrong = [
        (low, high)
        for low, high in pairwise(found)
        if LITERATURE_ORDER.index(low.device_class) > LITERATURE_ORDER.index(high.device_class)
    ]
    if not wrong:
        return order
    return f"{order}; not the order of the literature: " + "; ".join(
        _reason(low, high) for low, high in wrong
    )


def _reason(low: ClassEnergy, high: ClassEnergy) -> str:
    rate = f"{high.throughput_per_s:,.0f} samples/s"
    drawn = f"{high.device} draws {high.average_power_w:.3g} W at {rate}"
    return f"{drawn}, {low.device} {low.average_power_w:.3g} W at {low.throughput_per_s:,.0f}"
