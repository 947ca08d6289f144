"""What a model cannot read it refuses with a typed error, on NumPy and on JAX arrays alike, before it computes."""

import numpy as np
import pytest

from glassformer.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from glassformer.core.errors import ConfigError, DTypeError, GlassformerError, LengthError, ShapeError, TokenError
from glassformer.core.tree import like
from glassformer.models.decoder import Decoder
from glassformer.models.encoder import Encoder
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.model import Batch

SIZES = {"vocab": 9, "width": 8, "heads": 2, "layers": 1, "context": 6}
DECODER = Decoder(DecoderConfig(**SIZES))
ENCODER = Encoder(EncoderConfig(**SIZES, classes=3, segments=2))
TRANSLATOR = EncoderDecoder(EncoderDecoderConfig(**SIZES, source_vocab=7))
TOKENS = np.array([[1, 2, 3], [4, 5, 6]])


def read_by(model):
    """A function of tokens that runs the model on them."""
    params = model.init()
    if isinstance(model, EncoderDecoder):
        return lambda tokens, xp=np, **given: model.forward(
            like(params, xp), given.pop("source", xp.asarray(TOKENS)), tokens, **given
        )
    return lambda tokens, xp=np, **given: model.forward(like(params, xp), tokens, **given)


def refused(run, kind, *words):
    with pytest.raises(kind) as caught:
        run()
    assert isinstance(caught.value, GlassformerError)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.hint


MODELS = pytest.mark.parametrize("model", [DECODER, ENCODER, TRANSLATOR], ids=lambda model: type(model).__name__)
LIBRARIES = pytest.mark.parametrize("library", ["numpy", "jax"])
# Not the encoder-decoder on JAX arrays: it encodes its source first, and without jit that takes seconds to compile.
COMBINED = pytest.mark.parametrize(
    ("model", "library"),
    [(DECODER, "numpy"), (ENCODER, "numpy"), (TRANSLATOR, "numpy"), (DECODER, "jax"), (ENCODER, "jax")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)


@pytest.fixture
def xp(request, library):
    return np if library == "numpy" else request.getfixturevalue("jax").numpy


@COMBINED
def test_tokens_that_cannot_be_are_refused(model, xp, library):
    forward = read_by(model)
    too_high, negative = TOKENS.copy(), TOKENS.copy()
    too_high[1, 2], negative[0, 1] = 9, -1
    cases = [
        (too_high, TokenError, ("token ids hold 9 at index (1, 2)", "0 to 8", "vocabulary size of 9")),
        (negative, TokenError, ("token ids hold -1 at index (0, 1)", "0 to 8")),
        (TOKENS.astype(np.float32), DTypeError, ("must be integers", "float32", ".astype(int)")),
        (np.array(3), ShapeError, ("single number", "(T,) or (B, T)")),
        (np.zeros((2, 7), int), LengthError, ("7 tokens", "at most 6", "shorten it to 6")),
        (np.zeros((2, 0), int), LengthError, ("is empty", "at least one token")),
    ]
    for tokens, kind, words in cases:
        refused(lambda tokens=tokens: forward(xp.asarray(tokens), xp), kind, *words)


@COMBINED
def test_masks_that_do_not_fit_are_refused(model, xp, library):
    forward = read_by(model)
    tokens = xp.asarray(TOKENS)
    shape = ("the padding mask has shape (2, 4), which does not broadcast to (2, 3)",)
    refused(lambda: forward(tokens, xp, mask=xp.ones((2, 4), dtype=bool)), ShapeError, *shape)
    refused(lambda: forward(tokens, xp, mask=xp.ones((2, 3))), DTypeError, "the padding mask must be boolean")
    refused(lambda: forward(tokens, xp, mask=xp.ones((2, 3), dtype=int)), DTypeError, "pass `mask != 0`")


@MODELS
def test_things_that_are_no_arrays_are_refused(model):
    forward = read_by(model)
    refused(lambda: forward(TOKENS.tolist()), DTypeError, "expected an array, got list", "numpy.asarray")
    refused(lambda: forward(TOKENS.tolist(), mask=np.ones((2, 3), bool)), DTypeError, "expected an array, got list")
    refused(lambda: forward(TOKENS, mask=[[True] * 3] * 2), DTypeError, "expected an array, got list")


@LIBRARIES
def test_a_source_is_checked_like_the_tokens(xp, library):
    forward, tokens = read_by(TRANSLATOR), xp.asarray(TOKENS)
    outside = xp.asarray(np.array([[1, 2], [3, 7]]))
    refused(lambda: forward(tokens, xp, source=outside), TokenError, "hold 7 at index (1, 1)", "0 to 6")
    refused(lambda: forward(tokens, xp, source=tokens[:, :0]), LengthError, "is empty")
    refused(lambda: forward(tokens, xp, source=xp.zeros((2, 7), dtype=int)), LengthError, "at most 6")
    wrong = xp.ones((2, 2), dtype=bool)
    refused(lambda: forward(tokens, xp, source_mask=wrong), ShapeError, "the source mask has shape (2, 2)")


def test_sources_positions_segments_and_what_a_loss_needs_are_checked_by_name():
    forward = read_by(TRANSLATOR)
    refused(lambda: forward(TOKENS, source=TOKENS[:1]), ShapeError, "do not fit")

    params = DECODER.init()
    refused(lambda: DECODER.forward(params, TOKENS, positions=np.array([0, 1, 6])), TokenError, "positions hold 6")
    refused(lambda: DECODER.forward(params, TOKENS, positions=np.array([0.0, 1, 2])), DTypeError, "positions must be")
    params = ENCODER.init()
    refused(lambda: ENCODER.forward(params, TOKENS, segments=TOKENS), TokenError, "hold 2 at index (0, 1)", "0 to 1")

    params = DECODER.init()
    refused(lambda: DECODER.loss(params, Batch(TOKENS)), ConfigError, "no targets", "Batch(tokens, targets)")
    refused(lambda: DECODER.loss_and_grads(params, Batch(TOKENS)), ConfigError, "no targets")
    refused(lambda: TRANSLATOR.loss(TRANSLATOR.init(), Batch(TOKENS, TOKENS)), ConfigError, "no source")
    bare = Encoder(EncoderConfig(**SIZES, head="none"))
    refused(lambda: bare.loss(bare.init(), Batch(TOKENS, TOKENS)), ConfigError, "no head", "use forward for vectors")
