"""What a replica with paged cache blocks holds: running sequences, begun prompts, shared blocks.

Blocks are given to parts of prompts, to sequences as they grow, and to prefixes that requests
share; where none is left the youngest request is put back, its cache dropped or kept on the host
(Kwon et al., SOSP 2023; vLLM 0.9, v1/core/kv_cache_manager.py).

All sequences gain a token per step, so a counter of steps says when each ends (a heap) and when
each needs a block (its length modulo the block size): an event costs the same whatever runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappush
from itertools import chain

from accelsim.serving.loads.requests import NO_GROUP, RequestLog
from accelsim.serving.replicas.prefix_cache import PrefixCache
from accelsim.serving.schedulers.base import Scheduler, WaitingQueue
from accelsim.serving.schedulers.limits import BatchLimits, SequenceBlocks


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt that is being computed.

    Attributes:
        request: Its request.
        computed: Tokens that are cached.
        target: Tokens in all.
        shared: Blocks of its cache that are not its own.
        depth: Blocks of its chain that it holds.
        blocks: Blocks of its cache, those that are not its own too.
    """

    request: int
    computed: int
    target: int
    shared: int
    depth: int
    blocks: int


class PagedBatch(Scheduler):
    """Requests of one replica and the cache blocks they hold.

    Args:
        log: Requests, and what becomes of them.
        limits: What a batch may hold.
        cache: Blocks that requests may share; None for none.
        queue: Where requests wait; first come, first served where None.
        comes_cached: Whether requests come with the cache of their prompt and their first token,
            which another replica has computed.
    """

    def __init__(
        self,
        log: RequestLog,
        limits: BatchLimits,
        cache: PrefixCache | None = None,
        queue: WaitingQueue | None = None,
        *,
        comes_cached: bool = False,
    ) -> None:
        super().__init__(log, queue)
        self.limits, self.cache, self.comes_cached = limits, cache, comes_cached
        self.capacity_blocks = limits.blocks
        self._size = limits.block_tokens
        most_cached = limits.sequence.most_filled(limits.blocks) * limits.block_tokens
        self._most_tokens = min(most_cached, limits.most_positions or most_cached)
        self._watermark = int(limits.blocks * limits.watermark_fraction)
        self._promises = limits.reserve == "sequence"
        self._by_part = limits.reserve == "part"
        self._sequence = limits.sequence
        self._alike = limits.sequence == SequenceBlocks()
        self._chained = limits.sequence.full_layers  # cache blocks of one that requests share
        self._clear()

    def _clear(self) -> None:
        """Begin with nothing."""
        self._blocks = self._free = self.limits.blocks  # neither held nor cached
        self._partial: list[Prompt] = []
        #: Step counter at which each sequence joined, its length then, and the counter it ends at.
        self._running: dict[int, tuple[int, int, int]] = {}
        self._ends: list[tuple[int, int]] = []
        #: Blocks of its chain that each sequence holds, and those of its cache not its own.
        self._shared: dict[int, tuple[int, int]] = {}
        self._context = 0
        self._growth = 0  # blocks that sequences begin in a block's tokens, where not all alike
        self._counter = 0
        #: Sequences whose next block comes at each remainder of the counter, twice over.
        self._due = [0] * (2 * self.limits.block_tokens)
        self._left: dict[int, int] = {}  # tokens still to come of requests put back
        #: Blocks of host memory by request whose cache is outside the device.
        self._outside: dict[int, int] = {}
        self._swapped = 0
        self._move_s = 0.0  # moves of caches that the next step waits for
        self._promised = 0  # blocks of whole sequences that have started

    @property
    def used_blocks(self) -> int:
        """Cache blocks that requests hold."""
        return self._blocks - self._room()

    @property
    def hit_tokens(self) -> int | None:
        """Tokens of prompts that were cached when they came; see `Scheduler`."""
        return None if self.cache is None else self.cache.hit_count * self._size

    def _tokens_of_all(self, request: int) -> int:
        """Tokens of a request's longest cache."""
        log = self.log
        tokens: int = log.prompt_tokens[request] + (log.output_tokens[request] or 1) - 1
        return tokens

    def _blocks_of_all(self, request: int) -> int:
        """Blocks of a request's longest cache."""
        return self._blocks_of(request, self._tokens_of_all(request))

    def _blocks_of(self, request: int, tokens: int) -> int:
        """Blocks that a request takes with so many tokens cached.

        Blocks of a fixed number of tokens: Kwon et al., SOSP 2023.
        """
        filled = -(-tokens // self._size)
        if self._alike:
            return filled
        per_filled, at_start = self._terms(request)
        return per_filled * filled + at_start

    def _terms(self, request: int) -> tuple[int, int]:
        return self._sequence.terms(-(-self._tokens_of_all(request) // self._size))

    def _refusal(self, request: int) -> str:
        """Why a request is longer than the replica can hold."""
        tokens, limits = self._tokens_of_all(request), self.limits
        if limits.most_positions and tokens > limits.most_positions:
            return f"needs {tokens:,} positions, the model has {limits.most_positions:,}"
        return (
            f"needs {self._blocks_of_all(request):,} cache blocks of {limits.block_tokens} tokens, "
            f"the replica has {limits.blocks:,}"
        )

    # sequences

    def _add(self, request: int, length: int, left: int) -> None:
        """Let a sequence run `left` further steps."""
        counter = self._counter
        self._running[request] = (counter, length, counter + left)
        if left > 0:
            heappush(self._ends, (counter + left, request))
        self._context += length
        self._count_growth(request, counter - length, 1)

    def _remove(self, request: int) -> int:
        """Take a sequence out of the batch; gives its length."""
        joined, length, _ = self._running.pop(request)
        self._count_growth(request, joined - length, -1)
        length += self._counter - joined
        self._context -= length
        return length

    def _count_growth(self, request: int, offset: int, sign: int) -> None:
        """Count a sequence in or out whose next block comes when the counter, less `offset`, is a
        multiple of a block's tokens.
        """
        remainder, blocks = offset % self._size, sign
        if not self._alike:
            blocks *= self._terms(request)[0]
            self._growth += blocks
        self._due[remainder] += blocks
        self._due[remainder + self._size] += blocks

    # cache blocks

    def _release(self, request: int, length: int) -> None:
        """Give a sequence's blocks back; those of a session stay cached."""
        if self._promises:
            self._promised -= self._blocks_of_all(request)
        freed = -(-length // self._size) if self._alike else self._blocks_of(request, length)
        if self.cache is not None and (chain_blocks := self._shared.pop(request, None)) is not None:
            depth, shared = chain_blocks
            group = self._group(request)
            shared += self.cache.extend(group, self._chain(request, length))
            freed -= self._chained * shared
            self.cache.release(group, depth)
        self._free += freed

    def _share(self, prompt: Prompt) -> None:
        """Let others share the blocks of a prompt that is done."""
        request, cache = prompt.request, self.cache
        if cache is None or (group := self._group(request)) == NO_GROUP:
            return
        chain = self._chain(request, prompt.computed)
        added = cache.extend(group, chain)
        if added:
            cache.move(group, prompt.depth, chain)
            prompt.depth = chain
            prompt.shared += added

    def _group(self, request: int) -> int:
        groups = self.log.prefix_group
        return NO_GROUP if groups is None else groups[request]

    def _chain(self, request: int, length: int) -> int:
        """Whole blocks of a cache that a request may share with others of its group."""
        tokens = self.log.prefix_tokens
        if tokens is None or self._group(request) == NO_GROUP:
            return 0
        return min(tokens[request], length) // self._size

    def _room(self) -> int:
        """Blocks that can be had: free ones, and those of prefixes that nobody holds."""
        cache = self.cache
        return self._free if cache is None else self._free + self._chained * cache.idle_count

    def _take(self, blocks: int) -> None:
        """Take so many blocks, of those there is room for.

        Least recently used prefixes go first (vLLM 0.9, 2025, v1/core/block_pool.py).
        """
        self._free -= blocks
        if self._free < 0 and self.cache is not None:
            chain_blocks = -(self._free // self._chained)
            self.cache.give_up(chain_blocks)
            self._free += self._chained * chain_blocks

    def _blocks_between(self, counter: int, steps: int) -> int:
        """Blocks that the running sequences begin in so many steps from a counter on.

        Blocks of a fixed number of tokens: Kwon et al., SOSP 2023.
        """
        size = self._size
        start, rest_steps = counter % size, steps % size
        growth = len(self._running) if self._alike else self._growth
        return steps // size * growth + sum(self._due[start : start + rest_steps])

    def _blocks_for(self, prompt: Prompt, tokens: int) -> int:
        """Blocks that a prompt lacks for a part."""
        length = prompt.computed + tokens if self._by_part else prompt.target
        return self._blocks_of(prompt.request, length) - prompt.blocks

    def _fits(self, request: int, blocks: int) -> bool:
        """Whether a request may start that takes so many blocks now.

        A watermark of free blocks keeps begun requests from being put back at once (vLLM 0.9, 2025,
        core/block_manager.py); engines that reserve whole sequences promise all their blocks
        (TensorRT-LLM, CapacitySchedulerPolicy.GUARANTEED_NO_EVICT).
        """
        if self._promises and (self._running or self._partial):
            promised = self._promised + self._blocks_of_all(request)
            return promised <= self._blocks - self._watermark
        watermark = self._watermark if self._running or self._partial else 0
        return blocks + watermark <= self._room()

    def _hits(self, cache: PrefixCache, request: int, target: int) -> int:
        """Cached blocks that a prompt starts with; at least one token is computed."""
        return min(cache.reach(self._group(request)), self._chain(request, target - 1))

    def _hold(self, cache: PrefixCache, group: int, shared: int) -> None:
        """Hold the first blocks of a chain; those on the host alone are loaded.

        Estimate: a step waits for the whole load, a block after the other.
        """
        on_device = min(cache.on_device(group), shared) if cache.host_blocks else shared
        cache.hold(group, on_device)
        cache.hit_count += shared
        if shared > on_device:
            loaded = self._chained * (shared - on_device)
            self._take(loaded)
            self._free += loaded - self._chained * cache.extend(group, shared)
            cache.move(group, on_device, shared)
            self._move_s += (shared - on_device) * self.limits.swap_block_s

    def _reserve(self) -> bool:
        """A block for each sequence that begins one in this step; puts the youngest back while
        there are too few, and says whether it did.
        """
        remainder, preempted = self._counter % self._size, False
        while (needed := self._due[remainder]) > self._free and needed > self._room():
            self._put_back(self._youngest())
            preempted = True
        self._take(needed)
        return preempted

    def _youngest(self) -> int:
        """The youngest request, of those of the last priority where they have some (vLLM 0.9,
        v1/core/sched/scheduler.py, SchedulingPolicy.PRIORITY).
        """
        prompts = (prompt.request for prompt in reversed(self._partial))
        requests, priority = chain(prompts, reversed(self._running)), self.log.requests.priority
        return next(requests) if priority is None else max(requests, key=priority.__getitem__)

    def _put_back(self, request: int) -> None:
        """Preempt a request: its cache is dropped, or kept in host memory where it fits.

        Recomputation and swapping: Kwon et al., SOSP 2023, section 4.5.
        """
        self.tally.preemption_count += 1
        self.waiting.appendleft(request)
        if request not in self._running:
            prompt = next(prompt for prompt in self._partial if prompt.request == request)
            self._partial.remove(prompt)
            if self._promises:
                self._promised -= self._blocks_of_all(request)
            self._free += prompt.blocks - self._chained * prompt.shared
            if self.cache is not None:
                self.cache.release(self._group(request), prompt.depth)
            return
        self._left[request] = self._running[request][2] - self._counter
        length = self._remove(request)
        self._release(request, length)
        blocks = self._blocks_of(request, length)
        if self._swapped + blocks <= self.limits.swap_blocks:
            self._outside[request] = blocks
            self._swapped += blocks
            self._move_s += blocks * self.limits.swap_block_s

    def _leave_queue(self, request: int) -> None:
        """Take the first request out of the queue, as it starts."""
        self.waiting.popleft()
        if self._promises:
            self._promised += self._blocks_of_all(request)

    def _resume(self, request: int, now_s: float) -> int | None:
        """Let a sequence go on whose cache is outside the device; takes the token of this step.

        Swapped caches move back in one go: Kwon et al., SOSP 2023, section 4.5.
        """
        log, left, mixed = self.log, self._left[request], self.limits.mixed
        length = log.prompt_tokens[request] + log.output_tokens[request] - left - 1
        needed = self._blocks_of(request, length + mixed)
        if not self._fits(request, needed):
            return None
        self._leave_queue(request)
        self._take(needed)
        swapped = self._outside.pop(request)
        self._swapped -= swapped
        self._move_s += swapped * self.limits.swap_block_s
        del self._left[request]
        self._add(request, length, left)
        if self.comes_cached and left == log.output_tokens[request] - 1:
            log.first_token_s[request] = now_s
        return 1
