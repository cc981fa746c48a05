"""Requests that have come to a busy replica and that its scheduler has not looked at yet.

Servers choose the next batch while the running one computes (vLLM, v1/engine/core.py,
step_with_batch_queue; SGLang, managers/scheduler.py, event_loop_overlap; TensorRT-LLM,
_torch/pyexecutor/py_executor.py, _executor_loop_overlap): what comes during step n is seen at its
end, while batch n + 1 starts that has been chosen already, and is part of batch n + 2. SGLang's
scheduler_recv_interval (managers/scheduler_recv_skipper.py) looks for requests every so many steps
of further tokens; TensorRT-LLM's batch_wait_timeout_iters (_waiting_requests) lets prompts wait for
others while sequences run.
"""

from __future__ import annotations

from accelsim.serving.schedulers.limits import JoinRule

_MANY = 1 << 60


class Unseen:
    """The last requests of a queue, which no batch may hold yet.

    Args:
        rule: When they are looked at.

    Attributes:
        count: How many they are.
        ahead: Whether batches are chosen a step ahead.
    """

    def __init__(self, rule: JoinRule) -> None:
        self.ahead = rule.ahead
        self._poll, self._hold = rule.poll_steps, rule.hold_steps
        self._enough = rule.hold_tokens or _MANY
        self.clear()

    def clear(self) -> None:
        """Begin with nothing."""
        self.count = self._tokens = self._held = 0
        self._since = 0  # steps of further tokens since the last look

    def add(self, tokens: int, passed: int) -> None:
        """A request has come.

        SGLang, managers/scheduler_recv_skipper.py, 2025: looks lie `poll_steps` steps apart.

        Args:
            tokens: Of its prompt.
            passed: Steps of the running batch that had ended before.
        """
        if not self.count:
            self._held = -passed
            self._since = (self._since + passed) % self._poll - passed
        self.count += 1
        self._tokens += tokens

    def pass_steps(self, steps: int, *, prompts: bool) -> None:
        """Steps have ended: of sequences alone, or one that computed prompts."""
        self._since = self._poll if prompts else self._since + steps
        self._held += steps
        if not self.count:  # a look that finds nothing
            self._since = 0 if prompts else self._since % self._poll

    def steps_left(self, steps: int = 0) -> int:
        """Steps beyond so many more until the look; none where it is due.

        SGLang, managers/scheduler_recv_skipper.py, and TensorRT-LLM, py_executor.py,
        _waiting_requests, 2025.
        """
        left = self._poll - self._since - steps
        if self._hold and self._tokens < self._enough:
            left = max(left, self._hold + 1 - self._held - steps)
        return max(left, 0)

    def look(self, passed: int = 0) -> None:
        """All are seen, after so many steps of the running batch."""
        self.count = self._tokens = 0
        self._since = -passed
