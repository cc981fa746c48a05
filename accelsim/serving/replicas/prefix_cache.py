"""Cache blocks of prefixes that later requests may share, least recently used ones given up first.

Requests of one group start with the same tokens, so that their shared blocks form a chain: what is
cached of it is a length, and what requests hold of it the longest part that one of them holds. The
rest of a chain stays until its room is needed; chains released longest ago are given up first, each
from its tail (automatic prefix caching of vLLM v1, which frees the blocks of a request tail first).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping


class PrefixCache:
    """Chains of one replica, in blocks.

    Args:
        host_blocks: Blocks that host memory holds.

    Attributes:
        length: Cached blocks by group.
        idle_count: Blocks that nobody holds.
        hit_count: Blocks that requests found cached.
    """

    def __init__(self, host_blocks: int = 0) -> None:
        self.hit_count, self.host_blocks = 0, host_blocks
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.length: dict[int, int] = {}
        self._holders: dict[int, dict[int, int]] = {}
        self._released: OrderedDict[int, None] = OrderedDict()
        self.idle_count = 0
        self._host: OrderedDict[int, int] = OrderedDict()
        self._host_count = 0

    def on_device(self, group: int) -> int:
        """Blocks of a chain that are on the device."""
        return self.length.get(group, 0)

    def reach(self, group: int) -> int:
        """Blocks of a chain that are on the device or the host."""
        return max(self.length.get(group, 0), self._host.get(group, 0))

    def _keep_on_host(self, group: int, blocks: int) -> None:
        """Keep a chain in host memory, as much of its head as there is room for, in place of those
        that were kept longest ago.
        """
        blocks = min(max(blocks, self._host.get(group, 0)), self.host_blocks)
        self._host_count += blocks - self._host.pop(group, 0)
        self._host[group] = blocks
        while self._host_count > self.host_blocks:
            self._host_count -= self._host.popitem(last=False)[1]

    def _held_blocks(self, group: int) -> int:
        holders = self._holders.get(group)
        return max(holders) if holders else 0

    def held(self, group: int) -> int:
        """Blocks of a chain that requests hold."""
        return self._held_blocks(group)

    @property
    def held_count(self) -> int:
        """Blocks that requests hold."""
        return sum(map(self._held_blocks, self._holders))

    def hold(self, group: int, blocks: int) -> None:
        """Let one more request hold the first blocks of a chain, which are cached."""
        holders = self._holders.get(group)
        if holders is None:
            self._holders[group] = {blocks: 1}
            self.idle_count -= blocks
            return
        before = max(holders)
        holders[blocks] = holders.get(blocks, 0) + 1
        if blocks > before:
            self.idle_count -= blocks - before

    def release(self, group: int, blocks: int) -> None:
        """Let a request go that held the first blocks of a chain."""
        holders = self._holders[group]
        if holders[blocks] > 1:
            holders[blocks] -= 1
        else:
            before = max(holders)
            del holders[blocks]
            if not holders:
                del self._holders[group]
            self.idle_count += before - max(holders, default=0)
        self._free_last(group)

    def _free_last(self, group: int) -> None:
        """Let what nobody holds of a chain be given up after that of all others."""
        self._released[group] = None
        self._released.move_to_end(group)

    def move(self, group: int, before: int, blocks: int) -> None:
        """Let a request hold as many blocks of a chain instead of those it held before."""
        self.hold(group, blocks)
        self.release(group, before)

    def extend(self, group: int, blocks: int) -> int:
        """Cache a chain up to some blocks, just computed; the caller holds them next.

        Returns:
            Blocks that are shared now; those another request shared first stay the caller's own.
        """
        added = blocks - self.length.get(group, 0)
        if added <= 0:
            return 0
        self.length[group] = blocks
        self.idle_count += added
        return added

    def give_up(self, count: int) -> None:
        """Forget blocks that nobody holds, of which there are as many: of the chain released
        longest ago first, from its tail (vLLM 0.9, 2025, v1/core/block_pool.py).
        """
        while count:
            group = next(iter(self._released))
            held_blocks, length = self._held_blocks(group), self.length.get(group, 0)
            dropped = min(count, length - held_blocks)
            if dropped and self.host_blocks:
                self._keep_on_host(group, length)
            if dropped == length - held_blocks:
                del self._released[group]
            if dropped == length:
                self.length.pop(group, None)
            else:
                self.length[group] = length - dropped
            self.idle_count -= dropped
            count -= dropped


class PrefixTree(PrefixCache):
    """Chains that begin as another one does: all requests' system prompt, a context that splits.

    A chain that forks has the blocks after its fork; those before are its parent's. It is released
    before what it forks from, so that leaves are given up first (SGLang's
    radix cache; Zheng et al., NeurIPS 2024, section 3).

    Args:
        forks: By group that forks: the group it forks from, and the tokens it has of that.
        block_tokens: Tokens of a block.
        host_blocks: Blocks that host memory holds.
    """

    def __init__(
        self, forks: Mapping[int, tuple[int, int]], block_tokens: int, host_blocks: int = 0
    ) -> None:
        self._forks, self._size = forks, block_tokens
        super().__init__(host_blocks)

    def _joined(self, group: int, blocks_of: Callable[[int], int]) -> int:
        """Blocks without a gap from the first on, where each chain has some of its own."""
        forks, size = self._forks, self._size
        blocks, end = 0, -1
        while True:
            fork = forks.get(group)
            before = 0 if fork is None else fork[1] // size
            have = before + blocks_of(group)
            if end < 0 or have < end:
                blocks = have
            if fork is None or (have > before and not self.host_blocks):  # all before is there
                return blocks
            end, group = before, fork[0]

    def on_device(self, group: int) -> int:
        """Blocks of a chain that are on the device."""
        return self._joined(group, super().on_device)

    def reach(self, group: int) -> int:
        """Blocks of a chain that are on the device or the host."""
        return self._joined(group, super().reach)

    def held(self, group: int) -> int:
        """Blocks of a chain that requests hold."""
        return self._joined(group, self._held_blocks)

    def hold(self, group: int, blocks: int) -> None:
        """Let one more request hold the first blocks of a chain, which are cached. A chain that is
        held to its fork or beyond holds what it forks from, once.
        """
        while (fork := self._forks.get(group)) is not None:
            before = fork[1] // self._size
            if blocks >= before:
                was_held = group in self._holders
                super().hold(group, blocks - before)
                if was_held:
                    return
                blocks = before
            group = fork[0]
        super().hold(group, blocks)

    def release(self, group: int, blocks: int) -> None:
        """Let a request go that held the first blocks of a chain."""
        while (fork := self._forks.get(group)) is not None:
            before = fork[1] // self._size
            if blocks >= before:
                super().release(group, blocks - before)
                if group in self._holders:
                    return
                blocks = before
            elif group in self.length:
                self._free_last(group)
            group = fork[0]
        super().release(group, blocks)

    def extend(self, group: int, blocks: int) -> int:
        """Cache a chain up to some blocks; see `PrefixCache`. Chains that fork are a radix tree
        (Zheng et al., SGLang, NeurIPS 2024, section 3).
        """
        added = 0
        while (fork := self._forks.get(group)) is not None:
            before = fork[1] // self._size
            if blocks > before:
                has_some = group in self.length
                added += super().extend(group, blocks - before)
                if has_some:
                    return added
                blocks = before
            group = fork[0]
        return added + super().extend(group, blocks)
