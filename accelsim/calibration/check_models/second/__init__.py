"""The second check list, measured by one committed run."""

from __future__ import annotations

from accelsim.calibration.check_models.second import (
    convolutional,
    recurrent_and_tabular,
    transformers,
)
