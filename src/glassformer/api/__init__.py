"""What one calls from Python and from a notebook: train, save and load, and a trained model as one object."""

from .exploration import Exploration, explore
from .files import from_arrays, load, save
from .learn import train
from .loop import Loop
from .trained_model import Classification, TrainedModel

__all__ = ["Classification", "Exploration", "Loop", "TrainedModel", "explore", "from_arrays", "load", "save", "train"]
