"""Random numbers by named stream, so that a changed policy sees the same arrivals.

Each stream (arrivals, lengths, failures, model error) is a child of one seed, told apart by its
name alone: what one stream draws changes no other, and neither does the order or the worker that
asks for it. Simulations that share a seed share the draws of every stream they both have (common
random numbers; Law, Simulation Modeling and Analysis, chapter 11).
"""

from __future__ import annotations

from numbers import Integral

import numpy as np

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen


@checked
@frozen
class RandomStreams:
    """Generators of random numbers, independent of each other, all from one seed.

    Attributes:
        seed: Whole number >= 0.
    """

    seed: int

    def __post_init__(self) -> None:
        """Refuse what is no seed.

        Raises:
            InvalidValueError: If it is no whole number from 0.
        """
        is_whole = isinstance(self.seed, Integral) and not isinstance(self.seed, bool)
        if not is_whole or self.seed < 0:
            raise InvalidValueError("seed", self.seed, "a whole number >= 0")

    def stream(self, name: str, *replication: int) -> np.random.Generator:
        """A generator at the start of a stream.

        Args:
            name: What it draws, such as "arrivals".
            replication: Numbers of the replica, worker or repetition it draws for.
        """
        key = (*name.encode(), 256, *replication)  # no byte is 256: names and numbers stay apart
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))
