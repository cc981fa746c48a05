"""Cost models of FPGAs: overlay processors and streaming dataflow designs."""

from accelsim.cost.fpga.dataflow import (
    DataflowDesign,
    StreamingNode,
    bram18_estimate,
    dsp_estimate,
    fold_network,
    lut_estimate,
    node_cycles,
    pipeline_latency_s,
    weight_lut_estimate,
)
from accelsim.cost.fpga.fpga_parameters import FpgaParameters, board_parameters, fpga_parameters
from accelsim.cost.fpga.model import cost_dataflow, cost_fpga, supported_rows_fpga
from accelsim.cost.fpga.overlay import OverlayMachine, overlay_cycles, overlay_machine

__all__ = [
    "DataflowDesign",
    "FpgaParameters",
    "OverlayMachine",
    "StreamingNode",
    "board_parameters",
    "bram18_estimate",
    "cost_dataflow",
    "cost_fpga",
    "dsp_estimate",
    "fold_network",
    "fpga_parameters",
    "lut_estimate",
    "node_cycles",
    "overlay_cycles",
    "overlay_machine",
    "pipeline_latency_s",
    "supported_rows_fpga",
    "weight_lut_estimate",
]
