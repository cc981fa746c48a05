"""Times of an engine's steps: priced, tabulated, fitted to a server's own, or combined."""
