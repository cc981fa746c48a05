"""Price feeds into price files: cleaned row by row, compared, and refused by name."""
