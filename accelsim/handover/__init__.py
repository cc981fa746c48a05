"""From an answer to what carries it out, and back: lines of engines and trainers, their check, and
what changes between two of them.
"""
