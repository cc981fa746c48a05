"""The fourth check list, measured by one committed run: networks that people run, at their
published sizes.
"""

from __future__ import annotations

from accelsim.calibration.check_models.fourth import (  # noqa: F401
    convolutional,
    language_models,
    recurrent_and_tabular,
    transformers,
)
