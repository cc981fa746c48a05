"""Commands for other programs: tools of the Model Context Protocol, and live pages of a browser."""
