"""What a model costs, counted before anything is allocated, against published figures and real arrays."""

import itertools
import tracemalloc

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.core.execution import Execution, separated
from glassformer.layers.stack import Stack
from glassformer.models.costs import (
    activation_bytes,
    costs,
    flops_per_token,
    kv_cache_bytes,
    parameters_by_part,
    record_bytes,
)

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_514_298,  # as BertForMaskedLM
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-v1.1-small": 76_961_152,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "smollm2-135m": 134_515_008,
}
SIZES = {"vocab": 11, "width": 16, "heads": 4, "layers": 2, "context": 9, "activation": "gelu_tanh"}
KINDS = {
    "decoder": (gf.DecoderConfig, {}),
    "classifier": (gf.EncoderConfig, {"classes": 3}),
    "classifier, cls": (gf.EncoderConfig, {"classes": 3, "pooling": "cls"}),
    "classifier, first": (gf.EncoderConfig, {"classes": 3, "pooling": "first"}),
    "vectors": (gf.EncoderConfig, {"head": "none"}),
    "tokens": (gf.EncoderConfig, {"head": "tokens", "segments": 2}),
    "encoder-decoder": (gf.EncoderDecoderConfig, {"encoder_layers": 3}),
}
VARIANTS = {
    "plain": {},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "llama": {"kv_heads": 2, "norm": "rms", "gated": True, "activation": "silu", "head_width": 4},
    "post-norm": {"norm_position": "post", "tied_head": False, "dropout": 0.2},
    "no norms": {"norm": "none", "head_width": 3},
    "parallel": {"block": "parallel", "dropout": 0.1},
    "attention only": {"block": "attention_only"},
    "feed-forward only": {"block": "feed_forward_only"},
    "no residual": {"block": "no_residual", "dropout": 0.1},
    "tiled": {"attention_tile": 3},
    "tiled alibi": {"attention_tile": 3, "positions": "alibi"},
    "scaled head": {"norm_position": "post", "head_scale": True, "tied_head": True},
    "normed embedding": {"embedding_scale": True, "embedding_norm": True, "activation": "relu", "dropout": 0.1},
}
COMBINED = [
    (kind, variant)
    for kind, variant in itertools.product(KINDS, VARIANTS)
    if (kind, variant) != ("encoder-decoder", "feed-forward only")  # which is refused, as the next for encoders
    and (variant != "scaled head" or kind in ("decoder", "tokens", "encoder-decoder"))
]
SAVERS = {
    "remat": {"remat": True},
    "half": {"compute": "float16"},
    "both": {"remat": True, "compute": "float16"},
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items(), ids=list(PUBLISHED))
def test_presets_have_the_published_number_of_parameters(name, parameters):
    assert costs(gf.preset(name), length=1).parameters == parameters


def test_gpt3_is_counted_without_its_memory_and_close_to_the_rule():
    tracemalloc.start()
    result = costs(gf.preset("gpt3"))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000  # bytes; its parameters take 700 GB
    tracemalloc.stop()
    assert result.parameters == pytest.approx(175e9, rel=0.005)
    assert result.estimate == 12 * 96 * 12288**2
    assert result.estimate == pytest.approx(result.parameters, rel=0.005)


@pytest.mark.parametrize("name", [name for name in gf.PRESETS if name not in PUBLISHED and name != "gpt3"])
def test_small_presets_have_as_many_numbers_as_counted(name):
    if name in ("bert-large", "transformer-base", "llama-3.1-8b"):
        assert sum(parameters_by_part(gf.preset(name)).values()) > 0
        return
    model = gf.build(name)
    assert gf.tree.count(model.init(0)) == sum(parameters_by_part(model.config).values())


def buffers_of(record):
    """Return the memory of all arrays in a record: each buffer once, ids left out."""
    buffers = {}
    for _, array in gf.tree.named_leaves(record):
        while isinstance(array.base, np.ndarray):
            array = array.base
        if not np.issubdtype(array.dtype, np.integer):
            buffers[id(array)] = array.nbytes
    return buffers


def model_of(kind, *variants):
    """A model, given settings of its config and of its execution."""
    cls, own = KINDS[kind]
    settings, how = separated({**own, **{name: value for variant in variants for name, value in variant.items()}})
    return gf.build(cls(**{**SIZES, **settings}), Execution(**how))


def counted_bytes(model, **changes):
    return activation_bytes(model.config, 3, 6, execution=model.execution.replace(**changes))


def real_bytes(model, batch, length):
    """Return the memory of a record, and of the largest that blocks make when they run again."""
    config = model.config
    params = model.init(0)
    tokens = np.random.default_rng(0).integers(0, config.vocab, (batch, length))
    inputs = (tokens, tokens) if config.architecture == "encoder-decoder" else (tokens,)
    again, recorded = [], Stack.run_block_backward

    def run_back(stack, params, record, given, dy):
        if model.execution.remat:
            _, whole = stack.block.forward(params, record.x, key=record.key, **given)
            again.append(sum(size for buffer, size in buffers_of(whole).items() if buffer not in kept))
        return recorded(stack, params, record, given, dy)

    y, saved = model.forward(params, *inputs, key=1)
    kept = buffers_of(saved)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stack, "run_block_backward", run_back)
        model.backward(params, saved, np.ones_like(y))
    return sum(kept.values()) + max(again, default=0)


@pytest.mark.parametrize(("kind", "variant"), COMBINED)
def test_activations_are_counted_to_the_byte(kind, variant):
    model = model_of(kind, VARIANTS[variant])
    assert counted_bytes(model) == real_bytes(model, 3, 6)


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize(("kind", "variant"), COMBINED)
def test_what_saves_memory_is_counted_to_the_byte(kind, variant, saver):
    model = model_of(kind, VARIANTS[variant], SAVERS[saver])
    counted = counted_bytes(model)
    assert counted == real_bytes(model, 3, 6)
    assert counted < counted_bytes(model, remat=False, precision="float32")


def test_with_remat_one_more_block_costs_one_vector():
    config, remat = gf.DecoderConfig(**SIZES), Execution(remat=True)
    nine, eight = (activation_bytes(config.replace(layers=n), 3, 6, execution=remat) for n in (9, 8))
    more = nine - eight
    assert more == 3 * 6 * config.width * 4


@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2}, {"kv_heads": 1, "window": 4}])
def test_the_cache_needs_what_was_counted(settings):
    config = gf.DecoderConfig(**{**SIZES, "context": 64}, **settings)
    model = gf.build(config)
    cache = model.new_cache()
    model.read(model.init(0), np.zeros((3, 64), dtype=int), cache)
    assert cache.nbytes == kv_cache_bytes(config, 3, 64)


def test_flops_are_two_per_weight_and_attention():
    config = gf.preset("gpt2")
    matrices = 12 * 12 * 768**2 + 50257 * 768
    assert flops_per_token(config, 1024) == 2 * matrices + 4 * 12 * 1024 * 768


@pytest.mark.parametrize("pattern", [{"window": 4}, {"stride": 3}, {"window": 7, "stride": 3}, {"window": 100}])
@pytest.mark.parametrize("kind", ["decoder", "vectors"])
@pytest.mark.parametrize("length", [1, 2, 9, 40])
def test_flops_count_the_keys_that_a_token_sees(kind, pattern, length):
    cls, own = KINDS[kind]
    config = cls(**{**SIZES, "context": 64}, **own)
    seen = gf.ops.Pattern(causal=kind == "decoder", **pattern).dense(length).sum(axis=-1).max()
    fewer = flops_per_token(config, length) - flops_per_token(config.replace(**pattern), length)
    assert fewer == 4 * config.layers * (length - seen) * config.width


def test_a_window_is_of_the_own_text_and_costs_are_shown_as_tables():
    config = gf.EncoderDecoderConfig(**{**SIZES, "context": 64}, encoder_layers=3)
    fewer = flops_per_token(config, 40) - flops_per_token(config.replace(window=4), 40)
    assert fewer == 4 * (2 * (40 - 4) + 3 * (40 - 7)) * config.width

    found = gf.params(gf.build("gpt2"), length=100)
    assert found == gf.params("gpt2", length=100) == costs(gf.preset("gpt2"), length=100)
    assert gf.params(gf.build("gpt2", Execution(tile=64)), length=100).activations < found.activations
    for shown in (repr(found), found._repr_html_()):
        assert "124,439,808" in shown
        assert "KV cache" in shown
    with pytest.raises(ConfigError, match="is no model"):
        gf.params(5)


class CountedNorm(gf.layers.NoNorm):
    """A norm of one's own that says what it keeps."""

    def record_shapes(self, shape):
        return {"r": gf.layers.RecordShape((*shape[:-1], 1), "params")}


def test_a_layer_of_ones_own_counts_what_it_says():
    sizes = {}
    for norm in (gf.layers.NoNorm(8), CountedNorm(8)):
        block = gf.layers.Block(gf.layers.Attention(8, 2), gf.layers.FeedForward(8, 12), norm)
        stack = gf.layers.Stack(block, 3, final_norm=norm)
        sizes[type(norm)] = record_bytes(stack.record_shapes((2, 5, 8)), 4, Execution(precision="bfloat16"))
    assert sizes[CountedNorm] - sizes[gf.layers.NoNorm] == (2 * 3 + 1) * 2 * 5 * 4
