"""Sessions: calls of a model that wait for each other and repeat what was said before.

A session of an agent is a chain of steps with a tool between two of them; its first step may start
sub-agents, which work beside each other, each in a context of its own, and the second waits for all
of them. Turns of a conversation are such a chain without sub-agents. Estimate: a step repeats all
that was said in its context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import REQUIRED, check_ranges, of_words, ranged, seconds
from accelsim.serving.loads.requests import NO_GROUP, RequestColumns
from accelsim.workloads.graph import FloatArray, IntArray

#: Most steps of a chain, and most calls of a session.
MOST_STEPS, MOST_CALLS = 10_000, 100_000


@checked
@frozen
class SessionOptions:
    """A session of an agent.

    Attributes:
        steps: Calls of the model by the agent itself.
        gap_s: Mean of the exponential time of a tool, between the end of what a step waits for and
            its arrival.
        agents: Sub-agents that the first step starts and the second waits for.
        agent_steps: Calls of the model by each of them.
        tool: Lengths of what a tool adds to the context before a further step; those of prompts
            where empty.
    """

    steps: int = ranged(REQUIRED, (1, MOST_STEPS))
    gap_s: float = ranged(0.0, (0, 1e9))
    agents: int = ranged(0, (0, 1000))
    agent_steps: int = ranged(1, (1, MOST_STEPS))
    tool: str = ""

    def __post_init__(self) -> None:
        """Refuse sessions that are none.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges(self)
        if self.agents and self.steps < 2:
            remedy = "The first step starts the sub-agents, the second waits for them."
            raise InvalidValueError("session steps", self.steps, "at least 2 with agents", remedy)
        if self.requests > MOST_CALLS:
            allowed = f"at most {MOST_CALLS:,} calls in all"
            raise InvalidValueError("session", f"{self.requests:,} calls", allowed)

    @property
    def requests(self) -> int:
        """Calls of the model in all."""
        return self.steps + self.agents * self.agent_steps

    @property
    def depth(self) -> int:
        """Calls of the model one after the other."""
        return self.steps + (self.agent_steps if self.agents else 0)

    def slots(self) -> list[tuple[int, int, int]]:
        """Each call of a session: its context (0 is the agent's own), the call that it comes after,
        and the one that waits for it too, -1 for none. A call comes after all that it waits for.
        """
        main, last = 0, self.requests - self.steps + 1
        slots = [(main, -1, -1)]
        for step in range(self.agent_steps):
            is_last = step == self.agent_steps - 1
            for agent in range(self.agents):
                before = len(slots) - self.agents if step else 0
                slots.append((agent + 1, before, last if is_last else -1))
        slots += [
            (main, 0 if slot == last else slot - 1, -1) for slot in range(last, self.requests)
        ]
        return slots


def session_options(name: str, text: str) -> SessionOptions:
    """A session as ``steps=8,gap=2s,agents=2,agent_steps=4,tool=lognormal:400:1``."""
    items = text.split(",")
    values = {key: word for key, _, word in (item.partition("=") for item in items)}
    if len(values) < len(items):
        raise InvalidValueError(name, text, "each key once", "Name it once.")
    if "gap" in values:
        values["gap_s"] = str(seconds(name, values.pop("gap")))
    form = "key=value pairs with steps, and any of gap, agents, agent_steps, tool"
    return of_words(SessionOptions, values, name, text, form)


def in_sessions(
    columns: RequestColumns,
    slots: Sequence[tuple[int, int, int]],
    starts_s: FloatArray,
    tool_tokens: IntArray,
) -> RequestColumns:
    """Requests as calls of sessions: all first calls, then all second ones, and so on. Estimate: a
    call repeats all that was said in its context.

    Args:
        columns: What each call that begins a context says, and what each generates, shape (n,);
            ``prefix_group`` and ``prefix_tokens`` are of the system prompts of the sessions, which
            every context starts with.
        slots: Calls of a session; see `SessionOptions.slots`.
        starts_s: Arrivals of the first calls, shape (sessions,).
        tool_tokens: What each further call adds to its context, shape (n,).
    """
    count, sessions = len(columns), len(starts_s)
    slot, session = np.divmod(np.arange(count), sessions)
    context, before, waiting = (np.array(column)[slot] for column in zip(*slots, strict=True))
    after = np.where(slot == 0, NO_GROUP, before * sessions + session)
    joins = np.where(waiting < 0, NO_GROUP, waiting * sessions + session)
    prompt, answers = columns.prompt_tokens.copy(), np.zeros(count, dtype=np.int64)
    system = np.zeros(count, dtype=np.int64)
    if columns.prefix_tokens is not None:
        system = columns.prefix_tokens
    ends: dict[int, IntArray] = {}  # tokens of each context so far
    for begin in range(0, count, sessions):
        rows = slice(begin, min(begin + sessions, count))
        slot_context = int(context[begin])
        if slot_context in ends:
            prompt[rows] = answers[rows] + tool_tokens[rows]
        prompt[rows] += ends.get(slot_context, system)[: rows.stop - begin]
        ends[slot_context] = prompt[rows] + columns.output_tokens[rows]
        if waiting[begin] >= 0:
            answers[joins[rows]] += columns.output_tokens[rows]
    group, forks = context * sessions + session, None
    if columns.prefix_group is not None:
        roots = (columns.prefix_group[:sessions] + sessions * (int(context.max()) + 1)).tolist()
        shared = int(system[0])
        forks = {chain: (roots[chain % sessions], shared) for chain in range(sessions * len(ends))}
    return replace(
        columns,
        arrival_s=np.where(slot == 0, np.resize(starts_s, count), np.nan),
        prompt_tokens=prompt,
        prefix_group=group,
        prefix_tokens=prompt + columns.output_tokens,
        forks=forks,
        after=after,
        think_s=np.zeros(count) if columns.think_s is None else columns.think_s,
        joins=joins if (joins >= 0).any() else None,
        session=session,
    )
