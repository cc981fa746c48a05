"""Price feeds into the price files that ship: what maintainers run when prices change."""
