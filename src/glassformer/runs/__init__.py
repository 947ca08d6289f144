"""Training runs: their folders, sessions and fine-tuning."""
