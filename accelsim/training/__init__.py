"""Training on many devices: plans, what they take, the best of them, and whole runs."""
