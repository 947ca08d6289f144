"""How weights are kept while a model writes: which are rounded, by how much, and that nothing else changes."""

import numpy as np
import pytest

from compare import assert_close, error
from glassformer.core.errors import ConfigError, DTypeError
from glassformer.core.quantized import Quantized
from glassformer.core.tree import check_same, flatten, tree_map
from glassformer.generation import Sampling
from glassformer.generation.storage import STORAGES, stored
from glassformer.models import Batch
from sequences import model_of, prompts_of, written

FINEST_FIRST = ("float32", "float16", "int8", "int4")
GREEDY = Sampling(temperature=0)


def kinds(params):
    return {name: leaf.form for name, leaf in flatten(params).items() if isinstance(leaf, Quantized)}


def float32(architecture="decoder", **settings):
    return model_of(architecture, dtype=np.float32, width=64, **settings)


def values(params):
    """The same parameters as arrays."""
    return tree_map(lambda leaf: leaf.dequantize() if isinstance(leaf, Quantized) else leaf, params)


@pytest.mark.parametrize("weights", FINEST_FIRST)
@pytest.mark.parametrize("positions", ["learned", "relative"])
@pytest.mark.parametrize("architecture", ["decoder", "encoder-decoder"])
def test_matrices_are_rounded_and_the_rest_stays(architecture, positions, weights):
    model, params = float32(architecture, positions=positions)
    kept = stored(params, weights)
    check_same(kept, model.specs())
    rounded = {name for name in flatten(params) if name.endswith((".w", "tokens.table"))}
    assert kinds(kept).keys() == (set() if weights == "float32" else rounded)
    for name, leaf in flatten(kept).items():
        if name not in rounded or weights == "float32":
            np.testing.assert_array_equal(leaf, flatten(params)[name])


@pytest.mark.parametrize("weights", FINEST_FIRST)
def test_logits_are_those_of_the_rounded_numbers(weights):
    model, params = float32()
    kept, tokens = stored(params, weights), np.arange(16)[None] % 17
    assert_close(model.forward(kept, tokens)[0], model.forward(values(kept), tokens)[0], 1e-5)


def test_fewer_bits_move_the_logits_further_and_int4_keeps_the_embedding_in_int8():
    model, params = float32()
    tokens = np.arange(16)[None] % 17
    expected = model.forward(params, tokens)[0]
    errors = [error(model.forward(stored(params, weights), tokens)[0], expected) for weights in FINEST_FIRST]
    assert errors == sorted(errors)
    assert errors[0] <= 1e-5

    _, params = float32()
    found = kinds(stored(params, "int4"))
    assert found.pop("embedding.tokens.table") == "Q8_0"
    assert set(found.values()) == {"Q4_1"}


def test_float32_matrices_lie_output_by_output():
    _, params = float32()
    for name, leaf in flatten(stored(params, "float32")).items():
        if name.endswith(".w"):
            assert leaf.flags.f_contiguous
            assert leaf.dtype == np.float32
    again = stored(stored(params, "float32"), "float32")
    assert np.shares_memory(again["head"]["w"], stored(again, "float32")["head"]["w"])


def test_blocks_are_kept_as_stored_and_turned_into_others_on_request():
    _, params = float32()
    kept = stored(params, "int8")
    same = stored(kept, "as-stored")
    for name, leaf in flatten(same).items():
        if isinstance(leaf, Quantized):
            assert leaf.blocks is flatten(kept)[name].blocks
    assert kinds(stored(kept, "float16"))["head.w"] == "F16"
    assert kinds(stored(kept, "float32")) == {}
    np.testing.assert_array_equal(stored(kept, "float32")["head"]["w"], kept["head"]["w"].dequantize())

    _, params = model_of(dtype=np.float64)
    assert {str(leaf.dtype) for leaf in flatten(stored(params, "int8")).values()} == {"float64"}


@pytest.mark.parametrize("weights", ["float16", "int8", "int4"])
@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2, "positions": "rotary"}, {"positions": "alibi", "window": 5}])
def test_a_cache_and_a_batch_change_nothing_either(weights, settings):
    model, params = float32(**settings)
    kept, prompts = stored(params, weights), prompts_of(3, 9, 1)
    together, _ = written(model, kept, prompts, max_new_tokens=8, sampling=GREEDY)
    for row, prompt in enumerate(prompts):
        alone, _ = written(model, kept, [prompt], max_new_tokens=8, sampling=GREEDY)
        plain, _ = written(model, values(kept), [prompt], max_new_tokens=8, sampling=GREEDY, cache=False)
        assert alone == plain == [together[row]]


def test_such_a_model_cannot_learn_and_an_unknown_storage_is_refused():
    model, params = float32()
    tokens = np.arange(8)[None]
    with pytest.raises(DTypeError, match="a model can write but not learn"):
        model.loss_and_grads(stored(params, "int8"), Batch(tokens, tokens))
    with pytest.raises(ConfigError, match="cannot be kept as 'int9'") as caught:
        stored({}, "int9")
    assert "'int8'" in caught.value.hint
    assert set(FINEST_FIRST) < set(STORAGES)
