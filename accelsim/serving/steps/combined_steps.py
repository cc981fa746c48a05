"""Step times made of others: scaled, of batches in flight one after the other, of guessed tokens.

Under pipeline parallelism a replica keeps as many batches in flight as it has stages: a round of
them takes the time that one of them takes through all stages.
"""

from __future__ import annotations

from accelsim.frozen import frozen
from accelsim.serving.steps.step_times import StepBatch, StepCost, StepTimes


@frozen
class StepsAround:
    """Steps made of others, with their idle power and error.

    Attributes:
        inner: The steps they are made of.
    """

    inner: StepTimes

    @property
    def idle_w(self) -> float | None:
        """Power between steps."""
        return self.inner.idle_w

    @property
    def log_sigma(self) -> float:
        """Standard deviation of ln(true / predicted) of a step."""
        return self.inner.log_sigma

    @property
    def common_fraction(self) -> float:
        """Share of the variance that all steps have in common."""
        return self.inner.common_fraction


@frozen
class ScaledSteps(StepsAround):
    """Steps that all take longer at the same power: an error that they have in common.

    Attributes:
        ratio: Time of steps of sequences alone, over theirs.
        prompt_ratio: Time of steps with prompts, over theirs.
    """

    ratio: float
    prompt_ratio: float

    def step(self, *batch: *StepBatch) -> StepCost:
        """One step; see `StepTimes`."""
        seconds, joules = self.inner.step(*batch)
        ratio = self.prompt_ratio if batch[0] else self.ratio
        return seconds * ratio, joules * ratio

    def decode_run(self, count: int, context: float, n: int) -> StepCost:
        """Steps of the same sequences; see `StepTimes`."""
        seconds, joules = self.inner.decode_run(count, context, n)
        return seconds * self.ratio, joules * self.ratio


@frozen
class PipelinedSteps(StepsAround):
    """Steps of a replica with `stages` batches in flight; see `StepTimes`.

    A round takes as long as its fullest batch takes through all stages. Prompts of up to one budget
    are one batch; sequences are spread evenly. Copies of the attention that run in step and share
    experts are batches in flight, too.

    Attributes:
        stages: Pipeline stages times copies of the attention.
        budget: Tokens of one batch.
    """

    stages: int
    budget: int

    def step(self, *batch: *StepBatch) -> StepCost:
        """A round of all batches: the time of one of them through all stages, as many batches in
        flight as there are stages (Yu et al., Orca, OSDI 2022, section 4).
        """
        prefill_tokens, prefill_keys, sequences, decode_keys = batch
        tokens, count = min(prefill_tokens, self.budget), -(-sequences // self.stages)
        keys = prefill_keys * tokens / prefill_tokens if prefill_tokens else 0.0
        cached = decode_keys * count / sequences if sequences else 0.0
        seconds, joules = self.inner.step(tokens, keys, count, cached)
        batches = float(min(self.stages, sequences))
        if not tokens:
            return seconds, joules * batches
        with_prompts = prefill_tokens / tokens
        joules *= with_prompts
        if batches > with_prompts:
            joules += self.inner.decode_run(count, cached, 1)[1] * (batches - with_prompts)
        return seconds, joules

    def decode_run(self, count: int, context: float, n: int) -> StepCost:
        """Rounds of the same sequences; see `StepTimes`. Estimate: sequences are spread evenly."""
        per_batch = -(-count // self.stages)
        seconds, joules = self.inner.decode_run(per_batch, context * per_batch / count, n)
        return seconds, joules * min(self.stages, count)


@frozen
class SpeculativeSteps(StepsAround):
    """Steps in which each sequence gains one token on average, of engine steps that check several.

    An engine step checks k + 1 tokens of each sequence, of which E are kept on average, and takes
    in the prompts of E steps here; k steps of the draft come before it. So a step here is an E-th
    of that (mean field: how the tokens kept spread is left out).

    Attributes:
        kept_tokens: E, tokens kept per engine step.
        guesses: k, tokens guessed.
        draft: Steps of the model that guesses; None where none does.
    """

    kept_tokens: float
    guesses: int
    draft: StepTimes | None = None

    def step(self, *batch: *StepBatch) -> StepCost:
        """One step, an E-th of a step that checks guesses (Leviathan et al., ICML 2023); see
        `StepTimes`.
        """
        prefill_tokens, prefill_keys, sequences, cached = batch
        share = self.kept_tokens if sequences else 1.0
        tokens, keys = round(prefill_tokens * share), prefill_keys * share
        seconds, joules = self.inner.step(tokens, keys, sequences, cached)
        if self.draft is not None and tokens:
            prompts = self.draft.step(tokens, keys, 0, 0)
            seconds, joules = seconds + prompts[0], joules + prompts[1]
        if sequences:
            guesses = self._guesses(sequences, cached, 1)
            seconds, joules = seconds + guesses[0], joules + guesses[1]
        return seconds / share, joules / share

    def decode_run(self, count: int, context: float, n: int) -> StepCost:
        """Steps of the same sequences, each an E-th of one that checks guesses (Leviathan et al.,
        ICML 2023); see `StepTimes`.
        """
        seconds, joules = self.inner.decode_run(count, context, n)
        guesses = self._guesses(count, context, n)
        return (seconds + guesses[0]) / self.kept_tokens, (joules + guesses[1]) / self.kept_tokens

    def _guesses(self, count: int, context: float, n: int) -> StepCost:
        """What the draft's steps before `n` engine steps take."""
        if self.draft is None:
            return 0.0, 0.0
        seconds, joules = self.draft.decode_run(count, context, n)
        return self.guesses * seconds, self.guesses * joules
