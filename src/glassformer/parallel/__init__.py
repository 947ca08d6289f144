"""One step of training on several cores."""

from .cores import loss_and_grads, suitable_shards

__all__ = ["loss_and_grads", "suitable_shards"]
