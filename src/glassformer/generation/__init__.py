"""Text out: what a trained model answers.

    model = gf.load("runs/text")
    model.generate("Once upon", temperature=0.8, seed=1).text
    for piece in model.stream("Once upon"):
        ...

`generate_steps` and `beam_search` are the same on token ids.
"""

from ..core.sources import snapshot
from ..text.stream import StopStrings
from .answer import Classification, Prediction, ask, classify
from .conversation import Conversation, reply
from .request import Request
from .sampling import Sampling, TokenHistory, distribution, draw
from .texts import Generation, Stream, generate, stream
from .writer import Hypothesis, Step, beam_search, generate_steps

__all__ = [
    "Classification", "Conversation", "Generation", "Hypothesis", "Prediction", "Request", "Sampling", "Step",
    "StopStrings", "Stream", "TokenHistory", "ask", "beam_search", "classify", "distribution", "draw", "generate",
    "generate_steps", "reply", "stream",
]  # fmt: skip
__dir__ = __all__.copy

snapshot(f"{__name__}.sampling", f"{__name__}.writer")  # what an engine may compute
