"""Reading this machine's description: known models become slices, others estimates, nonsense
nothing.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import catalog
from accelsim.catalog import device
from accelsim.dtype import Dtype
from accelsim.hardware.local import (
    local_cpu_facts,
    local_cpu_profile,
    name_candidates,
    parse_cpuinfo,
)

AMD_SMI = (
    "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X OAM\n"
    "GPU: 1\n    ASIC:\n        MARKET_NAME: AMD Radeon RX 7900 XTX\n"
)
#: As printed in ProjectPhysX/OpenCL-Benchmark #19, hyprwm/hyprland-wiki #1041 and clbr/radeontop
#: #159: the last name stands for two boards.
LSPCI = (
    "00:02.0 Display controller: Intel Corporation AlderLake-S GT1 (rev 0c)\n"
    "01:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3080 Ti]\n"
    "01:00.1 Audio device: NVIDIA Corporation GA102 High Definition Audio [T4]\n"
    "03:00.0 VGA compatible controller: Intel Corporation DG2 [Arc A770] (rev 08)\n"
    "03:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 "
    "[Radeon RX 7900 XT/7900 XTX] (rev c8)"
)


def cpuinfo(
    model="Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz",
    vcpus=8,
    flags="fma avx512f",
    vendor="GenuineIntel",
):
    return "\n\n".join(
        f"processor\t: {i}\nvendor_id\t: {vendor}\nmodel name\t: {model}\n"
        f"cpu MHz\t\t: 2300.0\ncache size\t: 61440 KB\n"
        f"physical id\t: 0\ncore id\t\t: {i // 2}\nflags\t\t: {flags}"
        for i in range(vcpus)
    )


def test_facts_of_a_two_way_threaded_cpu():
    facts = parse_cpuinfo(cpuinfo(), "MemTotal:       32795236 kB\n")
    assert (facts.vcpu_count, facts.core_count) == (8, 4)
    assert facts.clock_hz == pytest.approx(2.3e9)
    assert facts.memory_bytes == 32795236 * 1024
    assert facts.cache_bytes == 61440 * 1024


def test_the_last_level_is_the_systems_and_counts_every_slice(tmp_path):
    (tmp_path / "cpuinfo").write_text(cpuinfo())
    assert local_cpu_facts(tmp_path, tmp_path / "none").cache_bytes == 61440 * 1024
    caches = [
        (0, 2, "0", "1024K"),
        (0, 3, "0-3", "32768K"),
        (1, 3, "0-3", "32768K"),
        (4, 3, "4-7", "32768K"),
        (5, 3, "4-7", "?"),
    ]
    for cpu, level, shared, size in caches:
        folder = tmp_path / "sys" / f"cpu{cpu}" / "cache" / f"index{level}"
        folder.mkdir(parents=True)
        for name, text in (("level", str(level)), ("shared_cpu_list", shared), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert local_cpu_facts(tmp_path, tmp_path / "sys").cache_bytes == 2 * 32768 * 1024


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "xeon-platinum-8380"),
        ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", "xeon-gold-6148"),
        ("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", "xeon-e5-2690-v4"),
        ("AMD EPYC 7763 64-Core Processor", "epyc-7763"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA L4", "l4"),
    ],
)
def test_marketing_names_find_the_catalogue(model, expected):
    from accelsim.catalog import aliases, device_names

    known = {**aliases(), **{name: name for name in device_names()}}
    assert next(known[name] for name in name_candidates(model) if name in known) == expected


def test_a_known_model_is_a_slice_of_its_profile():
    facts = parse_cpuinfo(cpuinfo())
    profile = local_cpu_profile(facts, device("xeon-platinum-8380"))
    assert profile.name == "local/cpu"
    assert profile.slice_of == "xeon-platinum-8380"
    assert profile.core_count.value == 4


def test_an_unknown_model_is_estimated_from_its_extensions():
    facts = parse_cpuinfo(
        cpuinfo("Some CPU", flags="fma avx512f avx512_vnni"), "MemTotal: 1000000 kB"
    )
    profile = local_cpu_profile(facts, None)
    assert profile.vector_flop_per_s[Dtype.FP32].value == pytest.approx(4 * 16 * 2 * 2 * 2.3e9)
    assert profile.matrix_flop_per_s[Dtype.INT8].value == pytest.approx(
        4 * profile.vector_flop_per_s[Dtype.FP32].value
    )
    assert profile.memory.capacity_bytes.value == 1000000 * 1024


@pytest.mark.parametrize(
    ("flags", "vendor", "width", "ports"),
    [
        ("fma avx avx512f", "GenuineIntel", 512, 2),
        ("fma avx avx512f", "AuthenticAMD", 256, 2),
        ("fma avx", "AuthenticAMD", 256, 2),
        ("avx", "GenuineIntel", 256, 1),
        ("sse2", "GenuineIntel", 128, 1),
        ("asimd", "ARM", 128, 2),
    ],
)
def test_the_vector_unit_follows_the_extensions(flags, vendor, width, ports):
    profile = local_cpu_profile(
        parse_cpuinfo(cpuinfo("Some CPU", flags=flags, vendor=vendor)), None
    )
    assert (profile.simd_width_bits.value, profile.fma_ports.value) == (width, ports)


def test_amx_gives_matrix_rates():
    profile = local_cpu_profile(
        parse_cpuinfo(cpuinfo("X", flags="avx512f amx_bf16 amx_int8")), None
    )
    assert profile.matrix_flop_per_s[Dtype.BF16].value == pytest.approx(4 * 1024 * 2.3e9)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400), st.text(max_size=100))
def test_no_text_makes_it_fail(first, second):
    facts = parse_cpuinfo(first, second)
    if facts is not None:
        local_cpu_profile(facts, None)
    name_candidates(first)


def test_a_machine_without_proc_has_no_facts(tmp_path):
    assert local_cpu_facts(tmp_path) is None


@pytest.mark.parametrize(
    ("program", "answer", "names"),
    [
        (
            "nvidia-smi",
            "NVIDIA GeForce RTX 4060 Ti, 16380\nNVIDIA GeForce RTX 3090, 24576",
            ["rtx-4060-ti-16gb", "rtx-3090"],
        ),
        ("nvidia-smi", "NVIDIA GeForce RTX 4060 Ti, 8188", ["rtx-4060-ti-8gb"]),
        (
            "rocm-smi",
            "device,Card Series,Card Model\ncard0,AMD Radeon RX 7900 XTX,0x744c",
            ["rx-7900-xtx"],
        ),
        (
            "xpu-smi",
            "| 0  | Device Name: Intel(R) Arc(TM) A770 Graphics    |\n|    | Vendor: Intel |",
            ["arc-a770"],
        ),
        (
            "system_profiler",
            "    Chipset Model: Apple M3 Max\n      Total Number of Cores: 30\n",
            ["apple-m3-max-30c"],
        ),
        (
            "system_profiler",
            "      Chipset Model: Apple M4 Max\n      Total Number of Cores: 40\n",
            ["apple-m4-max"],
        ),
        ("sysctl", "Apple M2", ["apple-m2"]),
        (
            "amd-smi",
            AMD_SMI,
            ["mi300x", "rx-7900-xtx"],
        ),
        (
            "lspci",
            LSPCI,
            ["rtx-3080-ti", "arc-a770"],
        ),
        ("nvidia-smi", "NVIDIA Something New, 1", []),
    ],
)
def test_gpus_are_found_by_the_tools_that_are_there(tmp_path, monkeypatch, program, answer, names):
    has_tools(tmp_path, monkeypatch, {program: answer})
    assert local_gpus() == names


def test_a_makers_own_tool_is_asked_before_others(tmp_path, monkeypatch):
    card = "00:05.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 40GB] (rev a1)"
    other = "06:00.0 Display controller: Advanced Micro Devices, Inc. [AMD/ATI] X [Instinct MI210]"
    answers = {"nvidia-smi": "NVIDIA A100-SXM4-80GB, 81920", "lspci": f"{card}\n{other}"}
    has_tools(tmp_path, monkeypatch, answers)
    assert local_gpus() == ["a100-sxm-80gb", "mi210"]


def has_tools(folder, monkeypatch, answers):
    for program, answer in answers.items():
        tool = folder / program
        tool.write_text(f"#!/bin/sh\nprintf '%s\\n' '{answer}'\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def local_gpus():
    return [one.name for one in catalog.detect_local_devices() if one.device_class == "gpu"]


def test_a_unified_memory_is_as_large_as_the_machines(monkeypatch):
    monkeypatch.setattr("accelsim.hardware.local.machine_memory_bytes", lambda: 36 * 2.0**30)
    monkeypatch.setattr("accelsim.hardware.local.local_gpu_names", lambda: [("Apple M4 Max",)])
    (gpu,) = (one for one in catalog.detect_local_devices() if one.device_class == "gpu")
    assert gpu.memory.capacity_bytes.value == 36 * 2**30
    assert gpu.memory_bytes == pytest.approx(24 * 2**30)
    assert gpu.memory.bandwidth_bytes_per_s.value == 546e9
