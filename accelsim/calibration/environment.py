"""What a measurement depends on beside the operator: the machine, its limits, the software and the
load.

Reads ``/proc`` and ``/sys`` on Linux, and torch where it is installed. What cannot be read is None.
Needs the standard library alone; torch is asked only if it is there.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from accelsim.calibration.measurement.memory import field_bytes
from accelsim.plain import Document, Values

#: Facts that must be the same for two runs to be comparable; the others are recorded only.
STABLE = (
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
_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "LD_PRELOAD",
    "ONEDNN_MAX_CPU_ISA",
)
#: Beginnings of the flags of vector and matrix units.
_VECTOR_FLAGS = ("avx", "amx", "sve", "fma", "asimd", "bf16", "i8mm")
#: Files that are recorded as they are.
_SETTINGS = {
    "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "huge_pages": "/sys/kernel/mm/transparent_hugepage/enabled",
    "container_cpu_max": "/sys/fs/cgroup/cpu.max",
    "container_memory_max": "/sys/fs/cgroup/memory.max",
}
#: How the lines of torch's build information that name a library begin.
_LIBRARIES = {
    "onednn_version": ("MKL-DNN", "oneDNN"),
    "blas": ("oneAPI Math", "OpenBLAS"),
}
#: Facts of a GPU by torch's names.
_PROPERTIES = {
    "device_name": "name",
    "multiprocessor_count": "multi_processor_count",
    "device_memory_bytes": "total_memory",
    "l2_bytes": "L2_cache_size",
    "boost_clock_mhz": "clock_rate",
    "memory_clock_max_mhz": "memory_clock_rate",
    "memory_bus_bits": "memory_bus_width",
}


def describe(device: str = "cpu") -> Document:
    """Facts of this machine and its software, as plain values.

    Args:
        device: "cpu" or "cuda:N".
    """
    facts: Document = dict.fromkeys(STABLE) | _cpu() | _torch(device)
    facts |= {
        "device": device,
        "system": f"{platform.system()} {platform.machine()}",
        "python_version": platform.python_version(),
        "kernel": platform.release(),
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if device == "cpu":
        facts["device_name"] = facts["cpu_model"]
    return facts


def environment_hash(facts: Values) -> str:
    """Hash of the facts that make runs comparable."""
    stable = {name: facts.get(name) for name in STABLE}
    return sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:16]


def differences(old: Values, new: Values) -> list[str]:
    """Facts that make two environments incomparable, in words; empty where they match."""
    return [
        f"{name}: {old.get(name)!r} there, {new.get(name)!r} now"
        for name in STABLE
        if old.get(name) != new.get(name)
    ]


def machine_name(facts: Values) -> str:
    """A short name for folders: device, cores given, and the start of the environment's hash."""
    name = str(facts.get("device_name") or "unknown").lower()
    parts = [re.sub("[^a-z0-9]+", "-", name).strip("-")[:40]]
    if facts.get("device") == "cpu" and facts.get("cpu_count_given"):
        parts.append(f"{facts['cpu_count_given']}cpu")
    return "-".join([*parts, environment_hash(facts)[:6]])


def _file_text(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _caches() -> dict[str, str]:
    """Sizes of the data caches by level."""
    caches = {}
    for base in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size = _file_text(base / "size")
        if size and _file_text(base / "type") != "Instruction":
            caches[f"L{_file_text(base / 'level')}"] = size
    return caches


def _cpu() -> Document:
    fields: dict[str, str] = {}
    for line in (_file_text("/proc/cpuinfo") or "").split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    flags = sorted((fields.get("flags") or fields.get("Features") or "").split())
    has_affinity = hasattr(os, "sched_getaffinity")
    return {
        "cpu_model": fields.get("model name") or platform.processor() or "unknown CPU",
        "cpu_family": fields.get("cpu family"),
        "cpu_model_number": fields.get("model"),
        "cpu_flags": [flag for flag in flags if flag.startswith(_VECTOR_FLAGS)],
        "cpu_flags_hash": sha256(" ".join(flags).encode()).hexdigest()[:12],
        "cpu_mhz": fields.get("cpu MHz"),
        "cpu_count_present": os.cpu_count(),
        "cpu_count_given": len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count(),
        "cpu_caches": _caches(),
        "memory_bytes": field_bytes(Path("/proc/meminfo"), "MemTotal:", 1024),
    } | {name: _file_text(path) for name, path in _SETTINGS.items()}


def _torch(device: str) -> Document:
    try:
        import torch
    except ImportError:
        return {}
    build = torch.__config__.show().splitlines()
    facts: Document = {"torch_version": str(torch.__version__)}
    for name, libraries in _LIBRARIES.items():
        lines = (line.strip(" -") for line in build if any(word in line for word in libraries))
        facts[name] = next(lines, None)
    return facts | (_cuda(torch, device) if device.startswith("cuda") else {})


def _cuda(torch: ModuleType, device: str) -> Document:
    from accelsim.calibration.energy import nvml_facts

    properties = torch.cuda.get_device_properties(device)
    facts: Document = {name: getattr(properties, ours, None) for name, ours in _PROPERTIES.items()}
    for name in ("boost_clock_mhz", "memory_clock_max_mhz"):  # which torch gives in kHz
        facts[name] = facts[name] / 1e3 if facts[name] else None
    facts |= {
        "cuda_version": torch.version.cuda,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "tf32": bool(torch.backends.cuda.matmul.allow_tf32),
        "cudnn_version": torch.backends.cudnn.version(),
        "hip_version": torch.version.hip,
    }
    return facts | nvml_facts(torch.cuda, device)
