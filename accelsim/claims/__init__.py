"""Claims about CPUs, GPUs, FPGAs and ASICs, each as a scenario that is run and judged."""
