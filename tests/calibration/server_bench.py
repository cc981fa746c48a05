"""A server with steps known in closed form, and the benchmark it would write."""

from __future__ import annotations

from dataclasses import dataclass, field

BASE_S, TOKEN_S, PREFILL_KEY_S, DECODE_KEY_S = 8e-3, 2e-5, 1e-9, 2e-8


def step_s(tokens: float, prefill_keys: float, decode_keys: float) -> float:
    """Time of a step."""
    return BASE_S + TOKEN_S * tokens + PREFILL_KEY_S * prefill_keys + DECODE_KEY_S * decode_keys


@dataclass
class _Running:
    prompt: int
    output: int
    start_s: float
    token_s: list[float] = field(default_factory=list)


def benchmark(lengths: list[tuple[int, int]], users: int) -> dict[str, list]:
    """A closed loop of users, a prompt each step, as ``--save-detailed`` writes it.

    Args:
        lengths: Prompt and output of each request.
        users: Requests in flight.
    """
    waiting = [_Running(prompt, output, 0.0) for prompt, output in lengths]
    running: list[_Running] = []
    done: list[_Running] = []
    now_s = 0.0
    while waiting or running:
        new = None
        if waiting and len(running) < users:
            new = waiting.pop(0)
            new.start_s = now_s
        prompt = new.prompt if new else 0
        cached = sum(one.prompt + len(one.token_s) - 1 for one in running)
        keys = 0.5 * prompt * (prompt + 1)
        now_s += step_s(prompt + len(running), keys, cached)
        for one in [*running, *([new] if new else [])]:
            one.token_s.append(now_s)
        running += [new] if new else []
        done += [one for one in running if len(one.token_s) >= one.output]
        running = [one for one in running if len(one.token_s) < one.output]
    gaps = [[b - a for a, b in zip(one.token_s, one.token_s[1:], strict=False)] for one in done]
    return {
        "input_lens": [one.prompt for one in done],
        "output_lens": [one.output for one in done],
        "ttfts": [one.token_s[0] - one.start_s for one in done],
        "itls": gaps,
        "start_times": [1000.0 + one.start_s for one in done],
    }
