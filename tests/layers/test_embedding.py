"""From token ids to vectors."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.errors import DTypeError, LengthError, ShapeError, TokenError
from glassformer.layers import Embedding, InputEmbedding, LayerNorm
from glassformer.tree import flatten
from layers.exact import assert_exact

V, D, CONTEXT = 5, 4, 6
IDS = np.array([[1, 4, 1, 0], [1, 1, 4, 2]])
TOKENS = Embedding(V, D)


# --- the table -------------------------------------------------------------------------------------------------------


def test_a_token_is_a_row_of_the_table():
    layer = Embedding(V, D, scale=2.0)
    params = layer.init(0, np.float64)
    assert {name: p.shape for name, p in params.items()} == {"table": (V, D)}
    y, _ = layer.forward(params, IDS)
    assert y.shape == (2, 4, D)
    assert_close(y[1, 2], 2 * params["table"][4])


def test_a_repeated_token_collects_gradients_from_all_its_places():
    params = TOKENS.init(0, np.float64)
    _, saved = TOKENS.forward(params, IDS)
    dx, grads = TOKENS.backward(params, saved, np.ones((2, 4, D)))
    assert dx is None  # ids have no gradient
    np.testing.assert_array_equal(grads["table"][:, 0], [1, 4, 1, 0, 2])


@pytest.mark.parametrize("ids", [np.array(3), IDS[0], IDS, IDS[:, :0]], ids=["one id", "sequence", "batch", "empty"])
def test_gradients_of_the_table_are_exact(ids):
    assert_exact(Embedding(V, D, scale=3.0), settings={"ids": ids})


def test_first_rows_have_the_spread_that_was_asked_for():
    assert abs(Embedding(500, 64).init(0, np.float64)["table"].std() - 1 / 8) < 0.01
    assert abs(Embedding(500, 64, std=0.02).init(0, np.float64)["table"].std() - 0.02) < 0.001


# --- the input of a model --------------------------------------------------------------------------------------------


def test_tokens_positions_and_segments_are_added():
    layer = InputEmbedding(TOKENS, CONTEXT, segments=2)
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, IDS, segments=np.array([[0, 0, 1, 1], [1, 1, 1, 1]]))
    tables = {name: part["table"] for name, part in params.items()}
    assert_close(y[0, 2], tables["tokens"][1] + tables["positions"][2] + tables["segments"][1])
    assert saved["output"] is y


def test_sinusoids_are_added_without_any_parameter():
    layer = InputEmbedding(TOKENS, CONTEXT, "sinusoidal")
    params = layer.init(0, np.float64)
    assert list(flatten(params)) == ["tokens.table"]
    assert_close(layer.forward(params, IDS)[0], params["tokens"]["table"][IDS] + ops.sinusoidal(np.arange(4), D))


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_given_positions_count_instead_of_places(kind):
    layer = InputEmbedding(TOKENS, CONTEXT, kind)
    params = layer.init(0, np.float64)
    shifted, _ = layer.forward(params, IDS[:, :2], positions=np.array([2, 3]))
    assert_close(shifted, layer.forward(params, IDS[:, [0, 0, 0, 1]])[0][:, 2:])


def test_where_positions_enter_elsewhere_the_order_does_not_matter_here():
    layer = InputEmbedding(TOKENS, CONTEXT, "rotary")
    params = layer.init(0, np.float64)
    assert_close(layer.forward(params, IDS[:, ::-1])[0], layer.forward(params, IDS)[0][:, ::-1])


def test_dropout_needs_a_key():
    layer = InputEmbedding(TOKENS, CONTEXT, dropout=0.5)
    params = layer.init(0, np.float64)
    kept, _ = layer.forward(params, IDS)
    dropped, _ = layer.forward(params, IDS, key=ops.new_key(0))
    gone = dropped == 0
    assert gone.any()
    assert_close(dropped[~gone], 2 * kept[~gone])


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_gradients_of_all_tables_and_the_norm_are_exact(positions):
    layer = InputEmbedding(Embedding(V, D, 2.0), CONTEXT, positions, segments=2, norm=LayerNorm(D), dropout=0.3)
    assert_exact(layer, settings={"ids": IDS, "segments": IDS % 2, "key": ops.new_key(1)})


def test_inputs_that_cannot_be_are_refused():
    layer = InputEmbedding(TOKENS, CONTEXT, segments=2)
    params = layer.init(0, np.float64)
    with pytest.raises(TokenError, match="hold 5 at index"):
        layer.forward(params, np.array([1, 5]))
    with pytest.raises(DTypeError, match="must be integers"):
        layer.forward(params, np.array([1.0, 2.0]))
    with pytest.raises(ShapeError, match="a single number"):
        layer.forward(params, np.array(1))
    with pytest.raises(LengthError, match="has 7 tokens but this model reads at most 6"):
        layer.forward(params, np.zeros(7, int))
    with pytest.raises(LengthError, match="is empty"):
        layer.forward(params, np.zeros((2, 0), int))
    with pytest.raises(TokenError, match="positions hold 6"):
        layer.forward(params, np.array([1, 2]), positions=np.array([5, 6]))
    with pytest.raises(TokenError, match="segments hold 2"):
        layer.forward(params, np.array([1, 2]), segments=np.array([0, 2]))
