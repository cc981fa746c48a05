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
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Protocol

from accelsim.frozen import frozen

#: Does some work once; what it returns is not used.
Call = Callable[[], object]


@frozen
class Timing:
    """Time of one call.

    Attributes:
        time_s: Best estimate for an undisturbed machine.
        mean_s: Mean without the slowest twentieth: what a call takes where calls differ in their
            page faults.
        noise_fraction: Median over best estimate, less 1.
        block_count: Blocks timed.
        minor_faults: Page faults per call in the best block; None on a GPU.
        undisturbed: Whether the estimate comes from a block without forced context switches.
    """

    time_s: float
    mean_s: float
    noise_fraction: float
    block_count: int
    minor_faults: float | None
    undisturbed: bool

    def of_each(self, count: int) -> Timing:
        """The time of one of `count` equal parts of the call."""
        return replace(self, time_s=self.time_s / count, mean_s=self.mean_s / count)


class Timer(Protocol):
    """Times calls on one kind of device."""

    def measure(self, calls: Sequence[Call], budget_s: float) -> Timing:
        """Time per call, from blocks that together take about `budget_s`."""
        ...


@frozen
class _Block:
    """Calls timed together: time that counts, wall time and what disturbed them."""

    time_s: float
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


def _calls_in(block_s: float, call_s: float, most: int) -> int:
    """Calls that make a block of a length."""
    return min(max(1, round(block_s / max(call_s, 1e-7))), most)


def _waited_s() -> float | None:
    """Time all threads of this process have waited for a core so far; None where the system does
    not say.
    """
    try:
        tasks = Path("/proc/self/task").iterdir()
        return 1e-9 * sum(int((task / "schedstat").read_bytes().split()[1]) for task in tasks)
    except (OSError, ValueError, IndexError):
        return None


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
    #: Calls timed one by one.
    FEWEST_CALLS, MOST_CALLS = 5, 25

    def __init__(self, threads: int, least_blocks: int = 3) -> None:
        self.threads, self.least_blocks = threads, least_blocks

    def measure(self, calls: Sequence[Call], budget_s: float) -> Timing:
        """Time per call; calls are cycled through. Estimate: nothing disturbed the least block."""
        number = _calls_in(self.BLOCK_S, self._block(calls, 0, 1).wall_s, 5000)
        if number > 1:
            tried = max(1, number // 8)
            number = _calls_in(self.BLOCK_S, self._block(calls, 1, tried).wall_s / tried, 5000)
        blocks = self._blocks(calls, number, budget_s)
        calm = [block for block in blocks if block.is_calm]
        used = blocks if self.threads == 1 else calm or blocks
        times = [block.time_s for block in used]
        best = min(used, key=lambda block: block.time_s)
        noise = statistics.median(times) / best.time_s - 1.0 if best.time_s > 0 else 0.0
        faults = best.faults / number
        best_s, mean_s = best.time_s / number, _mean(times) / number
        return Timing(best_s, mean_s, noise, len(blocks), faults, bool(calm))

    def _blocks(self, calls: Sequence[Call], number: int, budget_s: float) -> list[_Block]:
        """Blocks of so many calls, until the budget is spent and enough of them were calm."""
        blocks: list[_Block] = []
        end = time.perf_counter() + budget_s
        while (
            len(blocks) < self.least_blocks
            or time.perf_counter() < end
            or self._should_go_on(blocks)
        ):
            blocks.append(self._block(calls, 1 + len(blocks) * number, number))
            # CPU time of long calls is steady: the time goes to other cases
            enough = 1 if self.threads == 1 and blocks[-1].wall_s > 10 * budget_s else 2
            if blocks[-1].wall_s > 2 * budget_s and len(blocks) >= enough:
                break
        return blocks

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
        times = sorted(block.time_s for block in calm or blocks)
        middle = max(statistics.median(times) - self._empty_s, 1e-9)
        mean = max(_mean(times) - self._empty_s, 1e-9)
        quarter = len(times) // 4
        noise = (times[-1 - quarter] - times[quarter]) / (2.0 * middle)
        faults = statistics.median(block.faults for block in blocks)
        return Timing(middle, mean, noise, len(blocks), faults, bool(calm))

    @cached_property
    def _empty_s(self) -> float:
        """What timing a call that does nothing reads."""
        return statistics.median(self._block([_nothing], 0, 1).time_s for _ in range(25))

    def _should_go_on(self, blocks: Sequence[_Block]) -> bool:
        """On several threads, for an undisturbed block or two."""
        return (
            self.threads > 1
            and len(blocks) < self.MOST_BLOCKS
            and sum(block.wall_s for block in blocks) <= self.MOST_S
            and sum(block.is_calm for block in blocks) < 2
        )

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
        return _Block(cpu if self.threads == 1 else wall, wall, switches, faults, waited)


class CudaTimer:
    """Times calls on a GPU by events around blocks, or by wall time where the host cannot keep the
    queue filled.

    Args:
        cuda: ``torch.cuda``, or a stand-in with Event and synchronize.
        least_blocks: Blocks to time even past the budget.
        warm_up_calls: Calls before the first block, for library set-up and clocks.
    """

    BLOCK_S = 2.0e-3

    def __init__(self, cuda: ModuleType, least_blocks: int = 7, warm_up_calls: int = 3) -> None:
        self.cuda, self.least_blocks, self.warm_up_calls = cuda, least_blocks, warm_up_calls

    def measure(self, calls: Sequence[Call], budget_s: float) -> Timing:
        """Median time per call; calls are cycled through, on operands that together exceed the
        cache. Noise is the median deviation over the median. Estimate: half of the blocks at least
        are undisturbed.
        """
        for number in range(self.warm_up_calls):
            calls[number % len(calls)]()
        self.cuda.synchronize()
        number = _calls_in(self.BLOCK_S, self._block(calls, 0, 4), 2000)
        times: list[float] = []
        end = time.perf_counter() + budget_s
        while len(times) < self.least_blocks or time.perf_counter() < end:
            times.append(self._block(calls, len(times) * number, number))
            if len(times) >= 3 and times[-1] * number > budget_s:
                break
        middle = statistics.median(times)
        spread = statistics.median(abs(t - middle) for t in times)
        noise = spread / middle if middle > 0 else 0.0
        return Timing(middle, _mean(times), noise, len(times), None, undisturbed=True)

    def _block(self, calls: Sequence[Call], start: int, number: int) -> float:
        """Time per call of a block."""
        start_event, end_event = (self.cuda.Event(enable_timing=True) for _ in range(2))
        start_event.record()
        for i in range(number):
            calls[(start + i) % len(calls)]()
        end_event.record()
        end_event.synchronize()
        elapsed_ms: float = start_event.elapsed_time(end_event)
        return elapsed_ms / 1e3 / number
