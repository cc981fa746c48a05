"""The first check list, measured by three committed runs."""

from __future__ import annotations

from accelsim.calibration.check_models.first import (
    convolutional,
    recurrent_and_tabular,
    transformers,
)
