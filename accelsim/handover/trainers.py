"""What the options of a trainer's line say of a plan, and the other way round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields

from accelsim import catalog
from accelsim.capacity.assignment import Assignment
from accelsim.errors import InvalidValueError
from accelsim.plain import Document, Values
from accelsim.training.plan import ParallelismPlan
from accelsim.workloads.model import Workload

#: Fields of a plan that options of trainers say by themselves.
_PLAIN = ("tp", "pp", "cp", "ep", "etp", "sp", "chunks", "recompute", "schedule")
_SHAPE = ("layers", "heads", "hidden_size", "intermediate_size", "kv_heads", "norm", "positions")
#: Axes of MaxText's mesh.
_AXES = ("shards", "copies", "tp", "cp", "ep", "pp", "nodes")


def device_count(trainer: str, settings: Values) -> int:
    """Devices that a line takes.

    Args:
        trainer: Its program.
        settings: What its options say.

    Raises:
        InvalidValueError: If counts of torchrun are no plain numbers.
    """
    if trainer == "maxtext":
        return math.prod(max(1, int(settings.get(name, 1))) for name in _AXES)
    counts = [settings.get(name, 1) for name in ("nodes", "node_devices")]
    try:
        nodes, each = map(int, counts)
    except ValueError:
        named = "--nnodes, --nproc-per-node"
        raise InvalidValueError(named, counts, "plain numbers", "Write them out.") from None
    return nodes * each


def plan_of(trainer: str, settings: Values, devices: int) -> tuple[Document, int]:
    """Fields of the plan that a trainer's settings say, and samples of an iteration.

    Args:
        trainer: Its program.
        settings: What its options say.
        devices: How many.

    Raises:
        InvalidValueError: If tp, pp and cp do not divide the devices.
    """
    plan: Document = {name: settings[name] for name in _PLAIN if name in settings}
    shared = math.prod(int(plan.get(name, 1)) for name in ("tp", "pp", "cp"))
    if devices % shared:
        raise InvalidValueError("devices", devices, f"a multiple of tp x pp x cp = {shared}")
    plan["dp"] = dp = devices // shared
    local = _READ[trainer](plan, settings, dp)
    if plan.get("chunks", 1) > 1:
        plan["schedule"] = "interleaved"
    batch = int(settings.get("global_batch", -1))
    return plan, batch if batch > 0 else local * dp


def _read_torchtitan(plan: Document, settings: Values, dp: int) -> int:
    """Of FSDP2; ranks of tp share the tokens (torchtitan/models/llama3/infra/parallelize.py)."""
    local, copies = (int(settings.get(name, n)) for name, n in (("local_batch", 8), ("copies", 1)))
    is_shared = dp > 1 and settings.get("shards") != 1
    piped = int(settings.get("pipeline_microbatch", 1))
    plan |= {"sp": plan.get("tp", 1) > 1, "zero": int(settings.get("reshards", 3)) * is_shared}
    plan |= {"microbatch": piped if plan.get("pp", 1) > 1 else local}
    plan |= {"shard_group": dp // copies} if copies > 1 and is_shared else {}
    return local


def _read_megatron(plan: Document, settings: Values, _: int) -> int:
    shards_optimizer = int(bool(settings.get("shards_optimizer")))
    plan |= {"microbatch": int(settings.get("microbatch", 1))}
    plan |= {"zero": int(settings.get("sharding", shards_optimizer))}
    plan |= {"optimizer_offload": bool(settings.get("optimizer_offload"))}
    return int(plan["microbatch"])


def _read_maxtext(plan: Document, settings: Values, _: int) -> int:
    plan |= {"zero": 3 if int(settings.get("shards", 1)) > 1 else 0}
    plan |= {"microbatch": max(1, round(settings.get("device_batch", 1)))}
    return int(plan["microbatch"]) * int(settings.get("accumulation", 1))


_READ: Mapping[str, Callable[[Document, Values, int], int]] = {
    "torchtitan": _read_torchtitan,
    "megatron": _read_megatron,
    "maxtext": _read_maxtext,
}


def trainer_settings(asked: Assignment, workload: Workload, trainer: str) -> Document:
    """What a trainer's options may say of an assignment.

    Args:
        asked: The assignment, with the fields of its plan.
        workload: The model.
        trainer: The program.
    """
    usual = ("pp", "cp", "ep", "etp", "chunks")
    said = {n: v for n, v in asked.settings.items() if not (n in usual and v == 1)}
    said |= {"precision": asked.precision, "bf16": True}
    said["accumulation"] = said.get("microbatch_count", 1)
    return said | _WRITE[trainer](said, asked, workload) if trainer in _WRITE else said


def _write_torchtitan(said: Values, _: Assignment, __: Workload) -> Document:
    zero, dp, group = said["zero"], said["dp"], said["shard_group"]
    micro, is_piped = said["microbatch"], "pp" in said
    copies = dp if not zero else dp // group if group else 1
    return {
        "copies": copies,
        "shards": -1 if zero else 1,
        "reshards": {3: 3, 0: None}.get(zero, 2),
        "local_batch": micro * said["microbatch_count"] if is_piped else micro,
        "pipeline_microbatch": micro if is_piped else None,
        "schedule": said["schedule"] if is_piped else None,
    }


def _write_megatron(said: Values, _: Assignment, workload: Workload) -> Document:
    zero, parameters = said["zero"], workload.parameters
    shape: Document = {name: getattr(parameters, name, None) for name in _SHAPE}
    grouped = shape["kv_heads"] not in {None, shape["heads"]}
    is_whole = said["recompute"] == "full"
    return shape | {
        "shards_optimizer": zero > 0,
        "fsdp": zero > 1,
        "sharding": zero,
        "overlaps_gradients": zero > 0,
        "overlaps_weights": zero > 0,
        "recompute_method": "uniform" if is_whole else None,
        "recompute_layers": 1 if is_whole else None,
        "max_positions": max(getattr(parameters, "max_positions", 0), said["seq_len"]),
        "groups": grouped,
        "kv_heads": shape["kv_heads"] if grouped else None,
        "gated": getattr(parameters, "gated", False),
        "untied": not getattr(parameters, "tied_embeddings", True),
        "unbiased": not getattr(parameters, "feed_forward_bias", True),
    }


def _write_maxtext(said: Values, asked: Assignment, _: Workload) -> Document:
    shards, copies = (said["dp"], 1) if said["zero"] else (1, said["dp"])
    return {
        "shards": shards,
        "copies": copies,
        "nodes": 1,
        "device_batch": said["microbatch"],
        "hardware": catalog.device(asked.device).device_class,
    }


def _write_deepspeed(said: Values, _: Assignment, __: Workload) -> Document:
    return {"offloads": "cpu" if said["optimizer_offload"] else None}


_WRITE: Mapping[str, Callable[[Values, Assignment, Workload], Document]] = {
    "torchtitan": _write_torchtitan,
    "megatron": _write_megatron,
    "maxtext": _write_maxtext,
    "deepspeed": _write_deepspeed,
}


def unsaid(trainer: str, asked: Assignment, settings: Values) -> Iterator[str]:
    """Fields of a plan that a trainer's line says otherwise, or not at all.

    Args:
        trainer: The program.
        asked: The assignment.
        settings: What the line's options say.
    """
    read = plan_of(trainer, settings, asked.devices)[0] if trainer in _READ else {}
    for one in fields(ParallelismPlan):
        wanted, says = asked.settings.get(one.name, one.default), read.get(one.name, one.default)
        if wanted not in {one.default, says} or says not in {one.default, wanted}:
            yield f"no option says {one.name}={wanted}"
