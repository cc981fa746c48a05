"""What a measurement depends on beside the operator: the machine, its limits, the software and the
load.

Reads ``/proc`` and ``/sys`` on Linux, and torch where it is installed. What cannot be read is None.
Needs the standard library alone; torch is asked only if it is there.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

__all__ = ["describe", "differences", "environment_hash", "machine_name"]

#: Facts that must be the same for two runs to be comparable; the others are recorded only.
STABLE: Final = (
    "device",
    "device_name",
    "cpu_model",
    "cpu_flags_hash",
    "cpu_count_given",
    "torch_version",
    "onednn_version",
    "cuda_version",
    "driver_version",
    "power_limit_w",
    "system",
)
_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "LD_PRELOAD",
    "ONEDNN_MAX_CPU_ISA",
)


def describe(device: str = "cpu") -> dict[str, Any]:
    """Facts of this machine and its software, as plain values.

    Args:
        device: "cpu" or "cuda:N".
    """
    facts: dict[str, Any] = {
        "device": device,
        "system": f"{platform.system()} {platform.machine()}",
    }
    facts |= _cpu() | _limits() | _torch(device)
    facts["python_version"] = platform.python_version()
    facts["kernel"] = platform.release()
    facts["variables"] = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    facts["load_average"] = list(os.getloadavg()) if hasattr(os, "getloadavg") else None
    facts["measured_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if device == "cpu":
        facts["device_name"] = facts["cpu_model"]
    return facts


def environment_hash(facts: Mapping[str, Any]) -> str:
    """Hash of the facts that make runs comparable."""
    stable = {name: facts.get(name) for name in STABLE}
    return sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:16]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Facts that make two environments incomparable, in words; empty where they match."""
    return [
        f"{name}: {old.get(name)!r} there, {new.get(name)!r} now"
        for name in STABLE
        if old.get(name) != new.get(name)
    ]


def machine_name(facts: Mapping[str, Any]) -> str:
    """A short name for folders: device, cores given, and the start of the environment's hash."""
    words = str(facts.get("device_name") or "unknown").lower()
    plain = "-".join("".join(c if c.isalnum() else " " for c in words).split())[:40]
    count = facts.get("cpu_count_given") if facts.get("device") == "cpu" else None
    return "-".join(
        part
        for part in (plain, f"{count}cpu" if count else "", environment_hash(facts)[:6])
        if part
    )


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cpu() -> dict[str, Any]:
    fields: dict[str, str] = {}
    for line in (_read("/proc/cpuinfo") or "").split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    flags = sorted((fields.get("flags") or fields.get("Features") or "").split())
    marked = [
        f for f in flags if f.startswith(("avx", "amx", "sve", "fma", "asimd", "bf16", "i8mm"))
    ]
    caches = {}
    for index in range(5):
        base = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        size = _read(f"{base}/size")
        if size and _read(f"{base}/type") != "Instruction":
            caches[f"L{_read(f'{base}/level')}"] = size
    return {
        "cpu_model": fields.get("model name") or platform.processor() or "unknown CPU",
        "cpu_family": fields.get("cpu family"),
        "cpu_model_number": fields.get("model"),
        "cpu_flags": marked,
        "cpu_flags_hash": sha256(" ".join(flags).encode()).hexdigest()[:12],
        "cpu_mhz": fields.get("cpu MHz"),
        "cpu_count_present": os.cpu_count(),
        "cpu_count_given": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "cpu_caches": caches,
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def _limits() -> dict[str, Any]:
    total = next(
        (
            x.split()[1]
            for x in (_read("/proc/meminfo") or "").splitlines()
            if x.startswith("MemTotal")
        ),
        None,
    )
    return {
        "memory_bytes": int(total) * 1024 if total else None,
        "container_cpu_max": _read("/sys/fs/cgroup/cpu.max"),
        "container_memory_max": _read("/sys/fs/cgroup/memory.max"),
    }


def _torch(device: str) -> dict[str, Any]:
    names = (
        "torch_version",
        "onednn_version",
        "cuda_version",
        "driver_version",
        "power_limit_w",
        "tf32",
    )
    facts: dict[str, Any] = dict.fromkeys(names)
    try:
        import torch
    except ImportError:
        return facts
    build = torch.__config__.show()
    facts["torch_version"] = str(torch.__version__)
    facts["onednn_version"] = next(
        (x.strip(" -") for x in build.splitlines() if "MKL-DNN" in x or "oneDNN" in x), None
    )
    facts["blas"] = next(
        (x.strip(" -") for x in build.splitlines() if "oneAPI Math" in x or "OpenBLAS" in x), None
    )
    return facts | (_cuda(torch, device) if device.startswith("cuda") else {})


def _cuda(torch: Any, device: str) -> dict[str, Any]:
    from accelsim.calibration.energy import nvml_facts

    properties = torch.cuda.get_device_properties(device)
    facts = {
        "device_name": properties.name,
        "cuda_version": torch.version.cuda,
        "multiprocessor_count": getattr(properties, "multi_processor_count", None),
        "device_memory_bytes": getattr(properties, "total_memory", None),
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "boost_clock_mhz": _mhz(getattr(properties, "clock_rate", None)),
        "memory_clock_max_mhz": _mhz(getattr(properties, "memory_clock_rate", None)),
        "memory_bus_bits": getattr(properties, "memory_bus_width", None),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "tf32": bool(torch.backends.cuda.matmul.allow_tf32),
        "cudnn_version": torch.backends.cudnn.version(),
        "hip_version": torch.version.hip,
    }
    return facts | nvml_facts(torch.cuda, device)


def _mhz(kilohertz: int | None) -> float | None:
    return kilohertz / 1e3 if kilohertz else None
