"""ONNX files as workloads."""
