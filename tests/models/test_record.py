"""The record of a forward pass: every intermediate by a name that stays."""

import weakref

import numpy as np
import pytest

from compare import assert_close
from glassformer.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import flatten, leaf, like
from glassformer.layers.block import Block
from glassformer.models import build
from glassformer.models.decoder import Decoder
from glassformer.models.encoder import Encoder
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.model import Batch
from glassformer.proofs.model_cases import SIZES, SOURCE, SOURCE_MASK, TOKENS

TINY = {**SIZES, "layers": 1}

DECODER_NAMES = [
    "embedding.tokens.ids",
    "embedding.positions.ids",
    "embedding.output",
    "blocks.0.attention_norm.x",
    "blocks.0.attention_norm.mean",
    "blocks.0.attention_norm.rstd",
    "blocks.0.attention.query.x",
    "blocks.0.attention.attend.q",
    "blocks.0.attention.attend.k",
    "blocks.0.attention.attend.v",
    "blocks.0.attention.attend.weights",
    "blocks.0.attention.output.x",
    "blocks.0.feed_forward_norm.x",
    "blocks.0.feed_forward_norm.mean",
    "blocks.0.feed_forward_norm.rstd",
    "blocks.0.feed_forward.up.x",
    "blocks.0.feed_forward.activation",
    "blocks.0.feed_forward.down.x",
    "blocks.0.output",
    "final_norm.x",
    "final_norm.mean",
    "final_norm.rstd",
    "head.logits.x",
]


def test_the_names_in_the_record_of_a_decoder():
    model = Decoder(DecoderConfig(**TINY))
    _, saved = model.forward(model.init(), TOKENS)
    assert list(flatten(saved)) == DECODER_NAMES


def test_what_is_switched_on_gets_a_name():
    config = DecoderConfig(**TINY, positions="rotary", norm="rms", gated=True, embedding_norm=True, dropout=0.1)
    model = Decoder(config)
    _, saved = model.forward(model.init(), TOKENS, key=1)
    added = flatten(saved).keys() - set(DECODER_NAMES)
    assert added == {
        "embedding.norm.x",
        "embedding.norm.rrms",
        "embedding.dropout",
        "blocks.0.attention_norm.rrms",
        "blocks.0.attention.rotation.cos",
        "blocks.0.attention.rotation.sin",
        "blocks.0.attention.attend.keep",
        "blocks.0.attention_dropout",
        "blocks.0.feed_forward_norm.rrms",
        "blocks.0.feed_forward.gate.x",
        "blocks.0.feed_forward.activation.gate",
        "blocks.0.feed_forward.activation.up",
        "blocks.0.feed_forward_dropout",
        "final_norm.rrms",
    }


def test_an_encoder_decoder_records_two_stacks_and_a_classifier_its_pooled_vector():
    model = EncoderDecoder(EncoderDecoderConfig(**TINY))
    _, saved = model.forward(model.init(), SOURCE, TOKENS, source_mask=SOURCE_MASK)
    assert list(saved) == ["source_embedding", "encoder", "embedding", "decoder", "head"]
    cross = saved["decoder"]["blocks"][0]["cross_attention"]
    assert cross.weights.shape == (2, 4, 5, 4)
    assert {f"decoder.blocks.0.cross_attention.{name}.x" for name in ("query", "key", "value")} <= flatten(saved).keys()

    model = Encoder(EncoderConfig(**TINY, classes=3))
    params = model.init(dtype=np.float64)
    logits, saved = model.forward(params, TOKENS)
    pooled = saved["classifier"].x
    assert_close(logits, pooled @ params["classifier"]["w"] + params["classifier"]["b"])
    assert saved["pool"].share.shape == (2, 5, 1)


@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2, "positions": "rotary"}, {"positions": "alibi", "window": 2}])
def test_weights_are_by_head_query_and_key_and_their_rows_sum_to_one(settings):
    model = Decoder(DecoderConfig(**SIZES, **settings))
    _, saved = model.forward(model.init(dtype=np.float64), TOKENS)
    for record in saved["blocks"]:
        weights = record["attention"].weights
        assert weights.shape == (2, 4, 5, 5)
        assert_close(weights.sum(axis=-1), np.ones((2, 4, 5)))
        assert not np.triu(weights, 1).any()
        assert leaf(saved, "blocks.0.attention.attend.weights") is saved["blocks"][0]["attention"].weights


def test_each_block_reads_what_the_one_before_it_wrote():
    model = Decoder(DecoderConfig(**SIZES))
    _, saved = model.forward(model.init(), TOKENS)
    first, second = saved["blocks"]
    assert first["attention_norm"].x is saved["embedding"]["output"]
    assert second["attention_norm"].x is first["output"]
    assert saved["final_norm"].x is second["output"]


@pytest.mark.parametrize(
    "settings", [{}, {"positions": "alibi"}, {"positions": "relative"}, {"window": 2, "kv_heads": 1}]
)
def test_tiled_attention_makes_its_weights_again_when_asked(settings):
    dense, tiled = (build(DecoderConfig(**SIZES, **settings), attention_tile=tile) for tile in (None, 2))
    params = dense.init(dtype=np.float64)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    _, dense_saved = dense.forward(params, TOKENS, mask=mask)
    _, tiled_saved = tiled.forward(params, TOKENS, mask=mask)
    for one, other in zip(dense_saved["blocks"], tiled_saved["blocks"], strict=True):
        expected = dense.stack.block.attention.weights(one["attention"])
        assert_close(expected, one["attention"].weights)
        assert_close(tiled.stack.block.attention.weights(other["attention"]), expected)
    # No array of the tiled record grows with the square of the length, other than a bias that all blocks share.
    squares = [name for name, x in flatten(tiled_saved).items() if x.shape[-2:] == (5, 5) and "bias" not in name]
    assert [name for name in squares if "relative" not in name] == []


@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_the_backward_pass_of_a_loss_gives_up_what_it_has_read(kind, monkeypatch):
    # Four blocks whose attention weights are watched: they must not all wait for the end.
    sizes = {**SIZES, "layers": 4}
    model = Decoder(DecoderConfig(**sizes)) if kind == "decoder" else EncoderDecoder(EncoderDecoderConfig(**sizes))
    watched, alive = [], []
    predict, backward = type(model).predict, Block.backward

    def watching(self, *args, **settings):
        logits, saved = predict(self, *args, **settings)
        watched.extend(
            weakref.ref(x) for name, x in flatten(saved).items() if name.endswith(".attention.attend.weights")
        )
        return logits, saved

    def counting(self, *args, **settings):
        alive.append(sum(reference() is not None for reference in watched))
        return backward(self, *args, **settings)

    monkeypatch.setattr(type(model), "predict", watching)
    monkeypatch.setattr(Block, "backward", counting)
    model.loss_and_grads(model.init(), Batch(TOKENS, TOKENS, source=None if kind == "decoder" else SOURCE))
    assert len(alive) == len(watched) == (4 if kind == "decoder" else 8)
    # At most the one just read is still there beside those to come.
    assert all(left <= len(watched) - number + 1 for number, left in enumerate(alive))
    assert alive[-1] <= 2


def test_a_backward_pass_of_ones_own_leaves_the_record_alone():
    model = Decoder(DecoderConfig(**TINY))
    params = model.init()
    logits, saved = model.forward(params, TOKENS)
    before = flatten(saved)
    first, second = (flatten(model.backward(params, saved, np.ones_like(logits))) for _ in range(2))
    assert flatten(saved).keys() == before.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


KINDS = {
    "encoder": EncoderConfig(**SIZES, classes=3, dropout=0.1),
    "encoder of tokens": EncoderConfig(**SIZES, head="tokens", positions="sinusoidal"),
    "decoder": DecoderConfig(**SIZES),
    "llama": DecoderConfig(**SIZES, norm="rms", activation="silu", gated=True, positions="rotary", kv_heads=1),
    "post-norm": DecoderConfig(**SIZES, norm_position="post", positions="alibi", dropout=0.1),
    "encoder-decoder": EncoderDecoderConfig(**SIZES, positions="relative"),
}


def names_and_shapes(config, engine, key, xp=np, run=lambda function, *arrays: function(*arrays)):
    """What a record holds, computed by an engine in float32."""
    model = build(config)
    params = like(model.init(0), xp)
    inputs = (SOURCE, TOKENS) if isinstance(config, EncoderDecoderConfig) else (TOKENS,)
    with use_engine(engine):
        saved = run(lambda *arrays: model.forward(*arrays, key=key)[1], params, *(xp.asarray(ids) for ids in inputs))
    return {name: tuple(value.shape) for name, value in flatten(saved).items()}


@pytest.mark.parametrize("key", [None, 1], ids=["evaluating", "dropping"])
@pytest.mark.parametrize("config", KINDS.values(), ids=list(KINDS))
def test_names_and_shapes_do_not_depend_on_who_computed_them(jax, config, key):
    want = names_and_shapes(config, "numpy", key)
    assert names_and_shapes(config, "cpu", key) == want
    assert names_and_shapes(config, "jax", key, jax.numpy, jax.eval_shape) == want
    assert any(name.endswith("attend.weights") for name in want)
