"""Cache blocks of a replica: what an allocator makes of layers that keep different amounts.

vLLM puts as many layers into a group as the rarer kind has; a block is one group's, and all groups
take theirs from one pool (vllm/v1/core/kv_cache_utils.py, `_get_kv_cache_groups_uniform_page_size`;
docs/design/hybrid_kv_cache_manager). SGLang sizes two pools in a fixed ratio
(python/sglang/srt/server_args.py, `swa_full_tokens_ratio`). Allocators without windows keep all
tokens in every layer.
"""

from __future__ import annotations

import math
from fractions import Fraction

from accelsim.catalog.engines import ServingEngine, WindowRule
from accelsim.frozen import frozen
from accelsim.serving.schedulers.limits import SequenceBlocks
from accelsim.workloads.cache import SequenceCache

#: Where the commoner kind has fewer than so many times the layers of the rarer, vLLM pads the rarer
#: to one group (the same function).
_PADDED_RATIO = 1.25


@frozen
class BlockPlan:
    """Blocks of a rank.

    Attributes:
        sequence_cache: What the engine keeps of one sequence on a rank.
        bytes: Of one block.
        sequence: Blocks that a sequence takes.
        tokens: Tokens of a block that fill it in one layer.
    """

    sequence_cache: SequenceCache
    bytes: float
    sequence: SequenceBlocks
    tokens: int

    def mean_blocks(self, context_tokens: float) -> float:
        """Blocks of a sequence in the mean over the places of its end in a block.

        Blocks of a fixed number of tokens: Kwon et al., SOSP 2023.
        """
        filled = context_tokens / self.tokens
        per_filled, at_start = self.sequence.terms(math.ceil(filled))
        return per_filled * filled + at_start


def block_plan(cache: SequenceCache, engine: ServingEngine, layout: str) -> BlockPlan:
    """Blocks by what an engine keeps of a model's layers (vLLM, docs/design/
    hybrid_kv_cache_manager, 2025).

    Args:
        cache: What the layers of a rank keep.
        engine: The engine.
        layout: Layout of the model's modules, by which engines know it.
    """
    rule, size = engine.keeps_windows, engine.block_tokens
    if rule is None or layout in rule.without or (rule.layouts and layout not in rule.layouts):
        cache = cache.keeping_all()
    full, windowed = cache.full_bytes, cache.windowed_bytes
    if not full and not windowed:
        return BlockPlan(cache, cache.state_bytes, SequenceBlocks(0, 0, 0, 1), size)
    window = math.ceil(cache.window_tokens / size)
    all_layers, full_layers, token_bytes = 1, 1, full
    if not full:
        full_layers, token_bytes = 0, windowed
    elif windowed and rule is not None:
        all_layers, full_layers, token_bytes = _two_kinds(full, windowed, rule)
    block_bytes = token_bytes * size
    states = math.ceil(cache.state_bytes / block_bytes)
    return BlockPlan(
        cache, block_bytes, SequenceBlocks(all_layers, full_layers, window, states), size
    )


def _two_kinds(full: float, windowed: float, rule: WindowRule) -> tuple[int, int, float]:
    """Blocks per filled block within the window and beyond it, and bytes per token of one, of
    layers with and without a window (vLLM, v1/core/kv_cache_utils.py, and SGLang,
    srt/server_args.py, 2025).
    """
    if rule.ratio is None:  # one pool: a block is a group's
        few, many = sorted((full, windowed))
        group = many if many < _PADDED_RATIO * few else few
        full_groups, window_groups = (
            math.ceil(layer_bytes / group - 1e-9) for layer_bytes in (full, windowed)
        )
        return full_groups + window_groups, full_groups, group
    share = Fraction(rule.ratio).limit_denominator(20)  # a token of the window's pool for 1 / ratio
    parts = share.numerator
    return share.denominator, parts, (full + rule.ratio * windowed) / parts
