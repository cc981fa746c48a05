"""What measured tables call devices and models, and what the catalogue calls them.

Names that tables share with the catalogue (its names and aliases) need no entry. A name is matched
without regard to case and to runs of blanks. MI250 rows are of one of the card's two dies:
frameworks show each as a device of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from accelsim import catalog, workload_catalog
from accelsim.errors import UnknownNameError
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.validation.data_folder import DataFolder, DataProblem, Table
from accelsim.workloads.model import Workload

__all__ = [
    "DEVICES",
    "MODELS",
    "NO_PROFILE",
    "device_of",
    "device_refusal",
    "gpu_of",
    "note_unknown_devices",
    "workload_of",
]

#: Device names of tables -> catalogue names.
DEVICES: Mapping[str, str] = {
    # operator and transformer measurements of one GPU
    "h100": "h100-sxm-80gb",
    "l4": "l4",
    "a100-80": "a100-pcie-80gb",
    "a100-40": "a100-pcie-40gb",
    "v100": "v100-pcie-32gb",
    "p100": "p100-pcie-16gb",
    "mi100": "mi100",
    "mi210": "mi210",
    "mi250": "mi250@fraction=0.5",
    "t4": "t4",
    "p4": "p4",
    # DeepBench boards
    "nv_v100": "v100-sxm2-16gb",
    "nv_p100": "p100-sxm2-16gb",
    "nv_t4": "t4",
    "nv_m40": "m40-24gb",
    "nv_titanx": "gtx-titan-x-maxwell",
    "nv_titanx_pascal": "titan-x-pascal",
    "nv_1080ti": "gtx-1080-ti",
    # published training and inference tables
    "v100-16gb": "v100-sxm2-16gb",
    "v100-32gb": "v100-sxm2-32gb",
    "a100-40gb": "a100-sxm-40gb",
    "a100-80gb": "a100-sxm-80gb",
    "gtx 1080": "gtx-1080",
    "gtx 1080 ti": "gtx-1080-ti",
    "pascal titan x": "titan-x-pascal",
    "maxwell titan x": "gtx-titan-x-maxwell",
    "tesla k40m": "k40",
    "dual xeon e5-2630 v3": "xeon-e5-2630-v3",
    # MLPerf accelerators
    "nvidia a10": "a10",
    "nvidia a30": "a30",
    "nvidia a100-pcie-40gb": "a100-pcie-40gb",
    "nvidia a100-pcie-80gb": "a100-pcie-80gb",
    "nvidia a100-sxm-40gb": "a100-sxm-40gb",
    "nvidia a100-sxm-80gb": "a100-sxm-80gb",
    "nvidia h100-pcie-80gb": "h100-pcie-80gb",
    "nvidia h100-sxm-80gb": "h100-sxm-80gb",
    "nvidia h200-sxm-141gb": "h200-sxm-141gb",
    "nvidia l4": "l4",
    "nvidia l40s": "l40s",
    "nvidia t4": "t4",
    "nvidia tesla t4": "t4",
    "nvidia jetson agx orin": "jetson-agx-orin-64gb",
    "nvidia a2": "a2",
    "qualcomm cloud ai 100 pcie/hhhl pro": "cloud-ai-100-pro",
    "intel(r) xeon(r) platinum 8480+": "xeon-platinum-8480+",
    "intel(r) xeon(r) platinum 8380 cpu @ 2.30ghz": "xeon-platinum-8380",
    # kernel tables of aiconfigurator-core
    "a100_sxm": "a100-sxm-80gb",
    "a100_pcie": "a100-pcie-80gb",
    "h100_sxm": "h100-sxm-80gb",
    "h100_pcie": "h100-pcie-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell",
    "b60": "arc-pro-b60",
}

#: Devices of the published tables that the catalogue has no profile of: their rows are refused by
#: name, not as bad data.
NO_PROFILE = frozenset(
    {
        *(
            "nv_titanxp",
            "amd_mi25",
            "amd_vegafe",
            "ia_knl7250",
        ),
        *("-", ""),  # submissions without an accelerator
    }
)

#: Model names of tables -> catalogue names.
MODELS: Mapping[str, str] = {
    "inception-v1": "googlenet",
    "resnet-50 v1.5 imagenet": "resnet-50",
    "resnet50v1.5": "resnet-50",
    "rn50v1.5": "resnet-50",
    "resnet50": "resnet-50",
    "resnext101-32x4d": "resnext-101-32x4d",
    "bert-99": "bert-large",
    "bert-99.9": "bert-large",
    "retinanet": "retinanet-mlperf",
    "3d-unet-99": "3d-unet-kits",
    "3d-unet-99.9": "3d-unet-kits",
    "ssd-mobilenet": "ssd-mobilenet-v1",
    "ssd-resnet34": "ssd-resnet-34",
    "dlrm-99": "dlrm-mlperf",
    "dlrm-99.9": "dlrm-mlperf",
    "dlrm-v2-99": "dlrm-v2",
    "dlrm-v2-99.9": "dlrm-v2",
    "gptj-99": "gpt-j-6b",
    "gptj-99.9": "gpt-j-6b",
    "llama2-70b-99": "llama-2-70b",
    "llama2-70b-99.9": "llama-2-70b",
    # served checkpoints
    "meta-llama/llama-3.1-8b-instruct": "llama-3.1-8b",
    "nvidia/llama-3.1-8b-instruct-fp8": "llama-3.1-8b",
    "meta-llama/llama-3.1-70b": "llama-3.1-70b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "deepseek-ai/deepseek-r1": "deepseek-v3",
    "deepseek-ai/deepseek-v3": "deepseek-v3",
    "qwen/qwen3-235b-a22b-fp8": "qwen3-235b-a22b",
}


def _key(name: str) -> str:
    return " ".join(name.lower().split())


@lru_cache(maxsize=512)
def device_of(name: str) -> DeviceProfile:
    """Profile of a device as a table names it.

    Raises:
        UnknownNameError: If neither the alias table nor the catalogue has it.
    """
    key = _key(name)
    try:
        return catalog.device(DEVICES.get(key, key))
    except UnknownNameError:
        known = sorted({*DEVICES, *catalog.device_names()})
        raise UnknownNameError(
            "device", name, known, "Add a device profile, or name the device as the catalogue does."
        ) from None


def note_unknown_devices(
    folder: DataFolder,
    table: Table,
    column: str = "device",
    find: Callable[[str], DeviceProfile] = device_of,
) -> None:
    """Record names that have no profile and are not known to lack one, with the first row that has
    each.

    Args:
        folder: Collects the problems.
        table: Rows that are asked.
        column: Column of the device names.
        find: Finds the profile of a name: `device_of`, or `gpu_of` where only GPUs will do.
    """
    names, first = np.unique(table[column], return_index=True)
    for name, row in zip(names.tolist(), first.tolist(), strict=True):
        if _key(name) in NO_PROFILE:
            continue
        try:
            find(name)
        except UnknownNameError as error:
            problem = DataProblem(
                table.file, int(table.line[row]), column, "unknown device", str(error)
            )
            if problem not in folder.problems:
                folder.problems.append(problem)


def device_refusal(error: UnknownNameError) -> str:
    """Why rows of a device are refused, without the near matches."""
    return (
        f"unknown device {error.name}"
        if error.what == "device"
        else f"{error.name} is no {error.what}"
    )


def gpu_of(name: str) -> GpuProfile:
    """Profile of a GPU as a table names it.

    Raises:
        UnknownNameError: If there is no GPU of that name.
    """
    profile = device_of(name)
    if not isinstance(profile, GpuProfile):
        raise UnknownNameError(
            "GPU", name, [], f"{profile.name} is of class {profile.device_class}."
        )
    return profile


@lru_cache(maxsize=512)
def workload_of(name: str) -> Workload:
    """Workload of a model as a table names it.

    Raises:
        UnknownNameError: If neither the alias table nor the catalogue has it.
    """
    key = _key(name)
    return workload_catalog.workload(MODELS.get(key, key))
