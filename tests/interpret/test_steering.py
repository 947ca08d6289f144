from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, LengthError, ShapeError, TokenError
from glassformer.core.tree import tree_map
from glassformer.generation.sampling import Sampling
from glassformer.generation.writer import generate_steps
from glassformer.interpret import add, freeze, put, resample, scale, transform, watch, zero
from glassformer.interpret.changed_model import changed_model
from glassformer.interpret.names import axes_of, is_of_source
from glassformer.interpret.steering import steering_vector
from glassformer.interpret.tracing import Key
from glassformer.models import Batch

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


def sources_of(model, count=1):
    return [[3, 1, 4, 1, 5]] * count if isinstance(model.config, gf.EncoderDecoderConfig) else None


def batch_of(model, ids):
    source = sources_of(model)
    return Batch(ids[None], source=None if source is None else np.array(source))


PROMPTS = [np.array([1, 5, 2, 7]), np.array([3, 9])]


def cached(model, params, changes, prompts=PROMPTS[:1]):
    """Return what a model writes behind prompts with changes, (R, NEW), and the log-probabilities of these tokens."""
    model, params = changed_model(model, params, changes, len(prompts[0]))
    sources = sources_of(model, len(prompts))
    settings = {"sources": sources, "max_new_tokens": NEW, "sampling": Sampling(temperature=0), "log_probabilities": 0}
    steps = list(generate_steps(model, params, prompts, **settings))
    return [np.stack([getattr(step, part) for step in steps], axis=1) for part in ("ids", "log_probabilities")]


def uncached(model, params, changes, ids, prompt=PROMPTS[0], by_step=False):
    """Return log-probabilities of tokens behind a prompt: of a run on the text, or of runs on the text so far."""
    text = np.concatenate([prompt, ids])
    if by_step:
        ends = range(len(prompt), len(text))
        runs = [watch(model, params, batch_of(model, text[:end])).changed(*changes) for end in ends]
        behind = np.stack([run.logits[0, -1] for run in runs])
    else:
        behind = watch(model, params, batch_of(model, text)).changed(*changes).logits[0, len(prompt) - 1 : -1]
    return gf.ops.log_softmax(behind.astype(np.float64))[0][np.arange(NEW), ids]


def check_same(model, params, changes, same, tolerance=1e-9, by_step=False):
    """Compare what is written with changes to a run with the same ones, and that to runs without each of them."""
    ids, found = cached(model, params, changes)
    expected = uncached(model, params, same, ids[0], by_step=by_step)
    what = [(change.word, change.name, change.where.position) for change in changes]
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=tolerance, err_msg=str(what))
    for number in range(len(same)):
        others = [*same[:number], *same[number + 1 :]]
        effect = np.abs(expected - uncached(model, params, others, ids[0], by_step=by_step)).max()
        assert effect > 2 * tolerance, (what[number], effect)


def drawn_change(rng, name, run, places=tuple(PLACES)):
    """Return a change while writing, and the same change of the whole text.

    What is added to all features alike, or to all keys, may change nothing: a norm and softmax take it away.
    """
    axes, size = axes_of(name, run[name].ndim), run[name].shape[-1]
    features = {axes[-1]: rng.choice(size, size // 2, replace=False)} if size > 1 else {}
    if axes[-1] == "key":
        features = {"key": [1]}  # the first token sees no other than itself
    has_positions = "position" in axes and not is_of_source(name)
    asked, same = PLACES[str(rng.choice(places)) if has_positions else "all"]
    factor, value = 2 * rng.normal(size=2)
    alone = bool(rng.integers(2))
    if name.endswith("mask"):
        return tuple(put(name, False, key=[1], position=one) for one in (asked, same(PROMPT + NEW)))
    make = [
        lambda **where: scale(name, factor, **where),
        lambda **where: put(name, value, **where),
        lambda **where: transform(name, lambda x: value * x + factor * x * x, per_position=alone, **where),
        lambda **where: add(name, value, **where),
    ]
    make = make[: 3 if name.endswith((".k", ".key", ".key.input")) else 4]
    make = make[rng.integers(len(make))]
    return make(**features, position=asked), make(**features, position=same(PROMPT + NEW))


def values_of(model):
    """Return a run, and its values, each by one name."""
    run = watch(model, model.init(0), batch_of(model, np.array([0, 1])))
    return run, [*{address: name for name, address in run.addresses.items()}.values()]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_value_is_changed_while_writing_as_in_the_whole_text(name, numpy_engine):
    model, params = drawn(name)
    run, names = values_of(model)
    rng = np.random.default_rng(sum(name.encode()))
    for value in names:
        change, same = drawn_change(rng, value, run)
        check_same(model, params, [change], [same])


@pytest.mark.parametrize("engine", ["cpu", "jax"])
@pytest.mark.parametrize("name", CONFIGS)
def test_an_engine_makes_changes_while_writing(name, engine, request):
    if engine == "jax":
        request.getfixturevalue("jax")
    model, params = drawn(name)
    params = tree_map(lambda x: x.astype(np.float32), params)
    run, names = values_of(model)
    rng = np.random.default_rng(sum(name.encode()))
    for pair in rng.choice(names, (2 if engine == "jax" else 8, 2), replace=False):
        changes, same = zip(*(drawn_change(rng, str(value), run, ["all"]) for value in pair), strict=True)
        with gf.use_engine(engine):
            check_same(model, params, changes, same, 5e-5)


@pytest.mark.parametrize("name", ["learned", "relative"])
def test_prompts_of_different_lengths_are_changed_each_at_its_own_positions(name, numpy_engine):
    model, params = drawn(name)
    names = ["embedding.positions"] * (name == "learned") + ["embedding", "blocks.1.attention.attend.k", "blocks.2"]
    changes = [add(value, 0.5, position=[0, 3, 5], feature=[0, 2]) for value in names]
    ids, found = cached(model, params, changes, PROMPTS)
    for prompt, own, row in zip(PROMPTS, ids, found, strict=True):
        np.testing.assert_allclose(row, uncached(model, params, changes, own, prompt), rtol=0, atol=1e-9)
        assert np.abs(row - uncached(model, params, [], own, prompt)).max() > 1e-3


@pytest.mark.parametrize("word", [zero, lambda v: put(v, 2.0), lambda v: add(v, 1.0), lambda v: scale(v, 0.5),
                                  lambda v: transform(v, np.tanh)])  # fmt: skip
@pytest.mark.parametrize("name", ["learned", "encoder_decoder"])
def test_a_change_that_reading_does_not_make_is_an_error(word, name):
    model, params = drawn(name)
    values = {"learned": ["logits"], "encoder_decoder": ["decoder.blocks.1.attention.attend.q", "encoder.blocks.0"]}
    for value in values[name]:
        changed, own = changed_model(model, params, [word(value)], PROMPT)
        [placed] = changed.plan.placed.values()
        changed.plan.placed = {Key("blocks.7", "add", 0): placed}  # reading makes no such call
        changed.plan.rereads = False
        steps = generate_steps(changed, own, PROMPTS[:1], sources=sources_of(model), max_new_tokens=2)
        with pytest.raises(ConfigError, match=f"of {value} was not made"):
            next(steps)


@pytest.mark.parametrize("name", ["learned", "encoder_decoder"])
def test_without_a_cache_the_same_is_written(name, numpy_engine):
    model, params = drawn(name)
    value = [one for one in values_of(model)[1] if one.endswith("blocks.1.attention.attend.weights")][-1]
    changes = [scale(value, -2.0, key=[0, 2], position=slice(1, 7)), put("logits", 3.0, feature=2, position=[5])]
    model, params = changed_model(model, params, changes, PROMPT)
    settings = {"sources": sources_of(model), "max_new_tokens": 6, "sampling": Sampling(temperature=0)}
    settings["log_probabilities"] = 0
    once, again = (list(generate_steps(model, params, PROMPTS[:1], **settings, cache=cache)) for cache in (True, False))
    for one, other in zip(once, again, strict=True):
        assert one.ids == other.ids
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["learned", "encoder_decoder"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(axis=1, keepdims=True),
        lambda x: x[:, ::-1],
        lambda x: x * (np.arange(x.shape[1]) > 1)[:, None],
    ],
)
def test_a_function_of_all_positions_gets_the_whole_text(function, name, numpy_engine):
    prefix = "decoder." if name == "encoder_decoder" else ""
    change = transform(f"{prefix}blocks.1", function)
    check_same(*drawn(name), [change], [change], by_step=True)


def test_weights_that_let_a_token_see_later_ones_are_changed_in_the_whole_text_and_frozen_ones_stay(numpy_engine):
    for change in (
        put("blocks.1.attention.attend.weights", 0.3),
        add("blocks.0.attention.attend.weights", 0.2, head=1),
    ):
        check_same(*drawn("llama"), [change], [change], by_step=True)

    changes = [scale("blocks.0", 2.0, position=slice(1, None)), freeze("blocks.2.attention")]
    check_same(*drawn("learned"), changes, changes)


@pytest.mark.parametrize("per_position", [False, True])
def test_a_function_that_returns_other_entries_is_refused(per_position):
    model, params = drawn("learned")
    change = transform("blocks.1", lambda x: x.mean(axis=-1, keepdims=True), per_position=per_position)
    with pytest.raises(ShapeError, match=r"\(1, 4, 1\)"):
        cached(model, params, [change])


def test_values_of_named_positions_are_put_while_writing(numpy_engine):
    values = np.random.default_rng(3).standard_normal((4, 8))
    change = put("blocks.1", values, position=[0, 1, 5, 7])
    check_same(*drawn("learned"), [change], [change])
    mapped = add("blocks.1.attention.attend.scores", values[:3, :2], position=[4, 5, 6], key=[1, 2])
    check_same(*drawn("llama"), [mapped], [mapped])


@pytest.mark.parametrize("engine", ["numpy", "cpu", "jax"])
def test_a_function_of_one_position_sees_in_each_text_what_a_run_on_it_shows(engine, request):
    if engine == "jax":
        request.getfixturevalue("jax")
    model, params = drawn("llama")
    params = tree_map(lambda x: x.astype(np.float32), params)
    seen = []

    def function(x):
        seen.append(np.array(x))
        return np.tanh(x) + x[..., :1]

    change = transform("blocks.1", function, per_position=True, position=slice(1, None), feature=[1, 4, 6])
    with gf.use_engine(engine):
        ids, _ = cached(model, params, [change], PROMPTS)
    assert all(x.shape[0] == 1 and x.shape[2] == 3 for x in seen)
    for prompt, own in zip(PROMPTS, ids, strict=True):
        run = watch(model, params, batch_of(model, np.concatenate([prompt, own])))
        whole = np.asarray(run["blocks.1"])[:, 1:-1, [1, 4, 6]]
        found = [row for x in seen for row in x[0]]
        assert all(min(np.abs(row - one).max() for one in found) < 1e-3 for row in whole[0, : len(prompt) - 1])


@pytest.mark.parametrize("name", ["learned", "llama"])
def test_a_function_is_handed_what_a_run_hands_it(name, numpy_engine):
    model, params = drawn(name)
    first = transform("blocks.1", lambda x: np.clip(x, -0.5, 0.5), feature=[0, 3, 5], position=slice(1, 3))
    heads = transform("blocks.2.attention.attend.q", lambda x: x.mean(axis=1, keepdims=True) - 1 / x, head=1)
    tokens = transform("logits", lambda x: x[..., ::-1], feature=slice(3, None))
    for change in (first, heads, tokens):
        check_same(model, params, [change], [change])


def test_a_changed_parameter_is_used(numpy_engine):
    change = zero("blocks.1.attention.output.w")
    check_same(*drawn("learned"), [change], [change])


@pytest.fixture(scope="module")
def counting():
    return gf.train("counting", steps=60, show=False)


def test_texts_are_steered_alone_and_in_batches_by_a_difference_of_means(counting):
    change = add("logits", 50.0, position="new", feature=3)
    settings = {"changes": [change], "temperature": 0, "max_new_tokens": 6}
    alone = [counting.generate(text, **settings).text for text in ("1", "2 3", "3")]
    assert [one.text for one in counting.generate(["1", "2 3", "3"], **settings)] == alone
    assert "".join(counting.stream("2 3", **settings)) == alone[1]
    assert counting.generate("1", changes=[change], beams=1, max_new_tokens=6).text == alone[0]
    plain = counting.generate("1", temperature=0, max_new_tokens=6).text
    assert alone[0] != plain
    of_one = {**settings, "changes": [replace(change, where=replace(change.where, example=1))]}
    assert [one.text for one in counting.generate(["1", "2 3"], **of_one)] == [plain, alone[1]]

    found = steering_vector(counting, ["1 2", "3"], ["4 5"], "blocks.0")
    means = [counting.watch(text)["blocks.0"][0].mean(axis=0) for text in ("1 2", "3", "4 5")]
    np.testing.assert_allclose(found, (means[0] + means[1]) / 2 - means[2], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (add("blocks.9", 1.0), ConfigError, "blocks.9"),
        (add("block.0", 1.0), ConfigError, "blocks.0"),
        (resample("blocks.0", {"blocks.0": np.ones((1, 2, 8))}, [0]), ShapeError, "as many tokens"),
        (add("blocks.0", 1.0, position="last"), ConfigError, "last"),
        (add("blocks.0", 1.0, position=-1), ConfigError, "-1"),
        (add("blocks.0", np.ones(5)), ShapeError, "5"),
        (add("blocks.0", 1.0, example=1), LengthError, "example"),
        (add("blocks.0.attention.attend.scores", 1.0, key=-1), ConfigError, "key is -1"),
        (add("blocks.0", np.ones((7, 1))), ShapeError, "7, 1"),
        ("blocks.0", ConfigError, "no change"),
    ],
)
def test_what_cannot_be_changed_is_refused(counting, change, error, words):
    with pytest.raises(error, match=words):
        counting.generate("1", changes=[change], max_new_tokens=2)


@pytest.mark.parametrize("change", [add("blocks.0", 0.0), scale("blocks.0", 1.0), add("head.w", 0.0)])
def test_a_change_that_alters_nothing_is_reported(counting, change, caplog):
    counting.generate("1", changes=[change], max_new_tokens=2)
    assert f"the change '{change.word}' of {change.name} altered nothing" in caplog.text


def test_a_changed_text_does_not_slide_and_a_prompt_may_be_ids(counting):
    with pytest.raises(ConfigError, match="slide"):
        counting.generate("1", changes=[add("blocks.0", 1.0)], slide=True)

    ids = counting.tokenizer.encode("2 3")
    for changes in ((), [add("logits", 50.0, position="new", feature=3)]):
        settings = {"changes": changes, "temperature": 0, "max_new_tokens": 5}
        said = counting.generate("2 3", **settings)
        assert counting.generate(ids, **settings) == counting.generate([int(i) for i in ids], **settings) == said
        assert counting.generate([ids, "1"], **settings) == counting.generate(["2 3", "1"], **settings)
        assert "".join(counting.stream(ids, **settings)) == said.text
    with pytest.raises(ShapeError, match="the prompt has shape"):
        counting.generate(np.zeros((2, 2), int))
    with pytest.raises(TokenError, match="999"):
        counting.generate([999], changes=changes)
