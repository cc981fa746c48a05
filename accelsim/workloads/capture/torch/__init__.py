"""Any `torch.nn.Module` as a workload, traced on the meta device without its weights."""
