"""Texts in, tokens out: watched texts are the inputs that a model embeds, results show tokens, texts name logits."""

from dataclasses import replace

import numpy as np
import pytest

from browser import TEXTS, tiny_model
from glassformer import ops
from glassformer.api.loading import read_model
from glassformer.api.trained_model import TrainedModel
from glassformer.core.errors import ConfigError, GlassformerError, LengthError, TokenError
from glassformer.interpret import (
    Logit,
    ablate_heads,
    attribute,
    exciting_inputs,
    gradients,
    lens,
    patch_stream,
    scale,
    watch,
)  # fmt: skip
from glassformer.interpret.reading import answers
from glassformer.plots import lens_map, patching_map
from glassformer.runs.start import new_session
from published_models import pulled
from runs import TINY

pytestmark = pytest.mark.usefixtures("numpy_engine")
TEXT = TEXTS["decoder"]


@pytest.fixture(scope="module")
def model():
    return tiny_model("decoder")


@pytest.fixture(scope="module")
def run(numpy_engine, model):
    return model.watch(TEXT)


def test_a_watched_text_is_what_is_embedded():
    model = read_model(pulled("minilm"))
    texts = ["A cat sleeps.", "The dog is reading a book about naval warfare!"]
    run = model.watch(texts)
    assert run.tokens[0][0] == "[CLS]"
    assert run.tokens[0][5:] == ["[SEP]", *[""] * (len(run.tokens[0]) - 6)]
    pooled = ops.mean_pool(run["vectors"], mask=run.batch.mask)[0]
    np.testing.assert_allclose(pooled / np.linalg.norm(pooled, axis=-1, keepdims=True), model.embed(texts), atol=2e-6)


@pytest.mark.parametrize("kind", TEXTS)
def test_padded_texts_are_read_as_alone(kind):
    model, text = tiny_model(kind), TEXTS[kind]
    short = text[: len(text) // 2] if kind != "encoder-decoder" else text
    together = model.watch([text, short])
    for example, alone in enumerate(map(model.watch, (text, short))):
        real = together.logits[example] if alone.logits.ndim == 2 else together.logits[example, : alone.logits.shape[1]]
        np.testing.assert_allclose(real, alone.logits[0], atol=1e-12)
    if kind == "decoder":
        assert together.batch.targets[1, -1] == ops.IGNORE
        last = Logit(3, example=1).value(together)
        np.testing.assert_allclose(last, Logit(3).value(model.watch(short)), atol=1e-12)
        np.testing.assert_allclose(lens(together, positions=-1).logits[-1, 1, 0, 3], last)


def test_a_decoder_reads_its_start_token(model):
    untold = replace(model, task_maker=None, start_id=2)
    assert untold.batch(TEXT).tokens[0].tolist() == [2, *model.batch(TEXT).tokens[0]]


def test_results_show_tokens(model, run):
    x, y = (run.token_id(letter) for letter in "xy")
    of, named = Logit("x", against="y"), "logit of &#x27;x&#x27; − logit of &#x27;y&#x27;"
    assert of.value(run) == Logit(x, against=y).value(run)
    assert named in attribute(run, of)._repr_html_()
    assert "logit of 'x' − logit of 'y'\npart " in repr(attribute(run, of))
    assert named in ablate_heads(run.changed(scale("embedding.tokens.table", 2.0)), targets=of)._repr_html_()
    seen = lens(run)
    np.testing.assert_array_equal(seen.ranks("x"), seen.ranks(x))
    np.testing.assert_array_equal(seen.probabilities(["x"] * len(TEXT)), seen.probabilities(x))
    likeliest, chance = (part[-1, 0, -1, 0] for part in seen.top(1))
    assert f"{run.label(likeliest)!r} {100 * chance:.1f} %" in repr(seen)
    found = patch_stream(run, model.watch(TEXT.replace("x", "y")), of)
    assert named in found._repr_html_()
    assert "position 4 &#x27;x&#x27;" in found._repr_html_()
    said = [
        text.get_text() for figure in (lens_map(seen), patching_map(found)) for text in figure.axes[0].get_xticklabels()
    ]
    assert said.count("x") == 2
    excited = exciting_inputs(model.model, model.params, [run.batch], layer=0, labels=run.labels)
    assert f"{run.label(excited.tokens[0, 0])!r}: " in repr(excited)


def test_runs_without_a_tokenizer_show_ids(run):
    bare = watch(run.model, run.params, run.batch)
    assert Logit(7, against=3).label(bare) == "logit of 7 − logit of 3"
    with pytest.raises(ConfigError, match="no tokenizer to read 'x' with"):
        lens(bare).ranks("x")


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("xy", "'xy' is 2 tokens: 'x' #{x}, 'y' #{y}"),
        ("", "0 tokens: none"),
        ("é", "é"),
        ("#999", "there is no logit 999"),
    ],
)
def test_texts_that_are_no_token_are_refused(token, message, run):
    numbers = {letter: run.token_id(letter) for letter in "xy"}  # each Python carries another text to learn from
    with pytest.raises(TokenError, match=message.format(**numbers)):
        Logit(token).value(run)


def test_unknown_words_are_refused():
    model = read_model(pulled("minilm"))
    with pytest.raises(TokenError, match="does not know '☃': it reads "):
        model.watch("A cat").token_id("☃")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, run: watch(model), r"missing .*'batch'.*model\.watch"),
        (lambda model, run: watch("text"), "model is 'text'; watch takes Model"),
        (lambda model, run: model.watch(3), "3 is no text"),
        (lambda model, run: model.batch([]), "0 texts"),
        (lambda model, run: run.changed("blocks.0"), "'blocks.0' is no change"),
        (lambda model, run: run[3], "no value 3"),
        (lambda model, run: gradients("x"), "run is 'x'; gradients takes Run"),
        (lambda model, run: gradients(run, "x"), "of is 'x'; .*Logit"),
        (lambda model, run: gradients(run, changes=["x"]), r"changes is \['x'\]; .*zero"),
        (lambda model, run: lens(model), "run is a TrainedModel; lens takes Run"),
        (lambda model, run: Logit(3.5), "3.5 names no token"),
        (lambda model, run: Logit(3, position="x"), "whole number"),
    ],
)
def test_wrong_kinds_get_a_remedy(call, message, model, run):
    with pytest.raises(GlassformerError, match=f"(?s){message}"):
        call(model, run)


@pytest.fixture(scope="module")
def sorter(numpy_engine):
    return TrainedModel.of(new_session("sort", settings={**TINY["sort"], "steps": 1}).trained)


def test_an_answer_stands_behind_its_question_or_is_not_taken(sorter):
    own, other = sorter.batch("012012"), sorter.batch("012012", "22")
    assert answers(sorter)
    assert own.tokens.shape == (1, 11)
    assert other.tokens.tolist() == [[0, 1, 2, 0, 1, 2, 2, 2]]
    assert other.targets.tolist() == [[1, 2, 0, 1, 2, 2, 2, ops.IGNORE]]

    model = tiny_model("encoder-decoder")
    text = TEXTS["encoder-decoder"]
    batch = model.batch(text, "2001")
    np.testing.assert_array_equal(batch.source, model.batch(text).source)
    assert model.answer_tokenizer.decode(batch.tokens[0, 1:]) == "2001"

    model = tiny_model("decoder")
    assert not answers(model)
    assert not answers(tiny_model("encoder"))
    with pytest.raises(ConfigError, match="gives no answers apart from its text"):
        model.batch(TEXTS["decoder"], "x")
    with pytest.raises(LengthError, match="the text with its answer has 18 tokens"):
        sorter.batch("012012", "0" * 12)
