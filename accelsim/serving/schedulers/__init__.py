"""Schedulers of one replica, one per module behind one base."""
