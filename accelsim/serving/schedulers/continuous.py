"""Continuous batching with chunked prefill and paged cache blocks, as vLLM v1 schedules.

Each step gives every running sequence one token, then the rest of the token budget to prompts that
are part done, then to waiting ones while sequences and blocks allow; if a sequence finds no block,
the youngest is put back to the head of the queue, to be computed again (Kwon et al., SOSP 2023;
vLLM 0.9, v1/core/sched/scheduler.py). Engines that keep prompts and tokens in separate steps are
the same with `mixed` off.
"""

from __future__ import annotations

from heapq import heappop

from accelsim.serving.loads.requests import NO_GROUP, RequestLog
from accelsim.serving.replicas.prefix_cache import PrefixCache
from accelsim.serving.schedulers.base import NEVER, PriorityQueue, WaitingQueue
from accelsim.serving.schedulers.joining import Unseen
from accelsim.serving.schedulers.limits import BatchLimits
from accelsim.serving.schedulers.paged import PagedBatch, Prompt
from accelsim.serving.steps.step_times import StepCost, StepTimes

#: More steps than a run has.
_MANY = 1 << 60


class ContinuousBatching(PagedBatch):
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
        #: Requests that wait unseen; None where the step after the running one sees all.
        self._unseen = None if limits.join.is_plain else Unseen(limits.join)
        super().__init__(log, limits, cache, queue, comes_cached=comes_cached)
        self.steps, self._mixed = steps, limits.mixed
        self._note = self.tally.rows.append
        self._max_tokens, self._max_seqs = limits.max_tokens, limits.max_seqs

    def _clear(self) -> None:
        """Begin with nothing."""
        super()._clear()
        self._chunks: list[tuple[Prompt, int]] = []
        self._parts: list[StepCost] = []  # steps that one prompt fills
        self._start_s = self._seconds = self._joules = 0.0
        self._step_count = self._more_blocks = 0
        self._stall_s = 0.0
        self._ended: list[int] = []
        if self._unseen is not None:
            self._unseen.clear()

    def submit(self, request: int, now_s: float) -> None:
        """Queue a request; see `Scheduler`."""
        log = self.log
        if self._tokens_of_all(request) > self._most_tokens:
            log.rejected[request] = self._refusal(request)
            return
        if self.comes_cached:
            self._left[request] = log.output_tokens[request] - 1
            self._outside[request] = 0
        self.outstanding += 1
        if self._unseen is not None and self.ready_s != NEVER:
            self._wait_unseen(self._unseen, request, now_s)
            return
        self.waiting.append(request)
        if self.ready_s == NEVER:
            self._begin(now_s)
        elif self._step_count > 1 and not self._chunks and self._may_join(1):
            self._shorten(*self._step_at(now_s))

    def _may_join(self, new_count: int) -> bool:
        """Whether the last of the queue could join: none waits before them, or they have a
        priority, and the batch holds a sequence more.
        """
        is_next = len(self.waiting) == new_count or isinstance(self.waiting, PriorityQueue)
        return is_next and len(self._running) < self._max_seqs

    def _wait_unseen(self, unseen: Unseen, request: int, now_s: float) -> None:
        """Let a request wait until the scheduler looks, and end a run with the step that does."""
        tokens = self.log.prompt_tokens[request]
        if isinstance(self.waiting, PriorityQueue):
            self.waiting.hold(request)
        else:
            self.waiting.append(request)
        if self._step_count <= 1 or self._chunks:
            unseen.add(tokens, 0)
            return
        running = self._step_at(now_s)[0]
        unseen.add(tokens, running - 1)
        look = running + unseen.steps_left(running)
        if self._may_join(unseen.count):
            steps = min(look, self._step_count)
            cost = self.steps.decode_run(len(self._running), self._context, steps)
            self._shorten(steps, cost)
        elif look < self._step_count:  # none can join before the run ends
            unseen.look(look)

    def drop_waiting(self) -> list[int]:
        """Take all that wait out of the queue; see `Scheduler`."""
        if self._unseen is not None:
            self._unseen.look()
        if isinstance(self.waiting, PriorityQueue):
            self.waiting.see(0)
        return super().drop_waiting()

    def advance(self) -> list[int]:
        """Pass the event at `ready_s`; see `Scheduler`."""
        now_s = self.ready_s
        if self._unseen is not None:
            self._unseen.pass_steps(max(self._step_count, 1), prompts=bool(self._chunks))
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
            self._take(self._more_blocks)
        used = self._blocks - self._room()
        if steps:
            self._counter += steps
            self._context += steps * count
            if self._parts:
                self._note_parts(count, used, now_s)
            else:
                stall_s = self._stall_s
                self._note((self._seconds, self._joules, steps, count, used, stall_s, now_s))
            self._stall_s = 0.0
            ends = self._ends
            while ends and ends[0][0] <= self._counter:
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
        partial = self._partial
        for prompt, tokens in self._chunks:
            prompt.computed = computed = prompt.computed + tokens
            if computed >= prompt.target:
                partial.remove(prompt)
                self._share(prompt)
                self._join(prompt, now_s)
        self._chunks = []

    def _join(self, prompt: Prompt, now_s: float) -> None:
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

    def _end(self, request: int, now_s: float) -> None:
        self._release(request, self._remove(request))
        self.log.finish_s[request] = now_s
        self._ended.append(request)
        self.outstanding -= 1

    # a step's start

    def _begin(self, now_s: float) -> None:
        """Choose the next batch and start it."""
        most = self._choose_batch(now_s)
        self._start_s = now_s
        if self._chunks:
            self._start_prompts()
        elif self._running:
            self._start_run(1 if self._move_s else most)
        else:
            self._step_count, self.ready_s = 0, NEVER
            return
        if self._move_s:  # the step waits for caches that move
            self._seconds += self._move_s
            self._joules += self._move_s * (self.steps.idle_w or 0.0)
            self._move_s = 0.0
        self.ready_s = now_s + self._seconds

    def _choose_batch(self, now_s: float) -> int:
        """Blocks for running sequences, and prompts beside them or, where they have steps of their
        own, before them; gives the most steps that the batch may run.
        """
        if self._mixed and self._running:
            self._reserve()
        most = _MANY
        if self.waiting or self._partial:
            most = self._most_steps(now_s)
        if not self._mixed and self._running and not self._chunks and self._reserve():
            most = 1
        return most

    def _most_steps(self, now_s: float) -> int:
        """Choose prompts; gives the most steps until the scheduler looks for requests again."""
        unseen = self._unseen
        if unseen is None or not unseen.count:
            self._choose_prompts(now_s)
            return _MANY
        left = unseen.steps_left()
        if not left and not unseen.ahead:
            unseen.look()
        self._choose_prompts(now_s)
        if unseen.count and not (self._chunks or self._running):  # idle: it looks all the time
            unseen.look()
            self._choose_prompts(now_s)
        if not unseen.count:
            return _MANY
        if not left:
            unseen.look()
            return 1
        return left

    def _start_prompts(self) -> None:
        """A step with parts of prompts, and those after it that differ in their keys alone.

        A part attends to all tokens before it and to its own: Agrawal et al., OSDI 2024, section 4.
        """
        chunks, count = self._chunks, len(self._running) if self._mixed else 0
        context, self._step_count = self._context if count else 0, 1 if count else 0
        prompt, chunk = chunks[0]
        remaining = prompt.target - prompt.computed - chunk
        if remaining > chunk and count and len(chunks) == 1:
            steps = self._like_steps(prompt, chunk)
            if steps > 1:
                self._start_parts(prompt, chunk, steps)
                return
        tokens, keys = 0, 0.0
        for prompt, chunk in chunks:
            tokens += chunk
            keys += chunk * (prompt.computed + 0.5 * (chunk + 1))
        self.tally.prompt_tokens += tokens
        self._seconds, self._joules = self.steps.step(tokens, keys, count, context)

    def _like_steps(self, prompt: Prompt, chunk: int) -> int:
        """Steps that one prompt fills alone while no sequence ends and blocks are free: what comes
        meanwhile finds no token of the budget.

        Prompts that were begun come first: vLLM 0.9, 2025, v1/core/sched/scheduler.py.
        """
        full_steps = (prompt.target - prompt.computed - 1) // chunk
        if full_steps <= 1 or self._move_s or chunk < self._max_tokens - len(self._running):
            return 1
        if self._unseen is not None:
            return 1
        steps: int = min(full_steps, self._ends[0][0] - self._counter)
        if steps <= 1:
            return 1
        needed = self._blocks_for(prompt, steps * chunk)
        self._more_blocks = self._blocks_between(self._counter + 1, steps - 1)
        if needed + self._more_blocks > self._free:
            return 1
        self._free -= needed
        prompt.blocks += needed
        return steps

    def _start_parts(self, prompt: Prompt, chunk: int, steps: int) -> None:
        """Start steps with one part of a prompt each.

        A part attends to all tokens before it and to its own: Agrawal et al., OSDI 2024, section 4.
        """
        count, context, step = len(self._running), self._context, self.steps.step
        keys = chunk * (prompt.computed + 0.5 * (chunk + 1))
        costs = self._parts
        for step_index in range(steps):
            cached = context + step_index * count
            costs.append(step(chunk, keys + step_index * chunk * chunk, count, cached))
        self._chunks = [(prompt, steps * chunk)]
        self.tally.prompt_tokens += steps * chunk
        self._seconds = sum([seconds for seconds, _ in costs])
        self._joules, self._step_count = 0.0, steps

    def _start_run(self, most: int) -> None:
        """Steps up to the first that ends a sequence or runs out of blocks, and at most `most`: a
        single one where a request was put back just now, whose blocks others may take.

        Steps in which the batch does not change are one event, which is exact for blocks of a fixed
        number of tokens (Kwon et al., SOSP 2023).
        """
        ends, running, counter = self._ends, self._running, self._counter
        while (request := ends[0][1]) not in running or running[request][2] != ends[0][0]:
            heappop(ends)
        steps, count = min(ends[0][0] - counter, most), len(running)
        if steps > 1:
            blocks, room = self._blocks_between(counter + 1, steps - 1), self._room()
            if blocks > room:
                steps = 1 + room // (count if self._alike else self._growth) * self._size
                blocks = self._blocks_between(counter + 1, steps - 1)
            self._more_blocks = blocks
        self._seconds, self._joules = self.steps.decode_run(count, self._context, steps)
        self._step_count = steps

    def _step_at(self, now_s: float) -> tuple[int, StepCost]:
        """Which step of the run computes at a time, from 1, and what all up to it take.

        Estimate: the first guess is that all steps are equally long; it is corrected step by step.
        """
        gap_s, steps, run = now_s - self._start_s, self._step_count, self.steps.decode_run
        count, context = len(self._running), self._context
        wanted = min(steps, int(steps * gap_s / self._seconds) + 1)
        cost = run(count, context, wanted)
        while cost[0] < gap_s and wanted < steps:
            wanted += 1
            cost = run(count, context, wanted)
        while wanted > 1 and (less := run(count, context, wanted - 1))[0] >= gap_s:
            wanted -= 1
            cost = less
        return wanted, cost

    def _shorten(self, steps: int, cost: StepCost) -> None:
        """End a run after so many steps, which take so many seconds and joules, so that a new
        request can join: Yu et al., Orca, OSDI 2022, section 3.
        """
        self._seconds, self._joules = cost
        self._step_count = steps
        self._more_blocks = self._blocks_between(self._counter + 1, steps - 1)
        self.ready_s = self._start_s + self._seconds

    def _choose_prompts(self, now_s: float) -> None:
        """Parts of prompts for this step: those begun first, then waiting ones."""
        running = self._running
        budget = self._max_tokens - (len(running) if self._mixed else 0)
        waiting, partial, max_seqs = self.waiting, self._partial, self._max_seqs
        for prompt in tuple(partial):
            extended = self._extend(prompt, budget)
            if not extended:
                return
            budget -= extended
        unseen = 0
        if self._unseen is not None:
            unseen = self._unseen.count
            if isinstance(waiting, PriorityQueue):
                waiting.see(unseen)
        while budget > 0 and len(waiting) > unseen and len(running) + len(partial) < max_seqs:
            tokens = self._admit(waiting[0], budget, now_s)
            if tokens is None:
                return
            budget -= tokens

    def _extend(self, prompt: Prompt, budget: int) -> int:
        """A further part of a prompt; gives its tokens, none where it must wait."""
        tokens = min(prompt.target - prompt.computed, budget)
        if tokens <= 0:
            return 0
        needed = self._blocks_for(prompt, tokens)
        while needed > self._room():
            if self._running and len(self._partial) == 1:
                return 0  # sequences end and give blocks back
            youngest = self._partial[-1]
            self._put_back(youngest.request)
            if youngest is prompt:
                return 0
        self._take(needed)
        prompt.blocks += needed
        self._chunks.append((prompt, tokens))
        return tokens

    def _admit(self, request: int, budget: int, now_s: float) -> int | None:
        """Start a waiting request; gives the tokens it takes, None where it must wait.

        The order of checks is that of vLLM 0.9, 2025, v1/core/sched/scheduler.py.
        """
        if self._outside and request in self._outside:
            return self._resume(request, now_s)
        target, cache = self._target(request), self.cache
        shared = 0 if cache is None else self._hits(cache, request, target)
        cached_tokens = shared * self._size
        tokens, limits = target - cached_tokens, self.limits
        if tokens > budget:
            if not limits.chunked and (self._chunks or target <= limits.max_tokens):
                return None
            tokens = budget
        blocks = self._blocks_of(request, cached_tokens + tokens if self._by_part else target)
        needed = blocks - self._chained * shared
        revived = 0  # of the shared ones, those that nobody holds
        if cache is not None and shared:
            revived = max(0, shared - cache.held(self._group(request)))
        if not self._fits(request, needed + self._chained * revived):
            return None
        self._leave_queue(request)
        if cache is not None:
            self._hold(cache, self._group(request), shared)
        self._take(needed)
        prompt = Prompt(request, cached_tokens, target, shared, shared, blocks)
        self._partial.append(prompt)
        self._chunks.append((prompt, tokens))
        scheduled_s = self.log.scheduled_s
        if scheduled_s[request] != scheduled_s[request]:  # NaN: the first time
            scheduled_s[request] = now_s
        return tokens

    def _target(self, request: int) -> int:
        """Tokens to compute: of the prompt, and of what was generated before it was put back."""
        target: int = self.log.prompt_tokens[request]
        if self._left and (left := self._left.get(request)) is not None:
            target += self.log.output_tokens[request] - left
        return target
