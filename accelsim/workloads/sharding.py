"""What of a model one rank holds and runs, and the collectives that join the ranks.

A `Shard` is one rank's part under tensor parallelism of attention heads and feed-forward columns
(Shoeybi et al. 2019, arXiv:1909.08053), sequence parallelism of what lies between them (Korthikanti
et al. 2022, arXiv:2205.05198), context parallelism of the tokens, expert parallelism (Lepikhin et
al. 2020, arXiv:2006.16668) with tensor parallelism inside experts, and pipeline stages. Layers that
are split write the collective as a row of its own: its dimensions are the payload in bytes, the
ranks, and the `ParallelGroup` they form. A cluster prices these rows; no device does.
"""

from __future__ import annotations

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import check_ranges, ranged
from accelsim.workloads.operator import LabelledCode


class ParallelGroup(LabelledCode):
    """Which ranks a collective joins; the code is the third dimension of its row."""

    TENSOR = 1
    CONTEXT = 2
    EXPERT = 3
    EXPERT_TENSOR = 4
    PIPELINE = 5
    DATA = 6


@checked
@frozen
class Stage:
    """A pipeline stage.

    Attributes:
        index: Its place, from 0.
        count: Stages in all.
    """

    index: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it takes the model's input."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """Whether it gives the model's output."""
        return self.index == self.count - 1


@checked
@frozen
class Shard:
    """One rank's part of a model.

    Attributes:
        tp: Ranks that share heads and feed-forward columns.
        sp: Whether these ranks also share the tokens of norms, residuals and dropout.
        cp: Ranks that share the tokens of a sequence.
        ep: Ranks that share the experts.
        etp: Ranks that share the columns of each expert; as many as `tp` where None and `ep` is 1,
            else 1.
        stage: The pipeline stage.
        vocabulary: Whether the ranks of `tp` share the embedding and the logits.
        expert_skew: Exponent of Zipf's law by which experts differ in popularity among the ranks of
            `ep`, whose busiest one this is; 0 for an even share.
    """

    tp: int = 1
    sp: bool = False
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    stage: Stage = Stage()
    vocabulary: bool = True
    expert_skew: float = ranged(0.0, (0, 10))

    def __post_init__(self) -> None:
        """Refuse counts that are none, and stages that do not exist.

        Raises:
            InvalidValueError: Naming the field.
        """
        counts = {"tp": self.tp, "cp": self.cp, "ep": self.ep, "expert_tp": self.expert_tp}
        for name, ranks in counts.items():
            if ranks < 1:
                raise InvalidValueError(name, ranks, "at least 1 rank")
        if self.ep == 1 and self.expert_tp != self.tp:
            allowed = f"{self.tp}, as tp, where the experts are not shared"
            raise InvalidValueError("etp", self.expert_tp, allowed, "Give ep, too.")
        if not 0 <= self.stage.index < self.stage.count:
            allowed = f"a stage from 0 to {self.stage.count - 1}"
            raise InvalidValueError("stage", self.stage.index, allowed)
        check_ranges(self)

    @property
    def expert_tp(self) -> int:
        """Ranks that share the columns of each expert."""
        if self.etp is not None:
            return self.etp
        return self.tp if self.ep == 1 else 1

    @property
    def form(self) -> tuple[float, ...]:
        """Which groups have several ranks, and what else decides on the rows that are written."""
        several = (ranks > 1 for ranks in (self.tp, self.cp, self.ep, self.expert_tp))
        return *several, self.etp is None, self.sp, self.vocabulary, self.expert_skew

    @property
    def experts_in_tensor_group(self) -> bool:
        """Whether the ranks that share the experts are those that share the heads, and have the
        same tokens: each runs its experts, and the sum over columns adds them up (vLLM,
        enable_expert_parallel without data parallelism).
        """
        return 1 < self.ep == self.tp and not self.sp and self.expert_tp == 1

    @property
    def sends_tokens(self) -> bool:
        """Whether ranks send their tokens to the ranks that have the experts."""
        return self.ep > 1 and not self.experts_in_tensor_group

    @property
    def is_whole(self) -> bool:
        """Whether one rank holds the whole model."""
        return all(ranks == 1 for ranks in self.ranks.values())

    @property
    def ranks(self) -> dict[ParallelGroup, int]:
        """Ranks of each group."""
        return {
            ParallelGroup.TENSOR: self.tp,
            ParallelGroup.CONTEXT: self.cp,
            ParallelGroup.EXPERT: self.ep,
            ParallelGroup.EXPERT_TENSOR: self.expert_tp,
            ParallelGroup.PIPELINE: self.stage.count,
        }


#: One rank holds everything.
WHOLE = Shard()


def experts_of_rank(ranks: int, experts: int) -> int:
    """Experts that a rank holds; where ranks do not divide them, some are held twice.

    DeepSeek-V3 (arXiv:2412.19437, section 3.4) fills ranks with redundant experts: 256 over 72 or
    144 ranks are 288 places.

    Args:
        ranks: Ranks that share the experts, >= 1.
        experts: Experts of a layer.

    Raises:
        InvalidValueError: If there are more ranks than experts.
    """
    if ranks > experts:
        remedy = "Lower ep; ranks beyond the experts would hold none."
        raise InvalidValueError("ep", ranks, f"1 to {experts}, the experts of a layer", remedy)
    return -(-experts // ranks)


def split_evenly(field: str, ranks: int, amount: int, quantity: str) -> int:
    """Each rank's part of an amount.

    Args:
        field: Field of `Shard` that splits it, for the message.
        ranks: Ranks.
        amount: Heads, columns, tokens ...
        quantity: Their name, for the message.

    Raises:
        InvalidValueError: If the ranks do not divide the amount.
    """
    if ranks == 1:
        return amount
    if amount % ranks != 0:
        most = max(count for count in range(1, ranks) if amount % count == 0)
        allowed = f"a divisor of {amount} {quantity}"
        raise InvalidValueError(field, ranks, allowed, f"Take {field}={most}.")
    return amount // ranks


def stage_layers(layer_count: int, stage: Stage) -> range:
    """Layers of a stage; the first stages take one more where they do not divide.

    Even stages: Narayanan et al. 2021, arXiv:2104.04473, section 2.2; estimate: the first take what
    is over.

    Args:
        layer_count: Layers of the model.
        stage: The stage.

    Raises:
        InvalidValueError: If there are more stages than layers.
    """
    if stage.count > layer_count:
        raise InvalidValueError("stage", stage.count, f"at most {layer_count} stages, one a layer")
    layers_each, remainder = divmod(layer_count, stage.count)
    start = stage.index * layers_each + min(stage.index, remainder)
    return range(start, start + layers_each + (stage.index < remainder))
