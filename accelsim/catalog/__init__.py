"""The catalogue: finds, reads and validates devices, clusters, workloads and stacks by name.

The functions for devices stand here, too: `accelsim.catalog.device("t4")`.
"""

from accelsim.catalog.devices import (
    DEVICE_GROUPS,
    aliases,
    clear_cache,
    detect_local_devices,
    device,
    device_file_problems,
    device_names,
    device_search_path,
    group_devices,
    is_of_class,
    load_device_file,
    product_device,
)

__all__ = [
    "DEVICE_GROUPS",
    "aliases",
    "clear_cache",
    "detect_local_devices",
    "device",
    "device_file_problems",
    "device_names",
    "device_search_path",
    "group_devices",
    "is_of_class",
    "load_device_file",
    "product_device",
]
