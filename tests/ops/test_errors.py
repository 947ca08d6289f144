"""Misuse is refused with the values at fault and a remedy, the same on NumPy and on JAX arrays."""

import re

import numpy as np
import pytest

from glassformer import ops
from glassformer.core.errors import ConfigError, DTypeError, LengthError, ShapeError, TokenError
from proof_cases import OP_CASES


@pytest.fixture(params=["numpy", "jax"])
def xp(request):
    """The library the arrays come from."""
    return np if request.param == "numpy" else request.getfixturevalue("jax").numpy


def refused(kind, words, hint):
    """Expect an error of a kind whose fact holds `words` and whose remedy holds `hint`."""
    return pytest.raises(kind, match=f"(?s){re.escape(words)}.*\n\nhint: .*{re.escape(hint)}")


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([[0, 5]], "token ids hold 5 at index (0, 1), outside 0 to 4"),
        ([[0, 1], [-1, 9]], "token ids hold -1 at index (1, 0), outside 0 to 4"),
        (-1, "token ids hold -1 at index (), outside 0 to 4"),
    ],
)
def test_ids_outside_the_vocabulary(xp, ids, words):
    with refused(TokenError, words, "ids below the vocabulary size of 5"):
        ops.embedding(xp.zeros((5, 2)), xp.asarray(ids))


@pytest.mark.parametrize("kind", ["float64", "float32", "bool"])
def test_ids_that_are_not_integers(xp, kind):
    with refused(DTypeError, f"token ids must be integers, got an array of {kind}", ".astype(int)"):
        ops.embedding(xp.zeros((5, 2)), xp.zeros(3, dtype=kind))


def test_ids_that_are_not_integers_under_jit_and_buckets_outside_the_table(jax, xp):
    with refused(DTypeError, "token ids must be integers, got an array of float32", ".astype(int)"):
        jax.jit(lambda ids: ops.embedding(jax.numpy.zeros((5, 2)), ids)[0])(jax.numpy.zeros(3, dtype="float32"))
    with refused(TokenError, "buckets hold 4 at index (0, 0), outside 0 to 3", "size of 4"):
        ops.relative_bias(xp.zeros((4, 2)), xp.asarray([[4]]))


def test_targets_outside_the_vocabulary_or_of_another_shape(xp):
    logits = xp.zeros((2, 3))
    ops.cross_entropy(logits, xp.asarray([0, -100]))
    with refused(TokenError, "targets hold -1 at index (1,), outside 0 to 2 (or -100 to ignore", "size of 3"):
        ops.cross_entropy(logits, xp.asarray([0, -1]))
    with refused(DTypeError, "targets must be integers, got an array of float64", ".astype(int)"):
        ops.cross_entropy(logits, xp.zeros(2, dtype="float64"))

    with refused(ShapeError, "targets have shape (3,) but the logits (2, 3)", "expected (2,)"):
        ops.cross_entropy(xp.zeros((2, 3)), xp.asarray([0, 1, 2]))


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 1.5, float("nan")])
def test_smoothing_out_of_range(xp, smoothing):
    with refused(ConfigError, f"label smoothing is {smoothing}", "at least 0 and below 1"):
        ops.cross_entropy(xp.zeros((2, 3)), xp.asarray([0, 1]), smoothing=smoothing)


def test_class_weights_of_another_size(xp):
    with refused(ShapeError, "class_weights has shape (2,), which does not broadcast to (3,)", ""):
        ops.cross_entropy(xp.zeros((2, 3)), xp.asarray([0, 1]), class_weights=xp.ones(2))


ATTENTIONS = pytest.mark.parametrize("attend", [ops.attention, ops.attention_tiled])


@ATTENTIONS
@pytest.mark.parametrize("shape", [(4, 3), (5,), (3, 2, 4, 5), (1, 2, 4, 5)])
def test_masks_of_another_shape(xp, attend, shape):
    q, k = xp.zeros((2, 4, 3)), xp.zeros((2, 6, 3))
    with refused(
        ShapeError, f"the mask has shape {shape}, which does not broadcast to (2, 4, 6)", "aligned at the end"
    ):
        attend(q, k, k, mask=xp.ones(shape, dtype=bool))


@ATTENTIONS
def test_masks_that_are_not_boolean_and_a_bias_of_another_shape(xp, attend):
    q = xp.zeros((2, 4, 3))
    with refused(DTypeError, "the mask must be boolean (True = may attend), got float32", "as the bias"):
        attend(q, q, q, mask=xp.zeros((4, 4), dtype="float32"))
    q = xp.zeros((2, 4, 3))
    with refused(ShapeError, "the bias has shape (4, 5), which does not broadcast to (2, 4, 4)", "aligned at the end"):
        attend(q, q, q, xp.zeros((4, 5)))


def test_softmax_and_pooling_check_their_masks(xp):
    x = xp.zeros((2, 3, 4))
    with refused(ShapeError, "the mask has shape (3,), which does not broadcast to (2, 3, 4)", ""):
        ops.softmax(x, mask=xp.ones(3, dtype=bool))
    with refused(DTypeError, "the mask must be boolean", "mask != 0"):
        ops.log_softmax(x, mask=xp.ones(4, dtype=int))
    with refused(ShapeError, "the mask has shape (2, 4), which does not broadcast to (2, 3)", ""):
        ops.mean_pool(x, mask=xp.ones((2, 4), dtype=bool))


@ATTENTIONS
@pytest.mark.parametrize(
    ("q", "k", "v", "words"),
    [
        ((2, 4, 3), (2, 6, 5), (2, 6, 5), "queries and keys do not fit: q (2, 4, 3), k (2, 6, 5), v (2, 6, 5)"),
        ((2, 4, 3), (6, 3), (6, 3), "queries and keys do not fit"),
        ((3,), (3,), (3,), "queries and keys do not fit"),
        ((5, 2, 4, 3), (4, 2, 4, 3), (4, 2, 4, 3), "queries and keys do not fit"),
        ((2, 4, 3), (2, 6, 3), (2, 5, 3), "keys and values do not fit"),
        ((2, 4, 3), (2, 6, 3), (1, 6, 3), "keys and values do not fit"),
        ((5, 4, 3), (2, 6, 3), (2, 6, 3), "5 query heads cannot share 2 key heads evenly"),
        ((2, 4, 3), (4, 6, 3), (4, 6, 3), "2 query heads cannot share 4 key heads evenly"),
        ((2, 4, 3), (0, 6, 3), (0, 6, 3), "2 query heads cannot share 0 key heads evenly"),
    ],
)
def test_queries_keys_and_values_that_do_not_fit(xp, attend, q, k, v, words):
    with refused(ShapeError, words, ""):
        attend(xp.zeros(q), xp.zeros(k), xp.zeros(v))


@pytest.mark.parametrize(
    "op",
    [
        lambda x, xp: ops.linear(x, xp.zeros((4, 2))),
        lambda x, xp: ops.layer_norm(x, xp.ones(4)),
        lambda x, xp: ops.rms_norm(x, xp.ones(4)),
    ],
)
@pytest.mark.parametrize("shape", [(2, 3), (), (4, 1)])
def test_inputs_of_another_width(xp, op, shape):
    with refused(ShapeError, f"the input has shape {shape}, expected (..., 4)", "the 4 features"):
        op(xp.zeros(shape), xp)


def test_gates_of_another_shape_and_angles_for_other_channels(xp):
    with refused(ShapeError, "gate has shape (2, 3) but up has (2, 4)", "the same shape"):
        ops.gated(xp.zeros((2, 3)), xp.zeros((2, 4)))
    cos, sin = ops.rotary_angles(np.arange(3), 6)
    with refused(ShapeError, "x has 4 channels but there are angles for 6", "rotary_angles"):
        ops.rotary(xp.zeros((3, 4)), xp.asarray(cos), xp.asarray(sin))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0, float("nan")])
def test_dropout_rates_out_of_range(xp, rate):
    x, key = xp.zeros((2, 3)), xp.asarray(ops.new_key(0))
    with refused(ConfigError, f"the dropout rate is {rate}", "at least 0 and below 1"):
        ops.dropout(x, key, rate=rate)
    with refused(ConfigError, f"the dropout rate is {rate}", "at least 0 and below 1"):
        ops.attention_tiled(x, x, x, key=key, rate=rate)
    with refused(ConfigError, f"the dropout rate is {rate}", "at least 0 and below 1"):
        ops.attention(x, x, x, key=key, rate=rate)


@pytest.mark.parametrize(
    ("make", "kind", "words", "hint"),
    [
        (lambda: ops.Pattern(window=0), ConfigError, "window is 0", "at least 1"),
        (lambda: ops.Pattern(stride=-2), ConfigError, "stride is -2", "at least 1"),
        (lambda: ops.Pattern(prefix=-1), ConfigError, "prefix is -1", "at least 0"),
        (lambda: ops.causal_mask(4, 3), LengthError, "there are 4 queries but only 3 keys", "last of the keys"),
        (lambda: ops.new_key(-1), ConfigError, "the seed is -1", "zero or more"),
        (lambda: ops.rotary_angles(np.arange(2), 5), ConfigError, "but a head has 5", "even"),
        (lambda: ops.activation_pair("gelutanh"), ConfigError, "no activation 'gelutanh'", "did you mean 'gelu_tanh'"),
        (lambda: ops.activation_pair("maxout"), ConfigError, "no activation 'maxout'", "known: gelu, gelu_tanh, relu"),
        (
            lambda: ops.rotary(np.zeros((1, 2)), np.ones((1, 1)), np.ones((1, 1)), pairing="thirds"),
            ConfigError,
            "no rotary pairing 'thirds'",
            '"halves" or "interleaved"',
        ),
    ],
)
def test_settings_out_of_range(make, kind, words, hint):
    with refused(kind, words, hint):
        make()


@pytest.mark.parametrize("case", {case.op: case for case in OP_CASES}.values(), ids=lambda case: case.op.__name__)
def test_a_list_instead_of_an_array(case):
    with refused(DTypeError, "expected an array, got list", "numpy.asarray(...)"):
        case.forward(case.arrays[0].tolist(), *case.arrays[1:])


def test_a_list_of_ids_or_a_list_as_a_mask():
    with refused(DTypeError, "expected an array, got list", "numpy.asarray(...)"):
        ops.embedding(np.zeros((3, 2)), [0, 1])
    with refused(DTypeError, "expected an array, got list", "numpy.asarray(...)"):
        ops.softmax(np.zeros(2), mask=[True, False])
