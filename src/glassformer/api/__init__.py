"""The library's calls for Python and notebooks: train, resume, load, save, explore, index and search."""

from ..loading import load
from ..trained_model import TrainedModel
from .exploration import Exploration, explore
from .files import from_arrays, save
from .learn import resume, train
from .loop import Loop
from .passages import index, search

__all__ = [
    "Exploration", "Loop", "TrainedModel", "explore", "from_arrays", "index", "load", "resume", "save", "search",
    "train",
]  # fmt: skip
