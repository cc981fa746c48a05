"""Fits of cost-model parameters to measured operators: class-wide sets, sets with a chip left out, overlays of devices.

`fit_class` fits parameters that serve every GPU, `fit_device` the overlay of one; `gpu_cells` reads the rows both may use.
``python -m accelsim.calibration.fit --data DIR`` refits every file that ships.
"""

from accelsim.calibration.fit.class_fit import ClassFit, fit_class
from accelsim.calibration.fit.device_fit import DeviceFit, fit_device
from accelsim.calibration.fit.rows import Cell, gpu_cells

__all__ = ["Cell", "ClassFit", "DeviceFit", "fit_class", "fit_device", "gpu_cells"]
