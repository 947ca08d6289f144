"""Learning: optimizers, schedules, what happens to gradients, averages of parameters, and checkpoints.

Everything but the checkpoints is a pure function over trees of NumPy or JAX arrays.
"""

from .checkpoint import BEST, LATEST, Checkpoint, checkpoint_path, list_checkpoints, load_checkpoint, save_checkpoint
from .ema import EMA
from .gradients import accumulate, all_finite, clip, global_norm
from .lora import Adapted, LoRA
from .optimizer import Optimizer, is_matrix
from .optimizers import OPTIMIZERS, SGD, Adam, AdamW, Lion, Muon, is_hidden_matrix, make_optimizer, orthogonalized
from .parametrization import EVERYTHING, WHOLE, Everything, Parametrization, Whole
from .schedules import SCHEDULES, Schedule

__all__ = [
    "Adam", "AdamW", "Adapted", "BEST", "Checkpoint", "EMA", "EVERYTHING", "Everything", "LATEST", "Lion", "LoRA",
    "Muon", "OPTIMIZERS", "Optimizer", "Parametrization", "SCHEDULES", "SGD", "Schedule", "WHOLE", "Whole",
    "accumulate", "all_finite", "checkpoint_path", "clip", "global_norm", "is_hidden_matrix", "is_matrix",
    "list_checkpoints", "load_checkpoint", "make_optimizer", "orthogonalized", "save_checkpoint",
]  # fmt: skip
