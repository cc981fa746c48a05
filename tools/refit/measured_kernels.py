"""Tier `measured`: a GPU's kernel times interpolated in its own tables, with the analytic model as
the trend between points.

A table's departures from the model are completed on the table's own sizes with covariances learned
along each axis (`kernel_table`) and interpolated multilinearly in log2 sizes between them; layers
of experts are completed in their own sizes and found again by the shape of their grouped GEMMs
(`layer_table`). The tables come from the package aiconfigurator-core (extra `silicon`); nothing is
stored.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec

from accelsim.cost.gpu.parameters import GpuParameters
from accelsim.errors import UnknownNameError
from accelsim.validation.aiconfigurator_tables import SYSTEMS
from accelsim.validation.names import gpu_of
from tools.refit.aiconfigurator_fit import silicon_surfaces

__all__ = ["measured_parameters", "measured_system"]


def measured_system(device: str) -> str | None:
    """System of the package whose kernels are a device's; None where there is none.

    Args:
        device: Catalogue name, with or without a slice.
    """
    base = device.partition("@")[0]
    for system in SYSTEMS:
        try:
            if gpu_of(system).name == base:
                return system
        except UnknownNameError:
            continue
    return None


def measured_parameters(device: str) -> GpuParameters | None:
    """Parameters that interpolate a device's own kernel tables; None where it has none or the extra
    is not installed.

    Args:
        device: Catalogue name, with or without a slice.
    """
    system = measured_system(device)
    if system is None or find_spec("aiconfigurator_core") is None:
        return None
    return _interpolating(system)


@lru_cache(maxsize=4)
def _interpolating(system: str) -> GpuParameters:
    surfaces = silicon_surfaces(system, dense=True)
    return replace(GpuParameters.class_wide(), surfaces=surfaces, is_fitted=True, is_measured=True)
