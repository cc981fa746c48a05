"""Questions asked over many answers: sweeps and sensitivity."""
