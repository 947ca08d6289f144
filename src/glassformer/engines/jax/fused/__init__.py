"""Stand-ins for hot ops on a GPU."""
