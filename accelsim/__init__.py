"""accelsim."""
