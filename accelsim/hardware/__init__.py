"""Device profiles, links, nodes and clusters, validated from data files."""
