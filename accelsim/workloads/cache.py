"""What a generating model keeps of a sequence: keys and values of all tokens, of a window alone, or
a state of fixed size.

Full layers grow with the sequence, windowed layers stop at their window (Jiang et al. 2023,
arXiv:2310.06825), latent layers keep a compressed row per token (arXiv:2405.04434), and layers with
a state keep as much as of one token (Dao and Gu 2024, arXiv:2405.21060).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray

#: Tokens that a layer which keeps a state has of a sequence.
STATE = 1.0


@frozen
class CacheLayer:
    """What one layer, or several alike, keep of one sequence.

    Attributes:
        most_tokens: Tokens it keeps at most: infinite for all, the window, or one for a state.
        token_bytes: Bytes per token.
    """

    most_tokens: float
    token_bytes: float


@frozen
class SequenceCache:
    """What the layers of a rank keep of one sequence, those of equal length together.

    Attributes:
        layers: By the tokens they keep, the fewest first.
    """

    layers: tuple[CacheLayer, ...] = ()

    @classmethod
    def of(cls, layers: Iterable[CacheLayer]) -> SequenceCache:
        """Layers summed up by the tokens they keep."""
        sums: defaultdict[float, float] = defaultdict(float)
        for layer in layers:
            sums[layer.most_tokens] += layer.token_bytes
        return cls(
            tuple(CacheLayer(*tokens_and_bytes) for tokens_and_bytes in sorted(sums.items()))
        )

    def beside(self, other: SequenceCache) -> SequenceCache:
        """With the cache of another model on the same rank."""
        return SequenceCache.of((*self.layers, *other.layers))

    def keeping_all(self) -> SequenceCache:
        """The same where windowed layers keep all tokens, as allocators without windows do."""
        return SequenceCache.of(
            layer if layer.most_tokens == STATE else replace(layer, most_tokens=math.inf)
            for layer in self.layers
        )

    def bytes_of(self, tokens: IntArray | FloatArray | float) -> FloatArray:
        """Bytes of a sequence of so many tokens, in the shape of `tokens`."""
        length = np.asarray(tokens, dtype=np.float64)
        total = np.zeros_like(length)
        for layer in self.layers:
            total += layer.token_bytes * np.minimum(length, layer.most_tokens)
        return total

    @property
    def full_bytes(self) -> float:
        """Bytes per token of the layers that keep all tokens."""
        return sum(layer.token_bytes for layer in self.layers if math.isinf(layer.most_tokens))

    @property
    def _windowed(self) -> list[CacheLayer]:
        return [layer for layer in self.layers if STATE < layer.most_tokens < math.inf]

    @property
    def windowed_bytes(self) -> float:
        """Bytes per token of the layers that keep a window."""
        return sum(layer.token_bytes for layer in self._windowed)

    @property
    def window_tokens(self) -> int:
        """The longest window; 0 without one."""
        return int(max((layer.most_tokens for layer in self._windowed), default=0))

    @property
    def state_bytes(self) -> float:
        """Bytes of the states, whatever the length."""
        return sum(layer.token_bytes for layer in self.layers if layer.most_tokens == STATE)

    @property
    def token_bytes(self) -> float:
        """Bytes per token of a sequence that no window cuts, its states apart."""
        return self.full_bytes + self.windowed_bytes
