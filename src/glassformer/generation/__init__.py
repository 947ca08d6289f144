"""Text out: what a trained model answers.

    model = gf.load("runs/text")
    model.generate("Once upon", temperature=0.8, seed=1).text
    for piece in model.stream("Once upon"):
        ...

`generate_steps` and `beam_search` are the same on token ids.
"""

from ..text.stream import StopStrings
from .answer import answer, continue_ids
from .beam import Hypothesis, beam_search
from .language_model import Generation, LanguageModel, Stream
from .sampling import History, Sampling, distribution, draw
from .writer import Step, generate_steps

__all__ = [
    "Generation",
    "History",
    "Hypothesis",
    "LanguageModel",
    "Sampling",
    "Step",
    "StopStrings",
    "Stream",
    "answer",
    "beam_search",
    "continue_ids",
    "distribution",
    "draw",
    "generate_steps",
]
