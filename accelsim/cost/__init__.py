"""Cost models: time, energy and traffic of operators on each device class."""
