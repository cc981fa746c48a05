"""What the operating system says of this machine's own CPU and GPUs.

Reads ``/proc/cpuinfo``, ``/proc/meminfo`` and ``/sys`` on Linux and asks the tools of NVIDIA, AMD,
Intel and Apple for GPUs where they are installed. Nothing here fails: what cannot be read is
unknown. Peak rates follow from the vector extensions the CPU lists, with the port counts common to
that extension, and are marked as estimates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from accelsim.dtype import Dtype
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile, MemoryLevel
from accelsim.hardware.slice import SliceSpec, slice_device
from accelsim.hardware.sourced import Positive, PositiveCount, SourceKind, value_of

_OS = "operating system of this machine"
_GENERIC_CLOCK_HZ = 2.0e9
#: Bits, ports and name of the vector unit by the flag that tells of it, widest first.
_VECTOR_UNITS = {
    "avx512f": (512, 2, "AVX-512"),
    "fma": (256, 2, "AVX2 and FMA"),
    "avx": (256, 1, "AVX"),
    "sve": (256, 2, "SVE"),
    "asimd": (128, 2, "ASIMD"),
}
#: Vendor identifiers of x86 processors, and the names the catalogue uses.
_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}


@frozen
class CpuFacts:
    """A CPU as the operating system describes it.

    Attributes:
        model_name: Marketing name.
        vendor: Vendor identifier.
        vcpu_count: Hardware threads visible.
        core_count: Physical cores visible.
        clock_hz: Nominal clock, or None.
        flags: Instruction set extensions.
        memory_bytes: Main memory, or None.
        cache_bytes: Last-level cache, or None.
    """

    model_name: str
    vendor: str
    vcpu_count: int
    core_count: int
    clock_hz: float | None
    flags: frozenset[str]
    memory_bytes: float | None
    cache_bytes: float | None


@lru_cache(maxsize=1)
def local_cpu_facts(
    proc: Path = Path("/proc"), processors: Path = Path("/sys/devices/system/cpu")
) -> CpuFacts | None:
    """Facts of this machine's CPU, or None where they cannot be read."""
    facts = parse_cpuinfo(_text(proc / "cpuinfo"), _text(proc / "meminfo"))
    cache = _last_level_bytes(processors)
    return facts if facts is None or cache is None else replace(facts, cache_bytes=cache)


def _text(path: Path) -> str:
    """Contents of a file; empty where it cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _last_level_bytes(processors: Path) -> float | None:
    """All caches of the highest level together; ``/proc/cpuinfo`` gives the second level's size on
    AMD processors.
    """
    levels: dict[int, dict[str, float]] = {}
    for folder in sorted(processors.glob("cpu[0-9]*/cache/index[0-9]*")):
        level, shared, size = (_text(folder / n) for n in ("level", "shared_cpu_list", "size"))
        capacity = _kib(size)
        if level.isdigit() and capacity:
            levels.setdefault(int(level), {})[shared] = capacity
    return sum(levels[max(levels)].values()) if levels else None


def parse_cpuinfo(cpuinfo: str, meminfo: str = "") -> CpuFacts | None:
    """Read the texts of ``/proc/cpuinfo`` and ``/proc/meminfo``.

    Args:
        cpuinfo: Contents of ``/proc/cpuinfo``.
        meminfo: Contents of ``/proc/meminfo``.

    Returns:
        The facts, or None if no processor is listed.
    """
    entries = [_fields(block) for block in cpuinfo.split("\n\n") if "processor" in block]
    if not entries:
        return None
    processor = entries[0]
    cores = {
        (entry.get("physical id", "0"), entry.get("core id", entry.get("processor", "")))
        for entry in entries
    }
    memory = re.search(r"MemTotal:\s+(\d+) kB", meminfo)
    return CpuFacts(
        model_name=processor.get("model name") or processor.get("CPU part") or "unknown CPU",
        vendor=processor.get("vendor_id") or processor.get("CPU implementer") or "unknown",
        vcpu_count=len(entries),
        core_count=max(1, len(cores)),
        clock_hz=_clock_hz(processor),
        flags=frozenset((processor.get("flags") or processor.get("Features") or "").split()),
        memory_bytes=float(memory[1]) * 1024 if memory else None,
        cache_bytes=_kib(processor.get("cache size", "")),
    )


_LSPCI = r"(?:VGA compatible controller|3D controller|Display controller|Processing accelerators): "
#: What lists each maker's GPUs and their names, the best first: program and arguments, pattern of
#: its answer. A second group of a pattern tells boards of one name apart: MiB of memory, cores of
#: an Apple chip. lspci knows a card without a driver, by the name in its list of numbers.
_LISTERS: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "NVIDIA": (
        (
            ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"),
            r"^(.+?), *(\d+)\s*$",
        ),
        (("lspci",), _LSPCI + r"NVIDIA [^\n]*\[([^]\n]+)\]()"),
    ),
    "AMD": (
        (("amd-smi", "static", "--asic"), r"MARKET_NAME: *([^\n]+)()"),
        (("rocm-smi", "--showproductname", "--csv"), r"^card\d+,([^,]+)()"),
        (("lspci",), _LSPCI + r"Advanced Micro Devices[^\n]*\[([^]\n]+)\]()"),
    ),
    "Intel": (
        (("xpu-smi", "discovery"), r"Device Name: *([^|\n]+?)() *(?:\||$)"),
        (("lspci",), _LSPCI + r"Intel [^\n]*\[([^]\n]+)\]()"),
    ),
    "Apple": (
        (
            ("system_profiler", "SPDisplaysDataType"),
            r"Chipset Model: (Apple [^\n]+)(?:.*?Total Number of Cores: (\d+))?",
        ),
        (("sysctl", "-n", "machdep.cpu.brand_string"), r"^(Apple M[^\n]*)()"),
    ),
}
#: Numbers above are of memory, MiB; below, of cores.
_LEAST_MIB = 1000
_LINES = re.MULTILINE | re.DOTALL


def local_gpu_names() -> list[tuple[str, ...]]:
    """Names that each GPU of this machine may have in the catalogue, most specific first; empty
    where no program lists any.
    """
    listed: list[tuple[str, ...]] = []
    for listers in _LISTERS.values():
        answers = (re.findall(pattern, _answer(command), _LINES) for command, pattern in listers)
        boards = next(filter(None, answers), [])
        listed += [(*_told_apart(name, size), name.strip()) for name, size in boards]
    return listed


def _told_apart(name: str, size: str) -> tuple[str, ...]:
    """The name with what tells boards of one name apart."""
    if not size:
        return ()
    amount = int(size)
    return (f"{name} {round(amount / 1024)}gb" if amount > _LEAST_MIB else f"{name} {amount}c",)


def machine_memory_bytes() -> float | None:
    """Main memory of this machine; None where nothing tells it."""
    facts = local_cpu_facts()
    if facts is not None:
        return facts.memory_bytes
    answer = _answer(("sysctl", "-n", "hw.memsize")).strip()
    return float(answer) if answer.isdigit() else None


def _answer(command: tuple[str, ...]) -> str:
    """What a program prints; nothing where it is missing or fails."""
    import shutil
    import subprocess

    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        answer = subprocess.run(  # noqa: S603  (a fixed command, found on the user's own PATH)
            [program, *command[1:]], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def name_candidates(model_name: str) -> list[str]:
    """Catalogue names a marketing name may stand for, most specific first.

    Args:
        model_name: Such as ``Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz`` or ``NVIDIA
            A100-SXM4-80GB``.

    Returns:
        Kebab-case names.
    """
    text = re.sub(r"\((?:r|tm)\)", "", model_name.lower())
    text = re.sub(r"@.*|\b\d+-core\b|\bprocessor\b|\bcpu\b|\bgraphics\b", " ", text)
    full = re.sub(r"[^a-z0-9.+]+", "-", text).strip("-")
    short = re.sub(r"^(?:nvidia|intel|amd)-", "", full)
    return list(dict.fromkeys(name for name in (full, short, re.sub(r"^core-", "", short)) if name))


def local_cpu_profile(facts: CpuFacts, model: CpuProfile | None) -> CpuProfile:
    """Profile of this machine's CPU, named ``local/cpu``.

    Args:
        facts: What the operating system says.
        model: The catalogue's profile of the same model, if it has one.

    Returns:
        A slice of the model's profile with as many vCPUs as are visible, else an estimate from the
        extensions listed.
    """
    if model is None:
        return _estimated(facts)
    threads = model.core_count.value * value_of(model.threads_per_core, 1)
    memory = facts.memory_bytes
    if memory is not None and memory > model.memory.capacity_bytes.value:
        memory = None
    vcpu_count = min(facts.vcpu_count, threads)
    spec = SliceSpec(of=model.name, vcpu_count=vcpu_count, memory_bytes=memory)
    title = f"this machine: {model.title}"
    sliced = slice_device(model, spec, "local/cpu").model_copy(update={"title": title})
    assert isinstance(sliced, CpuProfile)
    return sliced


def _estimated(facts: CpuFacts) -> CpuProfile:
    """A profile of lanes x ports x 2 x clock x cores.

    Estimate: the ports common to the widest vector extension that the CPU lists.
    """
    width, ports, extension = _vector_unit(facts)
    clock = facts.clock_hz or _GENERIC_CLOCK_HZ
    lanes = width // 32
    rate = facts.core_count * lanes * ports * 2 * clock
    units = f"{facts.core_count} cores x {lanes} lanes x {ports} ports x 2"
    formula = f"{units} x {clock / 1e9:.3g} GHz ({extension})"
    no_clock = "the operating system gives no clock; 2 GHz assumed"
    cache = facts.cache_bytes
    levels = (
        ()
        if cache is None
        else (MemoryLevel(name="last-level cache", capacity_bytes=_read(cache)),)
    )
    return CpuProfile(
        name="local/cpu",
        title=f"this machine: {facts.model_name}"[:200],
        vendor=_VENDORS.get(facts.vendor, facts.vendor),
        year=2020,
        scope="die",
        core_count=_count(facts.core_count),
        threads_per_core=_count(max(1, facts.vcpu_count // facts.core_count)),
        simd_width_bits=_count(width, f"widest extension: {extension}"),
        fma_ports=_count(ports, f"common for {extension}"),
        base_clock_hz=_read(clock) if facts.clock_hz else _guess(clock, no_clock),
        vector_flop_per_s={
            Dtype.FP64: _guess(rate / 2, formula),
            Dtype.FP32: _guess(rate, formula),
        },
        matrix_flop_per_s=_matrix_rates(facts, rate, clock),
        matrix_sparse_flop_per_s={},
        memory=MemoryLevel(
            name="main memory", capacity_bytes=_read(facts.memory_bytes or 8 * 1024.0**3)
        ),
        on_chip=levels,
        note="estimated from what the operating system lists; the year is not known",
    )


def _matrix_rates(facts: CpuFacts, rate: float, clock: float) -> dict[Dtype, Positive]:
    """Rates of narrow formats from the instructions that a CPU lists.

    Estimate: ratios to the FP32 rate that the instructions have, on as many ports.
    """
    amx = facts.core_count * 1024 * clock
    if "amx_bf16" in facts.flags and "amx_int8" in facts.flags:
        source = "AMX: 1024 bf16 or 2048 int8 operations per cycle and core"
        return {Dtype.BF16: _guess(amx, source), Dtype.INT8: _guess(2 * amx, source)}
    rates = {}
    if "avx512_bf16" in facts.flags:
        rates[Dtype.BF16] = _guess(2 * rate, "twice the fp32 rate (AVX512-BF16)")
    if facts.flags & {"avx512_vnni", "avx_vnni", "asimddp"}:
        rates[Dtype.INT8] = _guess(4 * rate, "four times the fp32 rate (8-bit dot product)")
    return rates


def _vector_unit(facts: CpuFacts) -> tuple[int, int, str]:
    flags = facts.flags
    if facts.vendor == "AuthenticAMD" and "avx512f" in flags and "avx512_vp2intersect" not in flags:
        return 256, 2, "AVX-512 on the 256-bit pipes of Zen 4"
    return next((unit for flag, unit in _VECTOR_UNITS.items() if flag in flags), (128, 1, "SSE"))


def _count(value: int, guess: str = "") -> PositiveCount:
    kind = SourceKind.ESTIMATE if guess else SourceKind.MEASURED
    return PositiveCount(value=value, kind=kind, source=guess or _OS)


def _read(value: float) -> Positive:
    return Positive(value=value, kind=SourceKind.MEASURED, source=_OS)


def _guess(value: float, source: str) -> Positive:
    return Positive(value=value, kind=SourceKind.ESTIMATE, source=source)


def _fields(block: str) -> Mapping[str, str]:
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _clock_hz(fields: Mapping[str, str]) -> float | None:
    stated = re.search(r"@\s*([\d.]+)\s*GHz", fields.get("model name", ""))
    with suppress(ValueError):
        hz = float(stated[1]) * 1e9 if stated else float(fields.get("cpu MHz", "")) * 1e6
        return hz or None
    return None


def _kib(text: str) -> float | None:
    match = re.match(r"(\d+) ?KB?\b", text)
    return float(match[1]) * 1024 or None if match else None
