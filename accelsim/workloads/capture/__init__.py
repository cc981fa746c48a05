"""Capture of any ``torch.nn.Module`` as a workload, and captured workloads without torch.

`accelsim.workloads.capture.module` is the door; `captured` reads what it wrote and needs no torch.
"""
