"""Replicas agree with queueing theory where it has closed forms."""

import math

import numpy as np
import pytest

from accelsim.simulation.serving.requests import RequestColumns
from accelsim.simulation.serving.schedulers.continuous import ContinuousBatching
from accelsim.simulation.serving.schedulers.limits import BatchLimits
from accelsim.simulation.serving.schedulers.window import WindowBatching

from .scenarios import run_fleet

TICK_S = 1e-3
MEAN_TOKENS = 1000


class TokenTime:
    """A token of a prompt, or a step of any batch, takes a tick."""

    idle_w, log_sigma, common_fraction = None, 0.0, 1.0

    def step(self, prefill_tokens, _keys, decode_count, _context):
        return (prefill_tokens if not decode_count else 1) * TICK_S, 0.0

    def decode_run(self, _count, _context, n):
        return n * TICK_S, 0.0


def load(utilisation, servers, count, seed, *, is_even):
    rng = np.random.default_rng(seed)
    gap_s = MEAN_TOKENS * TICK_S / (utilisation * servers)
    tokens = rng.exponential(MEAN_TOKENS, count).astype(np.int64) + 1
    if is_even:
        tokens = np.full(count, MEAN_TOKENS)
    return np.cumsum(rng.exponential(gap_s, count)), tokens


def interval(waits_s, parts=20):
    """Mean and half-width of its 95 % interval from batch means (Student, 19 degrees)."""
    means = np.array([part.mean() for part in np.array_split(waits_s[len(waits_s) // 20 :], parts)])
    return means.mean(), 2.093 * means.std(ddof=1) / math.sqrt(parts)


@pytest.mark.parametrize("is_even", [False, True])
@pytest.mark.parametrize(("utilisation", "seed"), [(0.5, 1), (0.8, 2), (0.95, 4)])
def test_one_server_waits_as_pollaczek_and_khinchine_say(utilisation, seed, is_even):
    arrival_s, tokens = load(utilisation, 1, 60_000, seed, is_even=is_even)
    columns = RequestColumns(arrival_s, tokens, np.zeros_like(tokens))
    log, _ = run_fleet(columns, lambda log: WindowBatching(log, TokenTime(), 1))
    mean, half = interval(log.column("scheduled_s") - arrival_s)
    service_s = MEAN_TOKENS * TICK_S
    expected = utilisation / (1 - utilisation) * service_s * (0.5 if is_even else 1.0)
    assert abs(mean - expected) < half
    assert half < (0.3 if utilisation > 0.9 else 0.1) * expected


@pytest.mark.parametrize(("utilisation", "seed"), [(0.6, 1), (0.9, 3)])
def test_sequences_wait_as_erlang_c_says(utilisation, seed):
    servers = 4
    arrival_s, tokens = load(utilisation, servers, 60_000, seed, is_even=False)
    columns = RequestColumns(arrival_s, np.ones_like(tokens), tokens)
    limits = BatchLimits(max_tokens=64, max_seqs=servers)
    log, _ = run_fleet(columns, lambda log: ContinuousBatching(log, TokenTime(), limits))
    mean, half = interval(log.column("scheduled_s") - arrival_s)
    offered = utilisation * servers
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - utilisation)
    waits = last / (sum(terms) + last)
    expected = waits * MEAN_TOKENS * TICK_S / (servers * (1 - utilisation))
    assert abs(mean - expected) < half + TICK_S  # steps begin on ticks
    assert half < 0.3 * expected


def test_full_batches_serve_what_bulk_service_can():
    """With deterministic batches of up to b and none waiting for others, a batch holds what came
    during the one before: at low load most hold one, and waits are the rest of a service.
    """
    rng = np.random.default_rng(5)
    count, service_s, rate = 40_000, 1.0, 12.0
    arrival_s = np.cumsum(rng.exponential(1 / rate, count))

    class BatchTime(TokenTime):
        def step(self, *_):
            return service_s, 0.0

    ones = np.ones(count, dtype=np.int64)
    columns = RequestColumns(arrival_s, ones, 0 * ones)
    log, fleet = run_fleet(columns, lambda log: WindowBatching(log, BatchTime(), 1_000_000))
    waits_s = log.column("scheduled_s") - arrival_s
    mean, half = interval(waits_s)
    # Batches without a limit follow each other: a wait is the rest of a service, uniform but for
    # the requests that find an idle server, which e^-(rate service) of the services leave.
    idle = math.exp(-rate * service_s)
    expected = 0.5 * service_s * (1 - idle)
    assert abs(mean - expected) < half + 1e-3
    assert fleet.replicas[0].tally.step_count == pytest.approx(arrival_s[-1] / service_s, rel=0.01)
