"""Batches that run as a whole: filled until they are full or their first request has waited.

With a window of zero, whatever waits when the replica is free is a batch (bulk service; Bailey
1954). Requests of a batch end together; prompts are padded to none, and further tokens are
generated until the longest output is done.
"""

from __future__ import annotations

from accelsim.serving.loads.requests import RequestLog
from accelsim.serving.schedulers.base import NEVER, Scheduler, WaitingQueue
from accelsim.serving.steps.step_times import StepTimes


class WindowBatching(Scheduler):
    """One replica with whole batches.

    Args:
        log: Requests, and what becomes of them.
        steps: What batches take: a step computes `prompt_tokens` of all requests.
        max_seqs: Requests of a batch.
        window_s: Longest that the first request of a batch waits for others.
        queue: Where requests wait; first come, first served where None.
    """

    def __init__(
        self,
        log: RequestLog,
        steps: StepTimes,
        max_seqs: int,
        window_s: float = 0.0,
        queue: WaitingQueue | None = None,
    ) -> None:
        super().__init__(log, queue)
        self.steps, self.max_seqs, self.window_s = steps, max_seqs, window_s
        self._batch: list[int] = []
        self._is_running = False

    def submit(self, request: int, now_s: float) -> None:
        """Queue a request; see `Scheduler`."""
        self.waiting.append(request)
        self.outstanding += 1
        if self._is_running:
            return
        if len(self.waiting) >= self.max_seqs:
            self.ready_s = now_s  # full
        elif self.ready_s == NEVER:
            self.ready_s = now_s + self.window_s

    def advance(self) -> list[int]:
        """Start a batch, or end one; see `Scheduler`."""
        now_s = self.ready_s
        if not self._is_running:
            self._start(now_s)
            return []
        ended, self._batch, self._is_running = self._batch, [], False
        self.outstanding -= len(ended)
        finish_s = self.log.finish_s
        for request in ended:
            finish_s[request] = now_s
        self._wait(now_s)
        return ended

    def abandon(self) -> list[int]:
        """Lose all there is; see `Scheduler`."""
        lost = [*self._batch, *self.drop_waiting()]
        self._batch, self._is_running, self.ready_s = [], False, NEVER
        self.outstanding = 0
        return lost

    def _wait(self, now_s: float) -> None:
        """Idle until the next batch is full or has waited."""
        if not self.waiting:
            self.ready_s = NEVER
        elif len(self.waiting) >= self.max_seqs:
            self.ready_s = now_s
        else:
            self.ready_s = max(now_s, self.log.arrival_s[self.waiting[0]] + self.window_s)

    def _start(self, now_s: float) -> None:
        """Start a batch; a token of a prompt attends to itself and to all before it (Vaswani et
        al., NeurIPS 2017).
        """
        log, count = self.log, min(len(self.waiting), self.max_seqs)
        batch = self._batch = [self.waiting.popleft() for _ in range(count)]
        self._is_running = True
        prompts = [log.prompt_tokens[request] for request in batch]
        keys = 0.5 * sum(tokens * (tokens + 1) for tokens in prompts)
        seconds, joules = self.steps.step(sum(prompts), keys, 0, 0)
        self.tally.rows.append((seconds, joules, 1, 0, 0, 0.0, now_s + seconds))
        self.tally.sum_up()
        self.tally.prompt_tokens += sum(prompts)
        for request in batch:
            log.scheduled_s[request] = now_s
            log.first_token_s[request] = now_s + seconds
        self.ready_s = self._generate(batch, sum(prompts), now_s + seconds)

    def _generate(self, batch: list[int], context: int, now_s: float) -> float:
        """End of the further tokens of a batch."""
        steps = max(self.log.output_tokens[request] for request in batch) - 1
        if steps <= 0:
            return now_s
        seconds, joules = self.steps.decode_run(len(batch), context, steps)
        end_s = now_s + seconds
        self.tally.rows.append((seconds, joules, steps, len(batch), 0, 0.0, end_s))
        return end_s
