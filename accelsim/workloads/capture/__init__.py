"""Capture of any ``torch.nn.Module`` as a workload, and captured workloads without torch.

`torch.module` is the door for torch, `onnx.door` for ONNX files; `captured` reads what they wrote
and needs no torch.
"""
