"""When requests come and how long they are.

Poisson, gamma-distributed gaps (burstiness by their coefficient of variation), a daily sine, even
gaps, all at once, and a closed loop of users who send the next request when the last has ended.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import check_ranges, option, ranged
from accelsim.serving.loads.lengths import draw_lengths
from accelsim.serving.loads.requests import LONGEST_TOKENS, RequestColumns
from accelsim.serving.loads.sessions import (
    MOST_STEPS,
    SessionOptions,
    in_sessions,
    session_options,
)
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.graph import FloatArray, IntArray

PROCESSES = ("poisson", "gamma", "uniform", "diurnal", "burst")
_MOST = 100_000_000
#: Least variation of gaps, and shortest period: the shape of a gamma distribution is 1 / cv^2.
_LEAST = 1e-3
_COUNT = (1, _MOST)
#: Requests that are drawn at least where no number is given: a hundredth of them has ten.
_LEAST_REQUESTS = 1000
#: Times that the requests in service are replaced where no number is given, so that filling up and
#: waiting lines of a load above what is served show; and the most requests: estimates.
_TURNOVERS = 20
_MOST_REQUESTS = 1_000_000


@checked
@frozen
class Arrivals:
    """When requests come, and how long their prompts and answers are.

    Attributes:
        period_s: Period of "diurnal".
        swing_fraction: How far its rate swings about the mean, 0 to 1.
        think_s: Mean of a user's exponential pause.
        prefixes: Distinct system prompts; 0 for none.
    """

    rate_per_s: float | None = option("Requests per second.", flags="--rate")
    users: int | None = option(
        "Users of a closed loop: each sends the next request when the last has ended.",
        within=_COUNT,
    )
    requests: int | None = option(
        "Requests to simulate. Default: as many as a steady state needs.", within=_COUNT
    )
    process: str = option(
        "How requests come: poisson, gamma, uniform, diurnal or burst.", "poisson", "NAME"
    )
    cv: float = option(
        "Gamma arrivals: coefficient of variation of the gaps.", 2.0, within=(_LEAST, 100.0)
    )
    period_s: float = ranged(86_400.0, (_LEAST, 1e9))
    swing_fraction: float = ranged(0.5, (0, 1))
    think_s: float = ranged(0.0, (0, 1e9))
    prompt: str = option(
        "Lengths of prompts: 512, uniform:100-900, lognormal:MEDIAN:SIGMA, exponential:MEAN, "
        "geometric:MEAN.",
        "lognormal:600:1.0",
        "DIST",
    )
    output: str = option("Lengths of outputs.", "lognormal:160:0.8", "DIST")
    turns: int = option(
        "Turns of a session; each prompt starts with the whole session so far.",
        1,
        within=(1, MOST_STEPS),
    )
    session: SessionOptions | None = option(
        "Sessions of an agent: steps=8,gap=2s,agents=2,agent_steps=4,tool=400. A tool runs for "
        "gap on average before each further step and adds a text of tool tokens; the first step "
        "starts the sub-agents, the second waits for all. --rate is of sessions.",
        metavar="KEY=VALUE",
        parse=session_options,
    )
    prefixes: int = ranged(1, (0, _MOST))
    prefix_tokens: int = option(
        "Tokens of a system prompt that all prompts start with.", 0, within=(0, LONGEST_TOKENS)
    )

    def __post_init__(self) -> None:
        """Refuse loads that are none.

        Raises:
            InvalidValueError: Naming the field.
        """
        if (self.rate_per_s is None) == (self.users is None):
            allowed = "requests per second, or users"
            allowed += "" if self.rate_per_s is None else ", not both"
            remedy = "Give one of --rate, --users and --arrivals."
            raise InvalidValueError("rate", self.rate_per_s, allowed, remedy)
        if self.rate_per_s is not None and not 0 < self.rate_per_s < float("inf"):
            raise InvalidValueError("rate", self.rate_per_s, "requests per second above 0")
        self._check_counts()
        if self.process not in PROCESSES:
            raise InvalidValueError("process", self.process, "one of " + ", ".join(PROCESSES))

    def _check_counts(self) -> None:
        check_ranges(self)
        if self.users and self._session is not None:
            remedy = "Give --rate, the sessions per second."
            raise InvalidValueError("users", self.users, "no value with turns or sessions", remedy)
        for name, value, usual in (("turns", self.turns, 1), ("think_s", self.think_s, 0.0)):
            if self.session is not None and value != usual:
                remedy = "Say it by the steps and the gap of the session."
                raise InvalidValueError(name, value, f"{usual:g} with a session", remedy)

    @property
    def _session(self) -> SessionOptions | None:
        """What a session is; None for single requests."""
        if self.session is None and self.turns > 1:
            return SessionOptions(self.turns)
        return self.session

    @property
    def count(self) -> int:
        """Requests that are drawn, of whole sessions of an agent."""
        count = _LEAST_REQUESTS if self.requests is None else self.requests
        session_requests = 1 if self.session is None else self.session.requests
        return -(-count // session_requests) * session_requests

    @property
    def requests_per_s(self) -> float:
        """Requests per second, of all steps of the sessions that come; 0 in a closed loop."""
        return (self.rate_per_s or 0.0) * (self._session.requests if self._session else 1)

    def steady(self, inside: float) -> Arrivals:
        """The same load with as many requests as a steady state needs, where no number is given.

        Estimate: those in service are replaced `_TURNOVERS` times; tools of sessions keep as many
        waiting as come while they run (Little, Operations Research 9(3), 1961).

        Args:
            inside: Requests in service at a time.
        """
        if self.requests is not None or self.process == "burst":
            return replace(self, requests=self.count)
        if (session := self._session) is not None:  # those that come while a session lasts
            pause_s = session.gap_s if self.session is not None else self.think_s
            waiting = self.requests_per_s * pause_s
            inside = session.depth * inside + (session.depth - 1) * waiting
        wanted = math.ceil(_TURNOVERS * (self.users or inside))
        return replace(self, requests=min(max(wanted, _LEAST_REQUESTS), _MOST_REQUESTS))

    def columns(self, streams: RandomStreams) -> RequestColumns:
        """Draw the requests: times from one stream, lengths from another.

        Args:
            streams: Random streams of the run.
        """
        lengths, count = streams.stream("lengths"), self.count
        prompt = draw_lengths("prompt", self.prompt, count, lengths)
        output = draw_lengths("output", self.output, count, lengths, lowest=0)
        session = self._session
        sessions = count if session is None else -(-count // session.requests)
        times = np.zeros(0) if self.users else self.times(sessions, streams)
        group, shared = self._prefixes(prompt, streams.stream("prefixes"))
        think_s = self.think_s if self.session is None else self.session.gap_s
        columns = RequestColumns(
            arrival_s=times if len(times) == count else np.full(count, np.nan),
            prompt_tokens=prompt,
            output_tokens=output,
            prefix_group=group,
            prefix_tokens=shared,
            think_s=streams.stream("think").exponential(think_s, count) if think_s else None,
        )
        if session is None:
            return columns if shared is None else replace(columns, prompt_tokens=prompt + shared)
        tool = draw_lengths("tool", session.tool, count, lengths) if session.tool else prompt
        return in_sessions(columns, session.slots(), times, tool)

    def times(self, count: int, streams: RandomStreams) -> FloatArray:
        """Arrivals alone, for requests whose lengths are known.

        The squared coefficient of variation of gamma gaps is one over their shape (Law, Simulation
        Modeling and Analysis, 2015).

        Args:
            count: How many.
            streams: Random streams of the run.
        """
        rate, generator = self.rate_per_s, streams.stream("arrivals")
        if rate is None or self.process == "burst":
            return np.zeros(count)
        if self.process == "uniform":
            return np.arange(1, count + 1) / rate
        if self.process == "gamma":
            shape = 1.0 / self.cv**2
            return np.cumsum(generator.standard_gamma(shape, count)) / (shape * rate)
        times_s = np.cumsum(generator.standard_exponential(count)) / rate
        return self._in_days(times_s) if self.process == "diurnal" else times_s

    def _in_days(self, times_s: FloatArray) -> FloatArray:
        """Arrivals at a rate that swings, of those at its mean rate: inverts the integral of
        1 + swing sin(2 pi t / period) (Cinlar, Introduction to Stochastic Processes, 1975, chapter
        4).
        """
        turn_s = self.period_s / (2 * np.pi)
        grid_s = np.linspace(0.0, times_s[-1] + self.period_s, max(4096, 8 * len(times_s)))
        passed_s = grid_s + self.swing_fraction * turn_s * (1 - np.cos(grid_s / turn_s))
        return np.interp(times_s, passed_s, grid_s)

    def _prefixes(
        self, prompt: IntArray, generator: np.random.Generator
    ) -> tuple[IntArray | None, IntArray | None]:
        if not self.prefixes or not self.prefix_tokens:
            return None, None
        group = generator.integers(0, self.prefixes, len(prompt))
        return group, np.full(len(prompt), self.prefix_tokens)
