"""Suite `systolic`: cycles, mapping, utilisation and scratchpad accesses against SCALE-Sim v2 and v3, row by row.

Every quantity of a row is scored by itself and must be equal. What the simulator's reports print beside what it simulates
(`accelsim.cost.systolic.counts`) is asked for with ``compat="scalesim"``; the findings say how many rows that concerns.
The simulator's memory stalls are not scored: it charges neither the first fill nor the last drain, so its reported
cycles are compared after its stalls are taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from accelsim.calibration.validation.score_rows import quantity_batches
from accelsim.calibration.validation.suite import Batch, Prediction, register_suite
from accelsim.calibration.validation.tables import DataFolder, Schema, Table, number, text
from accelsim.cost.systolic.counts import ArrayCounts, array_counts
from accelsim.hardware.profile import AsicProfile, Dataflow
from accelsim.hardware.scalesim import ScaleSimConfig
from accelsim.workloads.graph import FloatArray
