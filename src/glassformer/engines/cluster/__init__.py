"""How the processes of a run find and watch each other; no mathematics."""
