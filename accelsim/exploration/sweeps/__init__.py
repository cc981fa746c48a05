"""Sweeps: many estimates over the fields of one, kept on disk, resumed where they stopped."""
