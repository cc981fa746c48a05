"""Cache blocks of prefixes that later requests may share, least recently used ones given up first.

Requests of one group start with the same tokens, so that their shared blocks form a chain: what is
cached of it is a length, and what requests hold of it the longest part that one of them holds. The
rest of a chain stays until its room is needed; chains released longest ago are given up first, each
from its tail (automatic prefix caching of vLLM v1, which frees the blocks of a request tail first).
"""

from __future__ import annotations

from collections import OrderedDict


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

    def held(self, group: int) -> int:
        """Blocks of a chain that requests hold."""
        holders = self._holders.get(group)
        return max(holders) if holders else 0

    @property
    def held_count(self) -> int:
        """Blocks that requests hold."""
        return sum(map(self.held, self._holders))

    def hold(self, group: int, blocks: int) -> None:
        """Let one more request hold the first blocks of a chain, which are cached."""
        before = self.held(group)
        holders = self._holders.setdefault(group, {})
        holders[blocks] = holders.get(blocks, 0) + 1
        if blocks > before:
            self.idle_count -= blocks - before

    def release(self, group: int, blocks: int) -> None:
        """Let a request go that held the first blocks of a chain."""
        before, holders = self.held(group), self._holders[group]
        holders[blocks] -= 1
        if not holders[blocks]:
            del holders[blocks]
        if not holders:
            del self._holders[group]
        self.idle_count += before - self.held(group)
        self._released[group] = None
        self._released.move_to_end(group)

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
        """Forget blocks that nobody holds, of which there are as many."""
        while count:
            group = next(iter(self._released))
            held, length = self.held(group), self.length.get(group, 0)
            given = min(count, length - held)
            if given and self.host_blocks:
                self._keep_on_host(group, length)
            if given == length - held:
                del self._released[group]
            if given == length:
                self.length.pop(group, None)
            else:
                self.length[group] = length - given
            self.idle_count -= given
            count -= given
