"""Several processes of one run: how they start, agree and end; no mathematics."""
