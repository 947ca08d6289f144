"""Learning: optimizers, schedules, what happens to gradients, averages, checkpoints, recipes, and the loop.

Optimizers and what they are made of are pure functions over trees of NumPy or JAX arrays.
"""

from ..core.arguments import public
from ..core.sources import snapshot
from .checkpoint import BEST, LATEST, Checkpoint, checkpoint_path, list_checkpoints, load_checkpoint, save_checkpoint
from .curvature import ExampleGradients, NoiseScale, gradient_noise_scale, hvp, per_example_gradients
from .evaluate import Evaluation
from .gradients import accumulate, all_finite, clip, global_norm
from .loop import History, StepRecord, suitable_threads, training_steps
from .optimizer import Optimizer, is_matrix
from .optimizers import EMA, OPTIMIZERS, SGD, Adam, AdamW, Lion, Muon, is_hidden_matrix, make_optimizer, orthogonalized
from .recipe import SCHEDULES, Recipe, Schedule
from .trainable import EVERYTHING, Adapted, LoRA, Parametrization

__all__ = [
    "Adam", "AdamW", "Adapted", "BEST", "Checkpoint", "EMA", "EVERYTHING", "Evaluation", "ExampleGradients",
    "History", "LATEST", "Lion", "LoRA", "Muon", "NoiseScale", "OPTIMIZERS", "Optimizer", "Parametrization",
    "Recipe", "SCHEDULES", "SGD", "Schedule", "StepRecord", "accumulate", "all_finite", "checkpoint_path", "clip",
    "global_norm", "gradient_noise_scale", "hvp", "is_hidden_matrix", "is_matrix", "list_checkpoints",
    "load_checkpoint", "make_optimizer", "orthogonalized", "per_example_gradients", "save_checkpoint",
    "suitable_threads", "training_steps",
]  # fmt: skip
__dir__ = __all__.copy
public(globals(), set(__all__) - {"StepRecord"}, has_makers=True)  # one is made at every step

snapshot(__name__)
