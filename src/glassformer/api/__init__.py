"""What one calls from Python and from a notebook: train, save and load, and a trained model as one object."""

from .files import from_arrays, load, save
from .learn import train
from .loop import Loop
from .trained_model import Classification, TrainedModel

__all__ = ["Classification", "Loop", "TrainedModel", "from_arrays", "load", "save", "train"]
