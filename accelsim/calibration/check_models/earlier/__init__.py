"""Check models of the first three committed runs, which have since served to develop the CPU model."""

from __future__ import annotations

from accelsim.calibration.check_models.earlier import convolutional, recurrent_and_tabular, transformers  # noqa: F401
