"""Text out: what a trained model answers."""

from .answer import answer, continue_ids

__all__ = ["answer", "continue_ids"]
