"""ONNX files as workloads: a file becomes a torch module of the same operators, and that is
captured as any other.

`file` reads a graph without its weights, `operators` and its kin say what each operator is in
torch, `module` joins them, `door` captures.
"""
