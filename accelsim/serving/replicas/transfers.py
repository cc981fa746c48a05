"""Caches that move from replicas that compute prompts to replicas that generate.

Each replica of prompts has a link of its own, which its caches pass one after the other: latency +
bytes / bandwidth (Zhong et al., DistServe, OSDI 2024, section 3.3; Patel et al., Splitwise, ISCA
2024, section 4.3, without the overlap by layer). The first token, which the prompt's
replica has made, leaves with the answer of the other, once it has the cache and lets the request
join (SGLang, scheduler_output_processor_mixin.py, process_batch_result_prebuilt; TensorRT-LLM,
disaggregated_params.py, first_gen_tokens; vLLM's proxies answer with the decoding server's stream).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from accelsim.frozen import frozen
from accelsim.serving.loads.requests import RequestLog
from accelsim.serving.replicas.fleet import ReplicaFleet
from accelsim.serving.replicas.pools import PoolRouter, ReplicaPool
from accelsim.serving.schedulers.base import NEVER
from accelsim.workloads.cache import SequenceCache


@frozen
class CacheLink:
    """Link of one replica.

    Attributes:
        latency_s: Time before the first byte.
        bytes_per_s: Its achieved bandwidth.
        sequence_cache: What a rank keeps of one sequence.
    """

    latency_s: float
    bytes_per_s: float
    sequence_cache: SequenceCache

    def time_s(self, tokens: int) -> float:
        """Time that a cache takes."""
        return self.latency_s + float(self.sequence_cache.bytes_of(tokens)) / self.bytes_per_s


class Transfers:
    """Moves caches; a `Control` of the fleet.

    Args:
        log: The requests.
        router: Chooses where they go on.
        links: Pools that compute prompts alone, and the link of each of their replicas.

    Attributes:
        moved_s: Sum of the times of moves, waiting included.
        count: Moves.
    """

    def __init__(
        self, log: RequestLog, router: PoolRouter, links: Sequence[tuple[ReplicaPool, CacheLink]]
    ) -> None:
        self._log, self._router, self._links = log, router, links
        self._free_s: dict[int, float] = {}
        self._moving: list[tuple[float, int]] = []
        self.moved_s, self.count = 0.0, 0

    @property
    def next_s(self) -> float:
        """End of the first move."""
        return self._moving[0][0] if self._moving else NEVER

    def take(self, index: int, ended: list[int], now_s: float, fleet: ReplicaFleet) -> list[int]:
        """Take requests whose prompts are done; gives those that have ended with it."""
        link = next((link for pool, link in self._links if index in pool.members), None)
        if link is None:
            return ended
        finished = []
        for request in ended:
            if self._log.output_tokens[request] <= 1:
                self._log.finish_s[request] = now_s
                finished.append(request)
                continue
            self._log.prompt_replica[request] = index
            start_s = max(now_s, self._free_s.get(index, 0.0))
            end_s = start_s + link.time_s(self._log.prompt_tokens[request])
            self._free_s[index] = end_s
            heapq.heappush(self._moving, (end_s, request))
            self.moved_s += end_s - now_s
            self.count += 1
            fleet.held_count += 1
        return finished

    def act(self, fleet: ReplicaFleet) -> None:
        """Let a request go on whose cache has arrived."""
        _, request = heapq.heappop(self._moving)
        fleet.held_count -= 1
        self._router.hand_over(request)
        fleet.dispatch(request)
