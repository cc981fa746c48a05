"""``accelsim demo``: three models on devices of all four classes, in training and inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelsim.cli.compare import emit_comparison
from accelsim.cli.result_writer import ResultWriter, with_output

if TYPE_CHECKING:
    from accelsim.estimation.compare import ComparisonRow

#: Models of the comparison with their batch in inference and in training.
DEMO_MODELS = {"resnet-50": (32, 64), "bert-large": (8, 8), "llama-3.1-8b": (8, 1)}
#: Devices of the comparison, each with the host that runs what it cannot: FPGA boards run no
#: attention of their own.
DEMO_DEVICES = {
    "xeon-platinum-8480+": None,
    "epyc-9654": None,
    "graviton3": None,
    "t4": None,
    "a100-sxm-80gb": None,
    "h100-sxm-80gb": None,
    "mi300x": None,
    "alveo-u280": "epyc-9654",
    "tpu-v4": None,
    "tpu-v5e": None,
}


@with_output
def demo(
    output: ResultWriter,
) -> None:
    """Compare ResNet-50, BERT-large and Llama-3.1-8B, compiled, on ten devices of all four
    classes.
    """
    from accelsim.estimation.compare import Comparison, compare

    runs = [
        (model, mode, batch)
        for model, batches in DEMO_MODELS.items()
        for mode, batch in zip(("inference", "training"), batches, strict=True)
    ]
    rows: list[ComparisonRow] = []
    with output.progress("comparing", "runs") as report:
        for index, (model, mode, batch) in enumerate(runs):
            report(index, len(runs), f"{model}, {mode}")
            for device, host in DEMO_DEVICES.items():
                keywords = {"batch": batch, "host": host, "execution": "compiled"}
                rows += compare(model, [device], modes=[mode], **keywords).rows  # type: ignore[arg-type]
    emit_comparison(output, Comparison(tuple(rows)))
