"""Capture Llama-3.1-70B from a transformers configuration: seconds, peak memory, FLOP against 2PT +
4T²dL.
"""

import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from accelsim.workloads.capture.torch.module import capture

TOKENS, LAYERS, WIDTH, VOCABULARY = 2048, 80, 8192, 128256


def llama_70b() -> LlamaForCausalLM:
    """The published configuration (Dubey 2024, table 3)."""
    config = LlamaConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=64,
        num_key_value_heads=8,
        intermediate_size=28672,
        vocab_size=VOCABULARY,
    )
    return LlamaForCausalLM(config)


def peak_mb() -> float:
    """Largest resident size of this program; getrusage would start from that of the process that
    launched it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    inputs = {"input_ids": torch.empty(1, TOKENS, dtype=torch.long, device="meta")}
    start = time.perf_counter()
    workload = capture(llama_70b, inputs)
    seconds = time.perf_counter() - start
    model = workload.captured
    matrices = model.parameter_count - VOCABULARY * WIDTH
    expected = 2 * matrices * TOKENS + 4 * TOKENS**2 * WIDTH * LAYERS
    print(f"capture_s: {seconds:.3f}")
    print(f"peak_rss_mb: {peak_mb():.0f}")
    print(f"rows: {len(model.forward.graph.graph)}")
    print(f"any_batch: {model.forward.graph.batch_step is not None}")
    print(f"flop_ratio_to_closed_form: {model.forward.graph.graph.model_flop / expected:.6f}")


if __name__ == "__main__":
    main()
