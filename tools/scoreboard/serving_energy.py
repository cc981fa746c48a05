"""Suite `serving-energy`: energy per token and power of language models on H100 and B200 servers.

ML.ENERGY's leaderboard (Chung et al., NeurIPS 2025 datasets; vLLM) meters whole batches in their
steady state: as many requests as the engine's limit, each replaced when it ends. While each gets a
token, one in so many has its prompt computed:

    J per token = (decode step + prompts' added energy per step) / sequences,

power the same over the time of both, on all devices of the replica. Answers have the mean length
of the row. The table states no prompts: lengths per task are estimates of
``calibration/published/serving_systems.yaml``. Image and video chats are refused by name, and
models that are not in the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from accelsim.cost.idle import idle_power_w
from accelsim.errors import InvalidValueError
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, published, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.names import device_of
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.serving.plan import ReplicaPlan
from tools.scoreboard.quantity_batches import QUANTITY
from tools.scoreboard.served_systems import Ranks, Served, like_figure, plan_of
from tools.scoreboard.serving_tokens import served_precision, served_workload

ENERGY_SCHEMA = schema("power/mlenergy_llm.csv")
_FACTS: Values = published("serving_systems")
#: Column of a quantity, and what figure of a server it is like.
_QUANTITIES = {
    "J per token": ("energy_per_token_joules", "energy"),
    "power": ("avg_power_watts", "power"),
    "tokens per s": ("output_throughput_tokens_per_sec", "tpot"),
}


@register_suite(
    "serving-energy",
    "language models on H100 and B200 servers: energy per token, power, rate",
    (ENERGY_SCHEMA,),
    "operator",
    quantity=QUANTITY,
    has_best_alone=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Energy, power and rate of each row."""
    return run_batches(row for record in folder.records(ENERGY_SCHEMA) for row in _rows(record))


def _rows(cells: Values) -> Iterator[MeasuredRun]:
    task, model = cells["task"], cells["model_id"]
    seqs, devices = int(cells["max_num_seqs"]), int(cells["num_gpus"])
    label = f"{model}, {task}, {devices} devices, {seqs} sequences"
    for quantity, (column, figure) in _QUANTITIES.items():
        row = MeasuredRun(
            _FACTS["boards"][cells["gpu_model"]],
            quantity,
            label,
            cells[column],
            views=frozenset({f"{quantity}: {model}"}),
        )
        yield row.answered(partial(_answered, cells=cells, figure=figure))


def _answered(row: MeasuredRun, cells: Values, figure: str) -> MeasuredRun:
    task = cells["task"]
    prompt = _FACTS["prompt_tokens"].get(task)
    if prompt is None:
        raise InvalidValueError("task", task, "a task of texts: images and videos are not modelled")
    served = _served(cells)
    plan = plan_of(served)
    figures = steady_state(plan, int(cells["max_num_seqs"]), prompt, cells["avg_output_len"])
    answered = replace(row, predicted_s=figures[row.group], log_sigma=plan.steps.log_sigma)
    return like_figure(answered, served, figure)


def _served(cells: Values) -> Served:
    model = cells["model_id"]
    workload = served_workload(model)
    precision = served_precision(workload, model, cells["weight_precision"])
    devices, shared = int(cells["num_gpus"]), int(cells["expert_parallel"])
    device = device_of(_FACTS["boards"][cells["gpu_model"]]).name
    return Served(workload, precision, _FACTS["energy_engine"], device, Ranks(devices, 1, shared))


def steady_state(
    plan: ReplicaPlan, sequences: int, prompt: float, output: float
) -> dict[str, float]:
    """Energy per token, power and rate of a replica whose sequences are replaced when they end.

    Args:
        plan: The replica.
        sequences: Sequences at once; fewer where the cache holds no more.
        prompt: Tokens of a prompt.
        output: Tokens of an answer.

    Raises:
        InvalidValueError: If the device's power is not known.
    """
    if idle_power_w(plan.run.device) is None:
        raise InvalidValueError("device", plan.run.device.name, "a device whose power is known")
    held = prompt + 0.5 * output
    each = 0.0 if plan.cache is None else plan.cache.mean_blocks(held)
    count = max(1, min(sequences, int(plan.blocks / each))) if each else sequences
    seconds, joules = plan.steps.decode_run(count, count * held, 1)
    length = max(round(prompt), 1)
    with_prompt = plan.steps.step(length, 0.5 * length * (length + 1), count, count * held)
    prompts = count / output  # per step
    seconds += prompts * (with_prompt[0] - seconds)
    joules += prompts * (with_prompt[1] - joules)
    power_w = joules / seconds
    return {
        "J per token": joules / count,
        "power": power_w,
        "tokens per s": count / seconds,
    }
