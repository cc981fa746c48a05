"""Continuous batching with chunked prefill and paged cache blocks, as vLLM v1 schedules.

Each step gives every running sequence one token, then the rest of the token budget to prompts that
are part done, then to waiting ones while sequences and blocks allow; if a sequence finds no block,
the youngest is put back to the head of the queue, to be computed again (Kwon et al., SOSP 2023;
vLLM 0.9, v1/core/sched/scheduler.py). Engines that keep prompts and tokens in separate steps are
the same with `mixed` off.

All sequences gain a token per step, so a counter of steps says when each ends (a heap) and when
each needs a block (its length modulo the block size): an event costs the same whatever runs.
"""

from __future__ import annotations

from heapq import heappop, heappush

from accelsim.simulation.serving.prefix_cache import PrefixCache
from accelsim.simulation.serving.requests import NO_GROUP, RequestLog
from accelsim.simulation.serving.schedulers.base import NEVER, Scheduler, WaitingQueue
from accelsim.simulation.serving.schedulers.limits import BatchLimits
from accelsim.simulation.serving.step_times import StepTimes


class _Prompt:
    """A prompt that is being computed."""

    __slots__ = ("blocks", "depth", "done", "request", "shared", "target")

    def __init__(self, request: int, done: int, target: int, shared: int, blocks: int) -> None:
        self.request, self.done, self.target = request, done, target
        self.depth = shared  # blocks of its chain that it holds
        self.shared = shared  # blocks of its cache that are not its own
        self.blocks = blocks  # of its cache, those that are not its own too


class ContinuousBatching(Scheduler):
    """One replica with continuous batching.

    Args:
        log: Requests, and what becomes of them.
        steps: What steps take.
        limits: What a batch may hold.
        cache: Blocks that requests may share; None for none.
        queue: Where requests wait; first come, first served where None.
        comes_cached: Whether requests come with the cache of their prompt and their first token,
            which another replica has computed.
    """

    __slots__ = (
        "_blocks",
        "_by_part",
        "_chunks",
        "_context",
        "_counter",
        "_due",
        "_ended",
        "_ends",
        "_free",
        "_joules",
        "_left",
        "_max_seqs",
        "_max_tokens",
        "_mixed",
        "_more_blocks",
        "_move_s",
        "_note",
        "_outside",
        "_partial",
        "_parts",
        "_promised",
        "_promises",
        "_running",
        "_seconds",
        "_shared",
        "_size",
        "_stall_s",
        "_start_s",
        "_step_count",
        "_swapped",
        "_watermark",
        "cache",
        "comes_cached",
        "limits",
        "steps",
    )

    def __init__(
        self,
        log: RequestLog,
        steps: StepTimes,
        limits: BatchLimits,
        cache: PrefixCache | None = None,
        queue: WaitingQueue | None = None,
        *,
        comes_cached: bool = False,
    ) -> None:
        super().__init__(log, queue)
        self.steps, self.limits, self.cache = steps, limits, cache
        self.comes_cached = comes_cached
        self._note = self.tally.rows.append
        self.capacity_blocks = limits.blocks
        self._watermark = int(limits.blocks * limits.watermark_fraction)
        self._promises = limits.reserve == "sequence"
        self._mixed, self._size = limits.mixed, limits.block_tokens
        self._max_tokens, self._max_seqs = limits.max_tokens, limits.max_seqs
        self._by_part = limits.reserve == "part"
        self._clear()

    def _clear(self) -> None:
        """Begin with nothing."""
        self._blocks = self._free = self.limits.blocks  # neither held nor cached
        self._partial: list[_Prompt] = []
        self._chunks: list[tuple[_Prompt, int]] = []
        self._parts: list[tuple[float, float]] = []  # steps that one prompt fills
        #: Step counter at which each sequence joined, its length then, and the counter it ends at.
        self._running: dict[int, tuple[int, int, int]] = {}
        self._ends: list[tuple[int, int]] = []
        #: Blocks of its chain that each sequence holds, and those of its cache not its own.
        self._shared: dict[int, tuple[int, int]] = {}
        self._context = 0
        self._counter = 0
        #: Sequences whose next block comes at each remainder of the counter, twice over.
        self._due = [0] * (2 * self.limits.block_tokens)
        self._left: dict[int, int] = {}  # tokens still to come of requests put back
        #: Blocks of host memory by request whose cache is outside the device.
        self._outside: dict[int, int] = {}
        self._swapped = 0
        self._move_s = 0.0  # moves of caches that the next step waits for
        self._start_s = self._seconds = self._joules = 0.0
        self._step_count = self._more_blocks = 0
        self._stall_s = 0.0
        self._ended: list[int] = []
        self._promised = 0  # blocks of whole sequences that have started

    @property
    def used_blocks(self) -> int:
        """Cache blocks that requests hold."""
        idle = 0 if self.cache is None else self.cache.idle_count
        return self.limits.blocks - self._free - idle

    def submit(self, request: int, now_s: float) -> None:
        """Queue a request; see `Scheduler`."""
        log = self.log
        if (needed := self._blocks_of_all(request)) > self._blocks:
            log.rejected[request] = (
                f"needs {needed:,} cache blocks of {self.limits.block_tokens} tokens, the replica "
                f"has {self.limits.blocks:,}"
            )
            return
        if self.comes_cached:
            self._left[request] = log.output_tokens[request] - 1
            self._outside[request] = 0
        self.waiting.append(request)
        self.outstanding += 1
        if self.ready_s == NEVER:
            self._begin(now_s)
        elif self._step_count > 1 and not self._chunks and len(self.waiting) == 1:
            self._shorten(now_s)

    def _blocks_of_all(self, request: int) -> int:
        """Blocks of a request's longest cache."""
        log = self.log
        tokens: int = log.prompt_tokens[request] + (log.output_tokens[request] or 1) - 1
        return -(-tokens // self._size)

    def advance(self) -> list[int]:
        """Pass the event at `ready_s`; see `Scheduler`."""
        now_s = self.ready_s
        self._complete(now_s)
        self._begin(now_s)
        ended = self._ended
        if ended:
            self._ended = []
            self.tally.sum_up()
        return ended

    def abandon(self) -> list[int]:
        """Lose all there is; see `Scheduler`."""
        lost = [*self._running, *(prompt.request for prompt in self._partial)]
        lost += self.drop_waiting()
        if self.cache is not None:
            self.cache.clear()
        self._clear()
        self.ready_s, self.outstanding = NEVER, 0
        return lost

    # a step's end

    def _complete(self, now_s: float) -> None:
        """Account for the steps that end now, and let sequences and prompts go on or end."""
        steps, running = self._step_count, self._running
        count = len(running)
        if steps > 1:
            self._free -= self._more_blocks
            if self._free < 0:
                self._make_room(0)
        used = self._blocks - self._free
        if self.cache is not None:
            used -= self.cache.idle_count
        if steps:
            counter = self._counter = self._counter + steps
            self._context += steps * count
            if self._parts:
                self._note_parts(count, used, now_s)
            else:
                stall_s = self._stall_s
                self._note((self._seconds, self._joules, steps, count, used, stall_s, now_s))
            self._stall_s = 0.0
            ends = self._ends
            while ends and ends[0][0] <= counter:
                end, request = heappop(ends)
                if request in running and running[request][2] == end:
                    self._end(request, now_s)
        else:
            self._note((self._seconds, self._joules, 1, 0, used, 0.0, now_s))
            if count:  # the next token of those that run waits for prompts, too
                self._stall_s += self._seconds
        if self._chunks:
            self._complete_chunks(now_s)

    def _note_parts(self, count: int, used: int, now_s: float) -> None:
        end_s = now_s - sum(seconds for seconds, _ in self._parts)
        for seconds, joules in self._parts:
            end_s += seconds
            self._note((seconds, joules, 1, count, used, 0.0, end_s))
        self._parts = []

    def _complete_chunks(self, now_s: float) -> None:
        partial, cache = self._partial, self.cache
        for prompt, tokens in self._chunks:
            prompt.done = done = prompt.done + tokens
            if done >= prompt.target:
                partial.remove(prompt)
                if cache is not None:
                    self._share(prompt)
                self._join(prompt, now_s)
        self._chunks = []

    def _join(self, prompt: _Prompt, now_s: float) -> None:
        """A prompt that is done emits a token and becomes a sequence, or ends."""
        request, log = prompt.request, self.log
        left = self._left.pop(request, None) if self._left else None
        if left is None:
            log.first_token_s[request] = now_s
            left = log.output_tokens[request]
        if self.cache is not None and self._group(request) != NO_GROUP:
            self._shared[request] = (prompt.depth, prompt.shared)
        self._add(request, prompt.target, left - 1)
        if left <= 1:
            self._end(request, now_s)

    def _add(self, request: int, length: int, left: int) -> None:
        """Let a sequence run `left` further steps."""
        counter, size = self._counter, self._size
        self._running[request] = (counter, length, counter + left)
        if left > 0:
            heappush(self._ends, (counter + left, request))
        self._context += length
        due, place = self._due, (counter - length) % size
        due[place] += 1
        due[place + size] += 1

    def _remove(self, request: int) -> int:
        """Take a sequence out of the batch; gives its length."""
        joined, length, _ = self._running.pop(request)
        size, due = self._size, self._due
        place = (joined - length) % size
        due[place] -= 1
        due[place + size] -= 1
        length += self._counter - joined
        self._context -= length
        return length

    def _end(self, request: int, now_s: float) -> None:
        self._release(request, self._remove(request))
        self.log.finish_s[request] = now_s
        self._ended.append(request)
        self.outstanding -= 1

    # cache blocks

    def _release(self, request: int, length: int) -> None:
        """Give a sequence's blocks back; those of a session stay cached."""
        if self._promises:
            self._promised -= self._blocks_of_all(request)
        own = -(-length // self._size)
        if self.cache is not None and (held := self._shared.pop(request, None)) is not None:
            depth, shared = held
            group = self._group(request)
            own -= shared + self.cache.extend(group, self._chain(request, length))
            self.cache.release(group, depth)
        self._free += own

    def _share(self, prompt: _Prompt) -> None:
        """Let others share the blocks of a prompt that is done."""
        request, cache = prompt.request, self.cache
        if cache is None or (group := self._group(request)) == NO_GROUP:
            return
        chain = self._chain(request, prompt.done)
        added = cache.extend(group, chain)
        if added:
            cache.hold(group, chain)
            cache.release(group, prompt.depth)
            prompt.depth = chain
            prompt.shared += added

    def _group(self, request: int) -> int:
        groups = self.log.asked.prefix_group
        return NO_GROUP if groups is None else int(groups[request])

    def _chain(self, request: int, length: int) -> int:
        """Whole blocks of a cache that a request may share with others of its group."""
        tokens = self.log.asked.prefix_tokens
        if tokens is None or self._group(request) == NO_GROUP:
            return 0
        return min(int(tokens[request]), length) // self.limits.block_tokens

    def _room(self) -> int:
        """Blocks that can be had."""
        return self._free if self.cache is None else self._free + self.cache.idle_count

    def _make_room(self, count: int) -> None:
        """Have so many blocks free, of those there is room for."""
        if self.cache is not None and count > self._free:
            given = count - self._free
            self.cache.give_up(given)
            self._free += given

    def _blocks_between(self, counter: int, steps: int) -> int:
        """Blocks that the running sequences begin in so many steps from a counter on."""
        size = self._size
        start, rest = counter % size, steps % size
        return steps // size * len(self._running) + sum(self._due[start : start + rest])

    def _reserve(self) -> None:
        """A block for each sequence that begins one in this step; puts the youngest back while
        there are too few.
        """
        size = self.limits.block_tokens
        needed = self._due[self._counter % size]
        if needed > self._free:
            while (needed := self._due[self._counter % size]) > self._room():
                self._put_back()
            self._make_room(needed)
        self._free -= needed

    def _put_back(self) -> None:
        """Preempt the youngest request."""
        self.tally.preemption_count += 1
        if self._partial:
            prompt = self._partial.pop()
            if self._promises:
                self._promised -= self._blocks_of_all(prompt.request)
            self._free += prompt.blocks - prompt.shared
            if self.cache is not None:
                self.cache.release(self._group(prompt.request), prompt.depth)
            self.waiting.appendleft(prompt.request)
            return
        request = next(reversed(self._running))
        end = self._running[request][2]
        length = self._remove(request)
        self._left[request] = end - self._counter
        self._release(request, length)
        self._swap_out(request, -(-length // self.limits.block_tokens))
        self.waiting.appendleft(request)

    def _swap_out(self, request: int, blocks: int) -> None:
        """Keep a cache in host memory where it fits."""
        if self._swapped + blocks <= self.limits.swap_blocks:
            self._outside[request] = blocks
            self._swapped += blocks
            self._move_s += blocks * self.limits.swap_block_s

    # a step's start

    def _begin(self, now_s: float) -> None:
        """Choose the next batch and start it."""
        mixed, running = self._mixed, self._running
        if mixed and running:
            needed = self._due[self._counter % self._size]
            if needed > self._free:
                self._reserve()
            else:
                self._free -= needed
        is_single = False
        if self.waiting or self._partial:
            self._choose_prompts(now_s)
        if not mixed and running and not self._chunks:
            waiting_count = len(self.waiting)
            self._reserve()
            is_single = len(self.waiting) > waiting_count
        self._start_s = now_s
        if self._chunks:
            self._start_prompts()
        elif running:
            self._start_run(is_single=is_single or self._move_s > 0)
        else:
            self._step_count, self.ready_s = 0, NEVER
            return
        if self._move_s:
            self._charge_moves()
        self.ready_s = now_s + self._seconds

    def _charge_moves(self) -> None:
        """Let the step wait for caches that move."""
        self._seconds += self._move_s
        self._joules += self._move_s * (self.steps.idle_w or 0.0)
        self._move_s = 0.0

    def _start_prompts(self) -> None:
        """A step with parts of prompts, and those after it that differ in their keys alone."""
        chunks, count = self._chunks, len(self._running) if self._mixed else 0
        context, self._step_count = self._context if count else 0, 1 if count else 0
        prompt, part = chunks[0]
        more = prompt.target - prompt.done - part
        if more > part and count and len(chunks) == 1:
            steps = self._like_steps(prompt, part)
            if steps > 1:
                self._start_parts(prompt, part, steps)
                return
        tokens, keys = 0, 0.0
        for prompt, part in chunks:
            tokens += part
            keys += part * (prompt.done + 0.5 * (part + 1))
        self.tally.prompt_tokens += tokens
        self._seconds, self._joules = self.steps.step(tokens, keys, count, context)

    def _like_steps(self, prompt: _Prompt, part: int) -> int:
        """Steps that one prompt fills alone while no sequence ends and blocks are free: what comes
        meanwhile finds no token of the budget.
        """
        more = (prompt.target - prompt.done - 1) // part
        if more <= 1 or self._move_s or part < self._max_tokens - len(self._running):
            return 1
        steps: int = min(more, self._ends[0][0] - self._counter)
        if steps <= 1:
            return 1
        needed = self._blocks_for(prompt, steps * part)
        self._more_blocks = self._blocks_between(self._counter + 1, steps - 1)
        if needed + self._more_blocks > self._free:
            return 1
        self._free -= needed
        prompt.blocks += needed
        return steps

    def _start_parts(self, prompt: _Prompt, part: int, steps: int) -> None:
        """Start steps with one part of a prompt each."""
        count, context, step = len(self._running), self._context, self.steps.step
        keys = part * (prompt.done + 0.5 * (part + 1))
        parts = self._parts
        for place in range(steps):
            cached = context + place * count
            parts.append(step(part, keys + place * part * part, count, cached))
        self._chunks = [(prompt, steps * part)]
        self.tally.prompt_tokens += steps * part
        self._seconds = sum([seconds for seconds, _ in parts])
        self._joules, self._step_count = 0.0, steps

    def _start_run(self, *, is_single: bool) -> None:
        """Steps up to the first that ends a sequence or runs out of blocks; a single one where a
        request was put back just now, whose blocks others may take.
        """
        ends, running, counter = self._ends, self._running, self._counter
        while (request := ends[0][1]) not in running or running[request][2] != ends[0][0]:
            heappop(ends)
        steps, count = 1 if is_single else ends[0][0] - counter, len(running)
        if steps > 1:
            more, room = self._blocks_between(counter + 1, steps - 1), self._room()
            if more > room:
                steps = 1 + room // count * self._size
                more = self._blocks_between(counter + 1, steps - 1)
            self._more_blocks = more
        self._seconds, self._joules = self.steps.decode_run(count, self._context, steps)
        self._step_count = steps

    def _shorten(self, now_s: float) -> None:
        """End a run with the step that runs now, so that a new request can join."""
        count = len(self._running)
        if count >= self.limits.max_seqs:
            return
        gap_s, steps, run = now_s - self._start_s, self._step_count, self.steps.decode_run
        wanted = min(steps, int(steps * gap_s / self._seconds) + 1)
        seconds, joules = run(count, self._context, wanted)
        while seconds < gap_s and wanted < steps:
            wanted += 1
            seconds, joules = run(count, self._context, wanted)
        while wanted > 1 and (less := run(count, self._context, wanted - 1))[0] >= gap_s:
            wanted -= 1
            seconds, joules = less
        self._step_count, self._seconds, self._joules = wanted, seconds, joules
        self._more_blocks = self._blocks_between(self._counter + 1, wanted - 1)
        self.ready_s = self._start_s + seconds

    def _choose_prompts(self, now_s: float) -> None:
        """Parts of prompts for this step: those begun first, then waiting ones."""
        running = self._running
        budget = self._max_tokens - (len(running) if self._mixed else 0)
        waiting, partial = self.waiting, self._partial
        for prompt in tuple(partial):
            if budget <= 0:
                return
            extended = self._extend(prompt, budget)
            if not extended:
                return
            budget -= extended
        while budget > 0 and waiting and len(running) + len(partial) < self._max_seqs:
            taken = self._admit(waiting[0], budget, now_s)
            if taken is None:
                return
            budget -= taken

    def _extend(self, prompt: _Prompt, budget: int) -> int:
        """A further part of a prompt; gives its tokens."""
        tokens = min(prompt.target - prompt.done, budget)
        needed = self._blocks_for(prompt, tokens)
        if needed <= self._free:
            self._free -= needed
            prompt.blocks += needed
            self._chunks.append((prompt, tokens))
            return tokens
        while needed > self._room():
            if self._running and len(self._partial) == 1:
                return 0  # sequences end and give blocks back
            youngest = self._partial[-1]
            self._put_back()
            if youngest is prompt:
                return 0
        self._make_room(needed)
        self._free -= needed
        prompt.blocks += needed
        self._chunks.append((prompt, tokens))
        return tokens

    def _blocks_for(self, prompt: _Prompt, tokens: int) -> int:
        """Blocks of its own that a prompt lacks for a part."""
        length = prompt.done + tokens if self._by_part else prompt.target
        return -(-length // self._size) - prompt.blocks

    def _admit(self, request: int, budget: int, now_s: float) -> int | None:
        """Start a waiting request; gives the tokens it takes, None where it must wait."""
        log, size, cache = self.log, self._size, self.cache
        if self._outside and request in self._outside:
            return self._resume(request, now_s)
        target: int = log.prompt_tokens[request]
        left = self._left.get(request) if self._left else None
        if left is not None:  # what it generated is part of its prompt now
            target += log.output_tokens[request] - left
        shared = 0 if cache is None else self._hits(request, target)
        done = shared * size
        tokens = target - done
        if tokens > budget:
            if not self.limits.chunked and (self._chunks or target <= self.limits.max_tokens):
                return None
            tokens = budget
        blocks = -(-(done + tokens if self._by_part else target) // size)
        needed = blocks - shared
        revived = 0 if cache is None else max(0, shared - cache.held(self._group(request)))
        if not self._fits(request, needed + revived):
            return None
        self.waiting.popleft()
        if self._promises:
            self._promised += self._blocks_of_all(request)
        if cache is not None:
            self._hold(cache, self._group(request), shared)
            self._make_room(needed)
        self._free -= needed
        prompt = _Prompt(request, done, target, shared, blocks)
        self._partial.append(prompt)
        self._chunks.append((prompt, tokens))
        scheduled_s = log.scheduled_s
        if scheduled_s[request] != scheduled_s[request]:  # NaN: the first time
            scheduled_s[request] = now_s
        return tokens

    def _hold(self, cache: PrefixCache, group: int, shared: int) -> None:
        """Hold the first blocks of a chain; those on the host alone are loaded."""
        here = min(cache.length.get(group, 0), shared)
        cache.hold(group, here)
        cache.hit_count += shared
        if shared > here:
            self._make_room(shared - here)
            self._free -= cache.extend(group, shared)
            cache.hold(group, shared)
            cache.release(group, here)
            self._move_s += (shared - here) * self.limits.swap_block_s

    def _resume(self, request: int, now_s: float) -> int | None:
        """Let a sequence go on whose cache is outside the device; takes the token of this step."""
        log, left, mixed = self.log, self._left[request], self.limits.mixed
        length = log.prompt_tokens[request] + log.output_tokens[request] - left - 1
        needed = -(-(length + mixed) // self.limits.block_tokens)
        if not self._fits(request, needed):
            return None
        self.waiting.popleft()
        if self._promises:
            self._promised += self._blocks_of_all(request)
        self._make_room(needed)
        self._free -= needed
        swapped = self._outside.pop(request)
        self._swapped -= swapped
        self._move_s += swapped * self.limits.swap_block_s
        del self._left[request]
        self._add(request, length, left)
        if self.comes_cached and left == log.output_tokens[request] - 1:
            self.tally.note_pause(now_s - log.first_token_s[request])
        return 1

    def _fits(self, request: int, blocks: int) -> bool:
        """Whether a request may start that takes so many blocks now."""
        if self._promises and (self._running or self._partial):
            promised = self._promised + self._blocks_of_all(request)
            return promised <= self._blocks - self._watermark
        if blocks + self._watermark <= self._free:
            return True
        kept = self._watermark if self._running or self._partial else 0
        return blocks + kept <= self._room()

    def _hits(self, request: int, target: int) -> int:
        """Cached blocks that a prompt starts with; at least one token is computed."""
        if self.cache is None:
            return 0
        chain = self._chain(request, target - 1)
        return min(self.cache.reach(self._group(request)), chain)
