"""Questions asked over many answers: sweeps."""
