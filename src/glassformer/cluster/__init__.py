"""How the processes of a run find each other, and who watches them; no mathematics."""
