"""Questions asked over many answers: sweeps, sensitivity, designs of arrays."""
