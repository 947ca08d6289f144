import logging

import numpy as np
import pytest

import glassformer as gf
from glassformer.errors import ConfigError, ShapeError
from glassformer.generation.sampling import Sampling
from glassformer.generation.writer import generate_steps
from glassformer.interpret import add, freeze, put, scale, transform, watch, zero
from glassformer.interpret.steering import changed_model, steering_vector
from glassformer.interpret.steering_plan import keys_of
from glassformer.interpret.where import axes_of
from glassformer.models import Batch
from glassformer.tree import tree_map

SMALL = {"vocab": 23, "width": 8, "heads": 2, "layers": 3, "context": 16, "feed_forward": 12}
CONFIGS = {
    "learned": gf.DecoderConfig(**SMALL),
    "llama": gf.DecoderConfig(**SMALL, kv_heads=1, norm="rms", positions="rotary", gated=True, activation="silu"),
    "post": gf.DecoderConfig(**SMALL, norm_position="post", positions="alibi", tied_head=False),
    "parallel": gf.DecoderConfig(**SMALL, block="parallel", positions="rotary", rotary_channels=2),
    "relative": gf.DecoderConfig(**SMALL, positions="relative", norm="rms"),
    "encoder_decoder": gf.EncoderDecoderConfig(**SMALL, encoder_layers=2, source_vocab=19),
}
PROMPT, NEW = 4, 5
PLACES = {  # what is asked for while writing, and the same in a text of T tokens
    "all": (None, lambda T: None),
    "prompt": ("prompt", lambda T: slice(0, PROMPT)),
    "new": ("new", lambda T: slice(PROMPT, T)),
    "from": (slice(2, None), lambda T: slice(2, T)),
    "numbers": ([0, 3], lambda T: [0, 3]),
}


def drawn(name):
    model = gf.build(CONFIGS[name])
    rng = np.random.default_rng(1)
    return model, tree_map(lambda x: x + 0.5 * rng.standard_normal(x.shape), model.init(0))


def uncached(model, params, source, changes):
    """Return what a model writes that runs on the whole text, changed, for every token."""
    sequence = [1, 5, 2, 7]
    for _ in range(NEW):
        run = watch(model, params, Batch(np.array([sequence]), source=source))
        run = run.changed(*(change(len(sequence)) for change in changes))
        sequence.append(int(np.argmax(run.logits[0, -1])))
    return sequence[PROMPT:]


def cached(model, params, source, changes):
    model, params = changed_model(model, params, changes, PROMPT)
    sources = None if source is None else [source[0]]
    settings = {"sources": sources, "max_new_tokens": NEW, "sampling": Sampling(temperature=0)}
    return [int(step.ids[0]) for step in generate_steps(model, params, [np.array([1, 5, 2, 7])], **settings)]


def random_change(rng, model):
    """Return a change while writing, and the function that makes the same change of a text of T tokens."""
    names = sorted(name for name in keys_of(model) if not name.endswith(("mask", "weights")))
    name = str(rng.choice(names)).replace("blocks.0", f"blocks.{rng.integers(2)}")
    run = watch(model, model.init(0), Batch(np.array([[0]]), source=np.array([[0]]) if has_source(model) else None))
    axes = axes_of(name, run[name].ndim)
    kind = str(rng.choice(list(PLACES))) if "position" in axes and not name.startswith(("encoder", "source")) else "all"
    asked, same = PLACES[kind]
    factor, value = float(rng.normal()), float(rng.normal())
    make = [lambda **w: scale(name, factor, **w), lambda **w: add(name, value, **w), lambda **w: zero(name, **w)]
    own = make[rng.integers(3)]
    return own(position=asked), lambda T: own(position=same(T))


def has_source(model):
    return isinstance(model.config, gf.EncoderDecoderConfig)


@pytest.mark.parametrize("engine", ["numpy", "cpu", "jax"])
@pytest.mark.parametrize("name", CONFIGS)
def test_changes_while_writing_are_those_of_the_whole_text(name, engine, caplog):
    caplog.set_level(logging.ERROR, "glassformer")  # some changes alter nothing
    model, params = drawn(name)
    params = params if engine == "numpy" else tree_map(lambda x: x.astype(np.float32), params)
    source = np.array([[3, 1, 4, 1, 5]]) if has_source(model) else None
    rng = np.random.default_rng(sum(name.encode()))
    plain, differ = cached(model, params, source, []), 0
    for _ in range(2 if engine == "jax" else 16):
        changes = [random_change(rng, model) for _ in range(rng.integers(1, 3))]
        with gf.use_engine(engine):
            found = cached(model, params, source, [change for change, _ in changes])
        assert found == uncached(model, params, source, [same for _, same in changes]), [c.name for c, _ in changes]
        differ += found != plain
    assert differ or engine == "jax"


def test_a_hidden_key_gets_no_attention_while_writing():
    model, params = drawn("llama")
    name = "blocks.1.attention.attend.scores"
    found = cached(model, params, None, [put(name, -1e9, key=[1], position="new")])
    assert found == uncached(model, params, None, [lambda T: put(name, -1e9, key=[1], position=slice(PROMPT, T))])


def test_a_function_of_the_value_changes_what_is_written():
    model, params = drawn("learned")
    change = transform("blocks.1", lambda x: np.clip(x, -0.5, 0.5), feature=[0, 3, 5])
    assert cached(model, params, None, [change]) == uncached(model, params, None, [lambda T: change])


def test_a_changed_parameter_is_used():
    model, params = drawn("learned")
    change = zero("blocks.1.attention.output.w")
    assert cached(model, params, None, [change]) == uncached(model, params, None, [lambda T: change])


@pytest.fixture(scope="module")
def counting():
    return gf.train(None, "counting", steps=60, show=False)


def test_texts_are_steered_alone_in_batches_in_pieces_and_by_beams(counting):
    change = add("logits", 50.0, position="new", feature=3)
    settings = {"changes": [change], "temperature": 0, "max_new_tokens": 6}
    alone = [counting.generate(text, **settings).text for text in ("1", "2 3", "3")]
    assert [one.text for one in counting.generate(["1", "2 3", "3"], **settings)] == alone
    assert "".join(counting.stream("2 3", **settings)) == alone[1]
    assert counting.generate("1", changes=[change], beams=1, max_new_tokens=6).text == alone[0]
    assert alone[0] != counting.generate("1", temperature=0, max_new_tokens=6).text


def test_a_steering_vector_is_a_difference_of_means(counting):
    found = steering_vector(counting, ["1 2", "3"], ["4 5"], "blocks.0")
    means = [counting.watch(text)["blocks.0"][0].mean(axis=0) for text in ("1 2", "3", "4 5")]
    np.testing.assert_allclose(found, (means[0] + means[1]) / 2 - means[2], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (add("blocks.9", 1.0), ConfigError, "blocks.9"),
        (add("block.0", 1.0), ConfigError, "blocks.0"),
        (freeze("blocks.0"), ConfigError, "freeze"),
        (add("blocks.0", 1.0, position="last"), ConfigError, "last"),
        (add("blocks.0", 1.0, position=-1), ConfigError, "-1"),
        (add("blocks.0", np.ones(5)), ShapeError, "5"),
        (add("blocks.0", 1.0, example=0), ConfigError, "example"),
        ("blocks.0", ConfigError, "no change"),
    ],
)
def test_what_cannot_be_changed_is_refused(counting, change, error, words):
    with pytest.raises(error, match=words):
        counting.generate("1", changes=[change], max_new_tokens=2)


def test_a_changed_text_does_not_slide(counting):
    with pytest.raises(ConfigError, match="slide"):
        counting.generate("1", changes=[add("blocks.0", 1.0)], slide=True)
