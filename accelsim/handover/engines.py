"""What the options of an engine's line say of a server, and the other way round."""

from __future__ import annotations

import math
from collections.abc import Iterator

from accelsim.capacity.assignment import Assignment
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.handover.launchers import Launcher
from accelsim.handover.model_sizes import model_size
from accelsim.plain import Document, Values
from accelsim.serving.options import ServingOptions
from accelsim.workloads.model import Workload

_LIMITS = ("max_seqs", "max_batch_tokens", "memory_fraction", "kv_blocks")
_WHERE_ASKED = ("memory_fraction", "kv_blocks", "prefix_cache")
_RANKS = ("tp", "pp", "dp")


def serving_options(settings: Values, engine: str) -> ServingOptions:
    """The server that a line's settings say.

    Args:
        settings: What its options say.
        engine: Name and version.

    Raises:
        InvalidValueError: If a value is out of range.
    """
    limits = {name: settings[name] for name in _LIMITS if settings.get(name, -1) != -1}
    shares = settings.get("prefix_cache", False if settings.get("no_prefix_cache") else None)
    return ServingOptions(engine, prefix_cache=shares, **limits, **_layout(settings))


def _layout(settings: Values) -> Document:
    """How ranks share the model: vLLM's and SGLang's copies are replicas, or copies of the
    attention beside experts that all of their devices share.
    """
    tp, pp, copies, ep = (int(settings.get(name, 1)) for name in ("tp", "pp", "copies", "ep"))
    if settings.get("shares_experts"):  # vLLM: over all devices of tp and copies
        return {"tp": tp, "pp": pp, "dp": copies, "ep": tp * copies}
    if settings.get("copies_attention"):  # SGLang: copies within the devices of tp
        if tp % copies:
            raise InvalidValueError("copies", copies, f"a divisor of tp = {tp}")
        return {"tp": tp // copies, "pp": pp, "dp": copies, "ep": max(ep, copies)}
    return {"tp": tp, "pp": pp, "ep": ep, "replicas": copies}


@frozen
class Servers:
    """How an assignment's replicas lie in its instances.

    Attributes:
        devices: Of a replica.
        copies: Replicas in an instance.
        instances: Instances.
        spans: Whether a replica takes several instances.
    """

    devices: int
    copies: int
    instances: int
    spans: bool


def servers(assignment: Assignment) -> Servers:
    """The replicas of an assignment.

    Args:
        assignment: The assignment.
    """
    settings, instance_devices = assignment.settings, assignment.instance_devices
    replicas = int(settings.get("replicas", 1))
    devices = math.prod(int(settings.get(name, 1)) for name in _RANKS)
    copies = max(1, min(instance_devices // devices, replicas))
    instances = math.ceil(replicas / copies) * max(1, math.ceil(devices / instance_devices))
    return Servers(devices, copies, instances, instance_devices < devices)


def engine_settings(
    assignment: Assignment, program: Launcher, layout: Servers, workload: Workload
) -> Document:
    """What a line's options may say of an assignment.

    Args:
        assignment: The assignment.
        program: The engine.
        layout: Its replicas.
        workload: The model.
    """
    settings = assignment.settings
    tp, pp, dp, ep = (int(settings.get(name, 1)) for name in ("tp", "pp", "dp", "ep"))
    written: Document = {
        name: settings.get(name) for name in (*_LIMITS, "prefix_cache", "kv_format")
    }
    written |= {
        "precision": assignment.precision or None,
        "dtype": assignment.precision or None,
        "tp": tp,
        "pp": _beyond_one(pp),
        "copies": _beyond_one(dp if dp > 1 else layout.copies),
        "max_context": _context_tokens(int(settings.get("max_context", 0)), workload),
        "no_prefix_cache": settings.get("prefix_cache") is False,
    }
    if "ep" in program.means:
        return written | {"ep": _beyond_one(ep), "copies_attention": dp > 1, "tp": tp * dp}
    return written | {"shares_experts": True if ep > 1 else None}


def _beyond_one(count: int) -> int | None:
    return count if count > 1 else None


def _context_tokens(longest: int, workload: Workload) -> int | None:
    """The power of two that holds the longest request, no more than the model was trained on."""
    if not longest:
        return None
    return min(1 << (longest - 1).bit_length(), model_size(workload, "max_positions") or longest)


def engine_notes(
    assignment: Assignment, program: Launcher, layout: Servers, written: Values
) -> Iterator[str]:
    """What to do that the line does not say.

    Args:
        assignment: The assignment.
        program: The engine.
        layout: Its replicas.
        written: What the line's options say.
    """
    settings, means = assignment.settings, program.means
    if layout.spans:
        yield f"a replica of {layout.devices} devices spans instances: start the engine on all"
    if assignment.precision not in {"", "bf16", written.get("precision"), written.get("dtype")}:
        yield f"take a checkpoint in {assignment.precision}: the predicted format"
    if layout.copies > 1 and "copies" not in means:
        yield f"start {layout.copies} copies an instance, each on its own devices and port"
    lost = (n for n in _WHERE_ASKED if n in settings and not {n, f"no_{n}"} & means.keys())
    for name in (*assignment.unsaid, *lost):
        yield f"no option says {name}"
    kv_format = settings.get("kv_format")
    if kv_format in {"fp8", "int8"} and "kv_format" not in means:
        yield f"keep the cache in {kv_format}: kv_cache_config.dtype of --extra_llm_api_options"
