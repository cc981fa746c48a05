"""Shows results: tables for people, JSON and CSV for programs, and the writer of files."""
