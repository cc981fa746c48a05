"""One question, one answer: ``accelsim plan`` against ``serve --find cheapest`` and ``train
--search`` on 60 questions: devices, USD and kWh a month or a run, and the seconds of a plan.

    python benchmarks/plan_agreement.py
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import accelsim
from accelsim.errors import InputError
from accelsim.serving.find import find
from accelsim.training.length import RunLength

#: Two answers agree within so much.
NEAR = 0.01
MODELS = (("gpt2", 60.0), ("llama-3.2-1b", 20.0), ("llama-3.1-8b", 10.0))
DEVICES = ("l4", "a10g", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb")
TARGETS = ((500, 50), (200, 25))
JOBS = (
    ("gpt2", {"tokens": 1e9}, 64),
    ("llama-3.2-1b", {"tokens": 1e9}, 64),
    ("bert-base", {"samples": 1e7}, 256),
    ("bert-large", {"samples": 1e6}, 64),
    ("resnet-50", {"samples": 1e7}, 256),
    ("vit-b-16", {"samples": 1e6}, 128),
)


def services() -> Iterator[tuple[str, Any, Any]]:
    """Thirty services: what they are called, what `plan` says and what `serve` does."""
    for (model, rate), device, (ttft, tpot) in product(MODELS, DEVICES, TARGETS):
        lengths = {"prompt": "lognormal:300:0.6", "output": "lognormal:80:0.6"}
        service = {"name": "s", "model": model, "requests_per_s": rate, **lengths}
        service |= {"ttft_ms": ttft, "tpot_ms": tpot}
        scenario = {"name": "q", "services": [service], "candidates": {"devices": [device]}}
        load = accelsim.Arrivals(rate_per_s=rate, **lengths)
        options = accelsim.ServingOptions(slo=accelsim.SloTargets(ttft / 1e3, tpot / 1e3))

        def other(model: str = model, device: str = device, asked: Any = (load, options)) -> Any:
            found = find("cheapest", model, device, *asked).result
            return found.devices, found.cost_usd_per_month, found.energy_kwh_per_month

        yield f"{model} on {device}, {ttft} and {tpot} ms", scenario, other


def jobs() -> Iterator[tuple[str, Any, Any]]:
    """Thirty jobs, each on one instance of one offer."""
    for (model, size, batch), device in product(JOBS, DEVICES):
        job = {"name": "j", "model": model, **size, "global_batch": batch, "deadline_hours": 1e5}
        candidates = {"devices": [device], "counts": [1]}
        scenario = {"name": "q", "training_jobs": [job], "candidates": candidates}

        def other(model: str = model, device: str = device, asked: Any = (size, batch)) -> Any:
            least = None
            length = RunLength(**asked[0])
            offers = accelsim.PriceBook.load().eligible(device).offers
            counts = sorted({int(o.device_count) for o in offers if o.device_count >= 1})
            for count in counts:
                each = min(o.on_demand_usd_per_hour for o in offers if o.device_count == count)
                try:
                    where = {"device": device, "gpus": count, "global_batch": asked[1]}
                    run = accelsim.train(model, length=length, search=True, **where)
                except InputError:
                    continue
                usd = run.time_to_train_s / 3600 * each
                if least is None or usd < least[1]:
                    least = run.device_count, usd, run.total_energy_j / 3.6e6
            return least

        yield f"{model} on {device}", scenario, other


def main() -> None:
    """Ask all of both, and print those that differ."""
    agreed, asked, slowest = 0, 0, 0.0
    for name, scenario, other in (*services(), *jobs()):
        start = time.process_time()
        best = accelsim.plan(scenario).recommended
        slowest = max(slowest, time.process_time() - start)
        try:
            expected = other()
        except InputError:
            expected = None
        mine = None
        if best is not None:
            kwh = (best.energy_j_per_month or 0.0) / 3.6e6
            mine = (best.device_count, best.cost_usd_per_month, kwh)
        asked += 1
        both = mine is not None and expected is not None
        is_near = mine is None and expected is None
        if both:
            pairs = zip(mine, expected, strict=True)
            is_near = all(abs(a - b) <= NEAR * max(abs(b), 1e-9) for a, b in pairs)
        agreed += is_near
        if not is_near:
            print(f"{name}: {mine} and {expected}")
    print(f"{agreed} of {asked} agree within {NEAR:.0%}; the slowest plan took {slowest:.1f} CPU-s")


if __name__ == "__main__":
    main()
