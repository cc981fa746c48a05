"""Rates of DPU releases that ship with accelsim, and the boards whose published throughput they
were fitted to.

`calibration/class/dpu.yaml` holds them; `tools.scoreboard.dpu_fit` fits them. Estimates of these
boards take the rates of the newest release, at tier `fitted`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np

from accelsim.cost.fpga.network import DpuBoards, DpuRates
from accelsim.cost.roofline import main_memory_bandwidth_bytes_per_s
from accelsim.files.datafile import data_root, read_yaml
from accelsim.frozen import frozen
from accelsim.hardware.profile import DpuCore, FpgaProfile

#: Clock of the host processors that the rates hold for.
_REFERENCE_HOST_HZ = 1.2e9


@frozen
class EngineRates:
    """Rates of an overlay of batch engines, for all its boards and releases.

    Attributes:
        rates: Its rates.
        boards: Catalogue names of the boards that take them.
        single_log_sigma: Spread of ln(measured / predicted) of families left out, one thread.
        multi_log_sigma: Of all threads.
    """

    rates: DpuRates
    boards: frozenset[str]
    single_log_sigma: float
    multi_log_sigma: float


@frozen(eq=False)
class ShippedRates:
    """Rates that ship with accelsim.

    Attributes:
        families: Families they were fitted to; a prediction of one of these is no prediction of the
            unseen.
        releases: Rates by release.
        host_hz: Clock of the host processors by board's catalogue name.
        unseen: Boards among these whose core took no part in the fit.
        log_sigma: Spread of ln(measured / predicted) of families left out, by way of predicting.
        engines: Rates of overlays of batch engines by the overlay's name.
    """

    families: frozenset[str]
    releases: Mapping[str, DpuRates]
    host_hz: Mapping[str, float]
    unseen: frozenset[str]
    log_sigma: Mapping[str, float]
    engines: Mapping[str, EngineRates]

    def of(self, release: str) -> DpuRates:
        """A release's rates; those of the newest one before it, or of the oldest, where it has
        none.
        """
        before = [name for name in self.releases if release_order(name) <= release_order(release)]
        oldest = min(self.releases, key=release_order)
        return self.releases[max(before, key=release_order, default=oldest)]

    @property
    def newest(self) -> str:
        """The newest release with rates."""
        return max(self.releases, key=release_order)


@frozen
class BoardRates:
    """What the rates say of one board.

    Attributes:
        rates: Its rates.
        host_ratio: Time of the host's processors over those of a 1.2 GHz Cortex-A53.
        single_log_sigma: Spread of the time of one image on one core.
        multi_log_sigma: Spread of the time per image with several cores busy.
        gate_log_sigma: Spread of the time in gates and activations of their own.
        has_engines: Whether the cores are engines of one batch.
    """

    rates: DpuRates
    host_ratio: float
    single_log_sigma: float
    multi_log_sigma: float
    gate_log_sigma: float
    has_engines: bool = False

    def log_sigma(self, gate_fraction: float, *, is_shared: bool) -> float:
        """Spread of a network's time: few of the measured networks have gates, so that more of them
        tell less.

        Estimate: measured spreads weighted by the time in gates.

        Args:
            gate_fraction: Share of the time in gates and activations of their own.
            is_shared: Whether several cores are busy.
        """
        measured = self.multi_log_sigma if is_shared else self.single_log_sigma
        return float(np.hypot(measured, gate_fraction * self.gate_log_sigma))


def release_order(release: str) -> tuple[int, ...]:
    """Numbers of a release, which sort as releases follow each other."""
    return tuple(int(number) for number in re.findall(r"\d+", release))


@cache
def shipped_rates() -> ShippedRates:
    """The rates in `calibration/class/dpu.yaml`.

    Raises:
        ProfileError: If the file is missing or malformed.
    """
    data = read_yaml(data_root() / "calibration" / "class" / "dpu.yaml")
    boards = data["boards"]
    return ShippedRates(
        families=frozenset(data["families"]),
        releases={name: DpuRates(**values) for name, values in data["releases"].items()},
        host_hz={name: 1e9 * entry["host_clock_ghz"] for name, entry in boards.items()},
        unseen=frozenset(name for name, entry in boards.items() if not entry["fitted"]),
        log_sigma=data["log_sigma"],
        engines={
            name: EngineRates(
                DpuRates(**entry["rates"]),
                frozenset(entry["boards"]),
                **{f"{threads}_log_sigma": sigma for threads, sigma in entry["log_sigma"].items()},
            )
            for name, entry in data["engines"].items()
        },
    )


@lru_cache(maxsize=64)
def board_rates(name: str) -> BoardRates | None:
    """The newest release's rates for a board; None where its core was not measured.

    Args:
        name: Catalogue name.
    """
    shipped = shipped_rates()
    for engine in shipped.engines.values():
        if name in engine.boards:
            spreads = (engine.single_log_sigma, engine.multi_log_sigma)
            return BoardRates(engine.rates, 1.0, *spreads, shipped.log_sigma["gates"], True)
    if name not in shipped.host_hz:
        return None
    way = "unseen core" if name in shipped.unseen else "layers"
    spreads = (shipped.log_sigma[f"single {way}"], shipped.log_sigma[f"multi {way}"])
    host_ratio = _REFERENCE_HOST_HZ / shipped.host_hz[name]
    rates = shipped.of(shipped.newest)
    return BoardRates(rates, host_ratio, *spreads, shipped.log_sigma["gates"])


def core_sides(core: DpuCore) -> tuple[float, float, float]:
    """(PP, ICP, OCP) of a core."""
    outputs = float(core.output_channel_parallelism.value)
    return float(core.pixel_parallelism.value), float(core.input_channel_parallelism.value), outputs


def boards_of_device(device: FpgaProfile, host_ratio: float, active_cores: float) -> DpuBoards:
    """One board that runs one network on some of its cores.

    Args:
        device: A board with an overlay.
        host_ratio: Time of its host's processors over those of a 1.2 GHz Cortex-A53.
        active_cores: Cores at work, 1 to all.
    """
    core = device.overlay
    assert core is not None
    memory = main_memory_bandwidth_bytes_per_s(device)
    return DpuBoards(
        np.array([core_sides(core)]),
        np.array([core.clock_hz.value]),
        np.array([active_cores]),
        np.array([memory]),
        np.array([host_ratio]),
    )
