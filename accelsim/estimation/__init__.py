"""What users ask: estimate one run, compare many."""
