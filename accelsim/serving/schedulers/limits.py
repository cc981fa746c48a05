"""What a batch of a continuous scheduler may hold."""

from __future__ import annotations

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen


def _check_least(name: str, value: int, least: int = 1) -> None:
    if value < least:
        raise InvalidValueError(name, value, f"a whole number >= {least}")


@frozen
class JoinRule:
    """When requests that come to a busy replica may join its batch. An idle one takes them at once.

    Attributes:
        ahead: Whether the host chooses a batch while the one before it runs: a request joins a step
            later than where it chooses between steps.
        poll_steps: Steps of further tokens from one look for new requests to the next; the step
            after prompts looks always.
        hold_steps: Steps that prompts wait for others while sequences run, from the first on.
        hold_tokens: Tokens of waiting prompts that end the wait; 0 for no such end.
    """

    ahead: bool = False
    poll_steps: int = 1
    hold_steps: int = 0
    hold_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        _check_least("poll_steps", self.poll_steps, 1)
        _check_least("hold_steps", self.hold_steps, 0)
        _check_least("hold_tokens", self.hold_tokens, 0)

    @property
    def is_plain(self) -> bool:
        """Whether requests join the step after the running one."""
        return not self.ahead and self.poll_steps == 1 and not self.hold_steps


@frozen
class SequenceBlocks:
    """Cache blocks that a sequence takes, by the blocks that its tokens fill in one layer.

    A sequence that stays within the window grows in all layers. One that outgrows it holds the
    window, which lies across one block more than it fills, and grows in the full layers alone.

    Attributes:
        all_layers: Cache blocks per filled block while all layers grow.
        full_layers: Cache blocks per filled block of the layers that keep all tokens.
        window: Filled blocks of the window; 0 for no window.
        state: Cache blocks of the states, whatever the length.
    """

    all_layers: int = 1
    full_layers: int = 1
    window: int = 0
    state: int = 0

    def terms(self, longest: int) -> tuple[int, int]:
        """Blocks per filled block, and blocks from the start, of a sequence that will fill so many
        at its end.

        A window lies across one block more than it fills: vLLM, 2025,
        docs/design/hybrid_kv_cache_manager.
        """
        if self.window and longest > self.window:
            return self.full_layers, self.state + (self.all_layers - self.full_layers) * (
                self.window + 1
            )
        return self.all_layers, self.state

    def of(self, filled: int) -> int:
        """Blocks of a sequence that ends with so many filled."""
        per_filled, at_start = self.terms(filled)
        return per_filled * filled + at_start

    def most_filled(self, blocks: int) -> int:
        """Filled blocks of the longest sequence that so many cache blocks hold: the inverse of
        `terms` (vLLM, docs/design/hybrid_kv_cache_manager, 2025).
        """
        per_filled, at_start = self.terms(self.window + 1)
        if self.window and blocks >= at_start + per_filled * (self.window + 1):
            return (blocks - at_start) // per_filled if per_filled else _NO_LIMIT
        room = blocks - self.state
        short = room // self.all_layers if self.all_layers else (_NO_LIMIT if room >= 0 else 0)
        return max(0, min(short, self.window or short))


#: Filled blocks of a sequence that nothing limits.
_NO_LIMIT = 1 << 40


@frozen
class BatchLimits:
    """What a batch may hold.

    Attributes:
        max_tokens: Tokens of a step.
        max_seqs: Sequences at once.
        block_tokens: Tokens of a cache block.
        blocks: Cache blocks.
        sequence: Cache blocks that a sequence takes.
        chunked: Whether a prompt may be computed in parts.
        mixed: Whether prompts and further tokens share steps.
        reserve: What must find blocks before a prompt starts: its first "part", all of the
            "prompt", or the whole "sequence".
        watermark_fraction: Share of the blocks that starting a prompt leaves free.
        swap_blocks: Blocks of host memory that sequences put back keep their cache in; 0 to compute
            it again.
        most_positions: Tokens of the longest sequence that the model has positions for; 0 for no
            such limit.
        swap_block_s: Time to move one block between device and host, cached prefixes' too.
        join: When requests that come may join.
    """

    max_tokens: int = 8192
    max_seqs: int = 256
    block_tokens: int = 16
    blocks: int = 1 << 40
    chunked: bool = True
    mixed: bool = True
    reserve: str = "part"
    watermark_fraction: float = 0.0
    swap_blocks: int = 0
    swap_block_s: float = 0.0
    most_positions: int = 0
    join: JoinRule = JoinRule()
    sequence: SequenceBlocks = SequenceBlocks()

    def __post_init__(self) -> None:
        """Refuse limits nothing runs under.

        Raises:
            InvalidValueError: Naming the field.
        """
        _check_least("max_tokens", self.max_tokens)
        _check_least("max_seqs", self.max_seqs)
        _check_least("block_tokens", self.block_tokens)
        _check_least("blocks", self.blocks)
        if self.mixed and self.max_tokens < self.max_seqs:
            allowed = f"at least max_seqs = {self.max_seqs}: each sequence takes a token per step"
            raise InvalidValueError("max_tokens", self.max_tokens, allowed)
        if not 0 <= self.watermark_fraction < 1:
            raise InvalidValueError("watermark_fraction", self.watermark_fraction, "0 to below 1")
