"""Files: strict readers of YAML, JSON and text within bounds, where data lies, whole writes."""
