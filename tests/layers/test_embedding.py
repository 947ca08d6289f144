"""From token ids to vectors."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.core.tree import flatten
from glassformer.layers import Embedding, InputEmbedding

V, D, CONTEXT = 5, 4, 6
IDS = np.array([[1, 4, 1, 0], [1, 1, 4, 2]])
TOKENS = Embedding(V, D)


def test_a_token_is_a_row_of_the_table_and_a_repeated_one_collects_gradients():
    layer = Embedding(V, D, scale=2.0)
    params = layer.init(0, np.float64)
    assert {name: p.shape for name, p in params.items()} == {"table": (V, D)}
    y, _ = layer.forward(params, IDS)
    assert y.shape == (2, 4, D)
    assert_close(y[1, 2], 2 * params["table"][4])

    params = TOKENS.init(0, np.float64)
    _, saved = TOKENS.forward(params, IDS)
    dx, grads = TOKENS.backward(params, saved, np.ones((2, 4, D)))
    assert dx is None  # ids have no gradient
    np.testing.assert_array_equal(grads["table"][:, 0], [1, 4, 1, 0, 2])

    assert abs(Embedding(500, 64).init(0, np.float64)["table"].std() - 1 / 8) < 0.01
    assert abs(Embedding(500, 64, std=0.02).init(0, np.float64)["table"].std() - 0.02) < 0.001


def test_tokens_positions_segments_and_sinusoids_are_added():
    layer = InputEmbedding(TOKENS, CONTEXT, segments=2)
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, IDS, segments=np.array([[0, 0, 1, 1], [1, 1, 1, 1]]))
    tables = {name: part["table"] for name, part in params.items()}
    assert_close(y[0, 2], tables["tokens"][1] + tables["positions"][2] + tables["segments"][1])
    assert saved["output"] is y

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
