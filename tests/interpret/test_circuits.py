"""Circuits of heads as products of their matrices; single entries of gradients, proven by the complex step."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, LengthError
from glassformer.core.tree import flatten, tree_map
from glassformer.interpret import Cards, Logit, Sum, gradients, scale, watch, zero
from glassformer.interpret.circuits import composition, copying_score, head_circuit, vocabulary

SETTINGS = {"vocab": 20, "width": 12, "heads": 4, "layers": 3, "context": 8}


def drawn(**changes):
    model = gf.build(gf.DecoderConfig(**{**SETTINGS, **changes}))
    rng = np.random.default_rng(0)
    return gf.TrainedModel(model, tree_map(lambda x: rng.standard_normal(x.shape), model.init(0)))


@pytest.fixture(scope="module")
def model():
    return drawn(kv_heads=2)


def matrices(model, layer, head):
    """Return query, key, value and output of one head, by slicing, with the norm's scale in those that read."""
    block, C = model.params["blocks"][layer], model.config.width // model.config.heads
    gamma, own = block["attention_norm"]["gamma"][:, None], block["attention"]
    shared = head // (model.config.heads // model.config.key_heads)
    at, at_shared = slice(head * C, (head + 1) * C), slice(shared * C, (shared + 1) * C)
    key, value = (gamma * own[name]["w"][:, at_shared] for name in ("key", "value"))
    return gamma * own["query"]["w"][:, at], key, value, own["output"]["w"][at]


def full(model, layer, head):
    q, k, v, o = matrices(model, layer, head)
    return v @ o, q @ k.T


def test_circuits_are_products_of_the_heads_own_matrices_and_decomposed_as_a_whole(model):
    ov, qk = full(model, 1, 3)
    np.testing.assert_allclose(head_circuit(model, "OV", layer=1, head=3).matrix, ov, rtol=1e-12)
    np.testing.assert_allclose(head_circuit(model, "QK", layer=1, head=3).matrix, qk / 3**0.5, rtol=1e-12)
    circuit = head_circuit(model, "OV", layer=0, head=1)
    read, values, written = circuit.svd
    np.testing.assert_allclose(values, np.linalg.svd(circuit.matrix, compute_uv=False)[:3], rtol=1e-10)
    np.testing.assert_allclose(read * values @ written, circuit.matrix, atol=1e-12)


def test_a_score_is_the_qk_circuit_between_two_normalized_vectors():
    model = drawn(attention_bias=False, norm="rms", norm_eps=1e-30)
    run = gf.interpret.watch(model.model, model.params, gf.Batch(np.array([[3, 1, 4]])))
    x = run["blocks.0.attention_norm.x"][0]
    x = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True))
    scores = x @ head_circuit(model, "QK", layer=0, head=2).matrix @ x.T
    np.testing.assert_allclose(np.tril(run["blocks.0.attention.attend.scores"][0, 2]), np.tril(scores), rtol=1e-10)


def test_tokens_of_a_component_and_the_copying_score_are_those_of_the_matrices(model):
    circuit = head_circuit(model, "OV", layer=0, head=1)
    ((value, reads, writes),) = circuit.tokens(model, 2, components=1)
    embedding, unembedding = vocabulary(model)
    left, values, right = np.linalg.svd(circuit.matrix)
    sign = np.sign((embedding @ left[:, 0]).max() + (embedding @ left[:, 0]).min())
    assert value == pytest.approx(values[0])
    assert reads == [str(n) for n in np.argsort(-sign * (embedding @ left[:, 0]))[:2]]
    assert writes == [str(n) for n in np.argsort(-sign * (right[0] @ unembedding))[:2]]

    circuit = head_circuit(model, "OV", layer=2, head=0)
    values = np.linalg.eigvals(embedding @ circuit.matrix @ unembedding)
    assert copying_score(model, circuit) == pytest.approx(values.real.sum() / np.abs(values).sum(), rel=1e-9)


def test_composition_scores_are_norms_of_whole_products(model):
    found = composition(model)
    ov, _ = full(model, 0, 2)
    for head in range(4):
        moves, attends = full(model, 2, head)
        for scores, reads in ((found.q, attends), (found.k, attends.T), (found.v, moves)):
            expected = np.linalg.norm(ov @ reads) / (np.linalg.norm(ov) * np.linalg.norm(reads))
            assert scores[2, head, 0, 2] == pytest.approx(expected, rel=1e-10)
    assert not found.q[0].any()
    assert not found.v[1, :, 1:].any()


def test_what_is_not_there_is_refused(model):
    with pytest.raises(LengthError, match="layer 3"):
        head_circuit(model, "OV", layer=3, head=0)
    with pytest.raises(LengthError, match="head 4"):
        head_circuit(model, "OV", layer=0, head=4)
    with pytest.raises(ConfigError, match="VO"):
        head_circuit(model, "VO", layer=0, head=0)
    with pytest.raises(ConfigError, match="copying"):
        copying_score(model, head_circuit(model, "QK", layer=0, head=0))


def test_any_entry_a_logit_and_a_sum_are_proven(run, rng):
    run = run.changed(scale(str(rng.choice([name for name in run if name.endswith("feed_forward")])), 0.5))
    values = {**{name: run[name] for name in run if not name.endswith("mask")}, **flatten(run.params)}
    found = gradients(run)
    for name, value in values.items():
        index = tuple(int(rng.integers(size)) for size in value.shape)
        assert Cards(run, found=found).prove(name, index).difference < 1e-12, name

    stream = next(name for name in run if name.endswith("blocks.0"))
    first = "source_embedding" if "source_embedding" in run else "embedding"
    for target in (Logit(1), Logit(2, against=0, example=1), Sum(stream, 2.0, position=1)):
        found = Cards(run, target).prove(first, (0, 1, 3))
        assert found.difference < 1e-12
        assert found.step != 0 or isinstance(target, Logit)


def test_single_precision_is_proven_in_double_and_what_has_no_derivative_refused(decoder):
    model, params, batch = decoder
    run = watch(model, tree_map(lambda x: x.astype(np.float32), params), batch).changed(zero("blocks.0.attention"))
    assert Cards(run).prove("blocks.0.feed_forward", (0, 1, 2)).difference < 1e-12

    run = watch(*decoder)
    with pytest.raises(ConfigError, match="no real number"):
        Cards(run).prove("blocks.0.attention.attend.mask", (0, 0, 0, 0))
    with pytest.raises(ConfigError, match="3 axes"):
        Cards(run).prove("blocks.0", (0, 0))
