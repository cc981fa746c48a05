"""Timers that stand noise: thread CPU time and undisturbed wall time on a CPU, events on a GPU.

On one thread the least CPU time of several blocks is immune to other processes taking the core. On
several threads the framework's workers spin, so CPU time says nothing; there a block counts as
undisturbed when no thread of the process waited for a core while it ran (run-queue time in
``/proc/self/task/*/schedstat``; where the system does not say, when none was descheduled against
its will), and the least wall time of undisturbed blocks is taken. Calls amid other work are timed
one by one, and their median is taken, as is that of a whole model. On a GPU events are recorded
around blocks of calls that are already queued, and the median is taken.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

__all__ = ["AmidTimer", "CpuTimer", "CudaTimer", "Timer", "Timing"]

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of one call.

    Attributes:
        time_s: Best estimate for an undisturbed machine.
        cpu_s: Least CPU time of the calling thread; None on a GPU.
        wall_median_s: Median wall time.
        noise_fraction: Median over best estimate, less 1.
        median_s: Median CPU time on one thread, median wall time of undisturbed blocks on several.
        mean_s: Their mean without the slowest twentieth: what a call takes where calls differ in
            their page faults.
        block_count: Blocks timed.
        calls_per_block: Calls in each.
        minor_faults: Page faults per call in the best block; None on a GPU.
        undisturbed: Whether the estimate comes from a block without forced context switches.
    """

    time_s: float
    cpu_s: float | None
    wall_median_s: float
    noise_fraction: float
    median_s: float
    mean_s: float
    block_count: int
    calls_per_block: int
    minor_faults: float | None
    undisturbed: bool

    def of_each(self, count: int) -> Timing:
        """The time of one of `count` equal parts of the call."""
        return replace(
            self,
            time_s=self.time_s / count,
            cpu_s=None if self.cpu_s is None else self.cpu_s / count,
            wall_median_s=self.wall_median_s / count,
            median_s=self.median_s / count,
            mean_s=self.mean_s / count,
            calls_per_block=self.calls_per_block * count,
            minor_faults=None if self.minor_faults is None else self.minor_faults / count,
        )


class Timer(Protocol):
    """Times calls on one kind of device."""

    def measure(self, calls: Sequence[Call], budget_s: float) -> Timing:
        """Time per call, from blocks that together take about `budget_s`."""
        ...


@runtime_checkable
class AmidTimer(Protocol):
    """Times calls one by one, with other work between them."""

    def measure_amid(self, calls: Sequence[Call], between: Call, budget_s: float) -> Timing:
        """Time per call."""
        ...


@dataclass(frozen=True, slots=True)
class _Block:
    cpu_s: float
    wall_s: float
    switches: int
    faults: int
    waited_s: float | None

    @property
    def is_calm(self) -> bool:
        """Whether no other process took a core from it."""
        return self.switches == 0 if self.waited_s is None else self.waited_s <= 0.02 * self.wall_s


def _mean(times: Sequence[float]) -> float:
    """Mean without the slowest twentieth."""
    return statistics.fmean(sorted(times)[: len(times) - len(times) // 20])


def _nothing() -> None:
    """A call that does nothing."""


def _waited_s() -> float | None:
    """Time all threads of this process have waited for a core so far; None where the system does
    not say.
    """
    total = 0
    try:
        for task in Path("/proc/self/task").iterdir():
            total += int((task / "schedstat").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total * 1e-9


class CpuTimer:
    """Times calls on the CPU.

    Args:
        threads: Threads the framework uses.
        least_blocks: Blocks to time even past the budget.
    """

    #: A block is long enough that reading clocks (about 1 us) does not show.
    BLOCK_S = 1.0e-3
    #: Limits of the search for undisturbed blocks.
    MOST_BLOCKS = 25
    MOST_S = 0.25

    def __init__(self, threads: int, least_blocks: int = 3) -> None:
        self.threads, self.least_blocks = threads, least_blocks
        self._empty: float | None = None

    def measure(self, calls: Sequence[Call], budget_s: float) -> Timing:
        """Time per call; calls are cycled through."""
        once = self._block(calls, 0, 1)
        number = max(1, round(self.BLOCK_S / max(once.wall_s, 1e-7)))
        if number > 1:
            once = self._block(calls, 1, max(1, number // 8))
            number = max(1, round(self.BLOCK_S / max(once.wall_s / max(1, number // 8), 1e-7)))
        number = min(max(number, 1), 5000)
        blocks: list[_Block] = []
        end = time.perf_counter() + budget_s
        start = 1
        while (
            len(blocks) < self.least_blocks
            or time.perf_counter() < end
            or self._should_go_on(blocks)
        ):
            blocks.append(self._block(calls, start, number))
            start += number
            # CPU time of long calls is steady: the time goes to other cases
            enough = 1 if self.threads == 1 and blocks[-1].wall_s > 10 * budget_s else 2
            if blocks[-1].wall_s > 2 * budget_s and len(blocks) >= enough:
                break
        return self._timing(blocks, number)

    #: Calls timed one by one.
    FEWEST_CALLS, MOST_CALLS = 5, 25

    def measure_amid(self, calls: Sequence[Call], between: Call, budget_s: float) -> Timing:
        """Median time per call with other work before each; calls are cycled through.

        Args:
            calls: Calls.
            between: Done before each call, untimed.
            budget_s: Time for all, other work included.
        """
        blocks: list[_Block] = []
        end = time.perf_counter() + budget_s
        while len(blocks) < self.FEWEST_CALLS or (
            len(blocks) < self.MOST_CALLS and time.perf_counter() < end
        ):
            between()
            blocks.append(self._block(calls, len(blocks), 1))
            if len(blocks) >= 3 and blocks[-1].wall_s > budget_s:
                break
        calm = [block for block in blocks if block.is_calm]
        times = sorted(
            (block.cpu_s if self.threads == 1 else block.wall_s) for block in calm or blocks
        )
        middle = max(statistics.median(times) - self._empty_s(), 1e-9)
        return Timing(
            time_s=middle,
            cpu_s=min(block.cpu_s for block in blocks),
            wall_median_s=statistics.median(block.wall_s for block in blocks),
            noise_fraction=(times[-1 - len(times) // 4] - times[len(times) // 4]) / (2.0 * middle),
            median_s=middle,
            mean_s=max(_mean(times) - self._empty_s(), 1e-9),
            block_count=len(blocks),
            calls_per_block=1,
            minor_faults=statistics.median(block.faults for block in blocks),
            undisturbed=bool(calm),
        )

    def _empty_s(self) -> float:
        """What timing a call that does nothing reads."""
        if self._empty is None:
            blocks = [self._block([_nothing], 0, 1) for _ in range(25)]
            self._empty = statistics.median(
                block.cpu_s if self.threads == 1 else block.wall_s for block in blocks
            )
        return self._empty

    def _should_go_on(self, blocks: Sequence[_Block]) -> bool:
        """On several threads, for an undisturbed block or two."""
        if (
            self.threads == 1
            or len(blocks) >= self.MOST_BLOCKS
            or sum(block.wall_s for block in blocks) > self.MOST_S
        ):
            return False
        return sum(block.is_calm for block in blocks) < 2

    def _block(self, calls: Sequence[Call], start: int, number: int) -> _Block:
        count = len(calls)
        work = [calls[(start + i) % count] for i in range(number)]
        waited = _waited_s() if self.threads > 1 else None
        before = resource.getrusage(resource.RUSAGE_SELF)
        wall, cpu = time.perf_counter(), time.thread_time()
        for call in work:
            call()
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        after = resource.getrusage(resource.RUSAGE_SELF)
        later = _waited_s() if waited is not None else None
        waited = later - waited if waited is not None and later is not None else None
        switches, faults = after.ru_nivcsw - before.ru_nivcsw, after.ru_minflt - before.ru_minflt
        return _Block(cpu, wall, switches, faults, waited)

    def _timing(self, blocks: Sequence[_Block], number: int) -> Timing:
        calm = [block for block in blocks if block.is_calm]
        walls = [block.wall_s for block in blocks]
        if self.threads == 1:
            best, times = (
                min(blocks, key=lambda block: block.cpu_s),
                [block.cpu_s for block in blocks],
            )
        else:
            best = min(calm or blocks, key=lambda block: block.wall_s)
            times = [block.wall_s for block in calm or blocks]
        time_s, middle = min(times), statistics.median(times)
        return Timing(
            time_s=time_s / number,
            cpu_s=min(block.cpu_s for block in blocks) / number,
            wall_median_s=statistics.median(walls) / number,
            noise_fraction=middle / time_s - 1.0 if time_s > 0 else 0.0,
            median_s=middle / number,
            mean_s=_mean(times) / number,
            block_count=len(blocks),
            calls_per_block=number,
            minor_faults=best.faults / number,
            undisturbed=bool(calm),
        )


class CudaTimer:
    """Times calls on a GPU by events around blocks, or by wall time where the host cannot keep the
    queue filled.

    Args:
        cuda: ``torch.cuda``, or a stand-in with Event and synchronize.
        least_blocks: Blocks to time even past the budget.
        warm_up_calls: Calls before the first block, for library set-up and clocks.
    """

    BLOCK_S = 2.0e-3

    def __init__(self, cuda: Any, least_blocks: int = 7, warm_up_calls: int = 3) -> None:
        self.cuda, self.least_blocks, self.warm_up_calls = cuda, least_blocks, warm_up_calls

    def measure(self, calls: Sequence[Call], budget_s: float) -> Timing:
        """Median time per call; calls are cycled through, on operands that together exceed the
        cache.
        """
        for call in list(calls[: self.warm_up_calls]) + [calls[0]] * max(
            0, self.warm_up_calls - len(calls)
        ):
            call()
        self.cuda.synchronize()
        once = self._block(calls, 0, 4) / 4
        number = min(max(1, round(self.BLOCK_S / max(once, 1e-7))), 2000)
        times: list[float] = []
        end = time.perf_counter() + budget_s
        while len(times) < self.least_blocks or time.perf_counter() < end:
            times.append(self._block(calls, len(times) * number, number) / number)
            if len(times) >= 3 and times[-1] * number > budget_s:
                break
        middle = statistics.median(times)
        spread = statistics.median(abs(t - middle) for t in times)
        noise = spread / middle if middle > 0 else 0.0
        return Timing(
            middle, None, middle, noise, middle, _mean(times), len(times), number, None, True
        )

    def _block(self, calls: Sequence[Call], start: int, number: int) -> float:
        first, last = (self.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for i in range(number):
            calls[(start + i) % len(calls)]()
        last.record()
        last.synchronize()
        elapsed_ms: float = first.elapsed_time(last)
        return elapsed_ms / 1e3
