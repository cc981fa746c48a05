"""Cache blocks of prompts that later requests may share, least recently used ones given up first.

A block is shared by key; requests that hold it count its references, and a block nobody holds stays
until its room is needed (automatic prefix caching of vLLM v1: blocks of a request that ends are
given up from its tail). Blocks given up may move to the host's memory, from where they are copied
back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

__all__ = ["PrefixCache"]


class PrefixCache:
    """Keyed blocks of one replica.

    Args:
        host_capacity: Blocks the host keeps of those given up; 0 for none.

    Attributes:
        held: References by key, of blocks that requests hold.
        idle: Keys nobody holds, least recently used first.
        hit_count: Blocks found on the device.
        host_hit_count: Blocks found on the host.
        query_count: Blocks looked for.
    """

    def __init__(self, host_capacity: int = 0) -> None:
        self.held: dict[int, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()
        self._host: OrderedDict[int, None] = OrderedDict()
        self._host_capacity = host_capacity
        self.hit_count = self.host_hit_count = self.query_count = 0

    def __len__(self) -> int:
        return len(self.held) + len(self.idle)

    def match(self, keys: Sequence[int]) -> int:
        """Leading keys that are cached."""
        held, idle, found = self.held, self.idle, 0
        for key in keys:
            if key not in held and key not in idle:
                break
            found += 1
        return found

    def match_host(self, keys: Sequence[int]) -> int:
        """Leading keys that the host has; the caller copies these blocks back."""
        found = 0
        for key in keys:
            if key not in self._host:
                break
            found += 1
        return found

    def idle_among(self, keys: Sequence[int]) -> int:
        """Keys of these that nobody holds: room that taking them uses up."""
        return sum(map(self.idle.__contains__, keys))

    def take(self, keys: Iterable[int]) -> None:
        """Hold cached blocks."""
        held, idle = self.held, self.idle
        for key in keys:
            if key in held:
                held[key] += 1
            else:
                del idle[key]
                held[key] = 1

    def add(self, keys: Iterable[int]) -> list[int]:
        """Share blocks just computed, held by their request; those another shared first stay its
        own.

        Returns:
            Keys that are shared now.
        """
        held, idle = self.held, self.idle
        added = [key for key in keys if key not in held and key not in idle]
        held.update(dict.fromkeys(added, 1))
        return added

    def drop(self, keys: Sequence[int]) -> None:
        """Let blocks go; those nobody holds any more stay, the last of a prompt first to be given
        up.
        """
        held, idle = self.held, self.idle
        for key in reversed(keys):
            if held[key] > 1:
                held[key] -= 1
            else:
                del held[key]
                idle[key] = None

    def give_up(self, count: int) -> None:
        """Forget the least recently used blocks."""
        idle, host = self.idle, self._host
        for _ in range(count):
            key, _ = idle.popitem(last=False)
            if self._host_capacity:
                host[key] = None
                host.move_to_end(key)
                if len(host) > self._host_capacity:
                    host.popitem(last=False)

    def clear(self) -> None:
        """Forget everything, as a replica that restarts."""
        self.held.clear()
        self.idle.clear()
        self._host.clear()
