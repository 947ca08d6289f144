"""What public functions say of arguments that they cannot use."""

import inspect
import logging
import pickle
import traceback
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import DEBUG, GlassformerError
from glassformer.interpret import Logit, add, lens, put, scale, watch, zero
from glassformer.text import CharTokenizer

TOKENS = np.arange(4)[None]


@pytest.fixture(scope="module")
def model():
    built = gf.build("tiny-decoder")
    return gf.TrainedModel(built, built.init(0))


@pytest.fixture(scope="module")
def run(model):
    return watch(model.model, model.params, gf.Batch(TOKENS, TOKENS))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model, run: gf.interpret.head_circuit(run, "OV", layer=0, head=0), "model is a Run; .*gf.load"),
        (lambda model, run: gf.interpret.composition(run), "takes TrainedModel"),
        (lambda model, run: gf.interpret.copying_score(run, None), "takes TrainedModel"),
        (lambda model, run: lens(run, at=3), r"at is 3; lens takes a text"),
        (lambda model, run: lens(run, at=[]), "no point"),
        (lambda model, run: lens(run, points=3), "no argument 'points'.*positions"),
        (lambda model, run: gf.interpret.watch(model.model), "missing .*'params'.*watch\\(model, params, batch"),
        (lambda model, run: gf.interpret.detect_heads(model.model), "missing .*'params'"),
        (lambda model, run: gf.interpret.detect_heads(model.model, None), "params is None; .*init"),
        (lambda model, run: gf.interpret.head_scores(run, layers=[9]), "a layer is 9"),
        (lambda model, run: gf.interpret.attention_maps(run, 9), "no example 9"),
        (lambda model, run: gf.interpret.layer_statistics(run, "x"), "no stack 'x'"),
        (lambda model, run: gf.interpret.attribute(run, 3), "target is 3; attribute takes Logit"),
        (lambda model, run: gf.interpret.patch_heads(run, model, Logit(3)), "source is a TrainedModel"),
        (lambda model, run: gf.interpret.ablate_heads(run, targets="x"), "targets is 'x'; ablate takes Logit"),
        (lambda model, run: gf.Loop(), "Loop: missing"),
        (lambda model, run: gf.training.Adam(lr=3), "Adam has no argument 'lr'"),
        (lambda model, run: gf.data.Examples([1]), "rows is \\[1\\]; Examples takes Batch"),
        (lambda model, run: gf.interpret.linear_cka(run, run), "cannot use what it was given"),
        (lambda model, run: zero(3), "name is 3"),
        (lambda model, run: zero("blocks.0", heads=3), "no argument 'heads'.*'head'"),
        (lambda model, run: put("blocks.0", "x"), "change 'put' of blocks.0 is 'x'"),
        (
            lambda model, run: add("blocks.0", np.full(3, np.nan)),
            "the value of add\\('blocks.0', …\\) has 3 NaN among 3",
        ),
        (lambda model, run: scale("blocks.0", np.nan), "the value of scale\\('blocks.0', …\\) is NaN"),
        (lambda model, run: gf.load(), "missing"),
        (lambda model, run: gf.hvp(model.model, "x", gf.Batch(TOKENS, TOKENS), "x"), "params is 'x'"),
        (lambda model, run: gf.params("gpt2", batch=-1), "batch is -1"),
        (lambda model, run: gf.settings([]), "no settings"),
        (lambda model, run: gf.set_engine(3), "there is no engine 3"),
        (lambda model, run: gf.use_engine("jx"), "'jax'"),
        (lambda model, run: watch(model), "watch: missing .*'batch'"),
        (lambda model, run: watch(model, model.params), "batch is a dict"),
        (lambda model, run: gf.interpret.Cards(model), "run is a TrainedModel; Cards takes Run.*model.watch"),
        (lambda model, run: gf.ops.softmax(np.ones((2, 3)), mask=np.ones((4, 4), bool)), "does not broadcast"),
        (lambda model, run: model.model.forward(model.params, np.array([[999]])), "999"),
        (lambda model, run: model.model.forward({}, TOKENS), "lack embedding"),
        (lambda model, run: model.model.forward(3, TOKENS), "params is 3; Decoder.forward takes dict"),
        (lambda model, run: gf.ops.softmax(), "softmax: missing .*'x'"),
        (lambda model, run: gf.ops.add(TOKENS, TOKENS, nonsense=1), "add has no argument 'nonsense'"),
        (lambda model, run: gf.ops.layer_norm_backward(np.ones(3), 3), "saved is 3; .* takes LayerNormSaved"),
        (lambda model, run: gf.ops.activation_pair(3), "no activation 3"),
        (lambda model, run: gf.Decoder(3), "config is 3; Decoder takes DecoderConfig"),
        (lambda model, run: gf.plots.attention_grid(np.ones((2, 3))), r"shape \(2, 3\)"),
    ],
)
def test_wrong_arguments_get_one_sentence_and_a_short_traceback(call, words, model, run, monkeypatch):
    monkeypatch.delenv(DEBUG, raising=False)
    with pytest.raises(GlassformerError, match=f"(?s){words}") as caught:
        call(model, run)
    trace = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert len("".join(traceback.format_exception(trace)).splitlines()) <= 10


@pytest.mark.parametrize("module", [gf.data, gf.interpret, gf.plots, gf.training], ids=lambda module: module.__name__)
def test_every_public_function_refuses_a_call_without_its_arguments(module):
    functions = {name: one for name in module.__all__ if inspect.isfunction(one := getattr(module, name))}
    assert len(functions) > 5
    for name, function in functions.items():
        given = inspect.signature(function).parameters.values()
        if any(one.default is one.empty and one.kind is not one.VAR_POSITIONAL for one in given):
            with pytest.raises(GlassformerError, match=f"{name}: missing"):
                function()
        with pytest.raises(GlassformerError, match=f"{name} has no argument 'nonsense'"):
            function(nonsense=1)
        assert pickle.loads(pickle.dumps(function)) is function


def test_a_trained_model_stands_for_a_model_and_its_parameters(model):
    batch = gf.Batch(np.concatenate([TOKENS, TOKENS[:, ::-1]]), np.concatenate([TOKENS, TOKENS]))
    named = replace(model, tokenizer=CharTokenizer("abcdefgh"))
    assert watch(named, batch).tokens[1] == named.watch(batch).tokens[1] == ["d", "c", "b", "a"]
    assert gf.interpret.attention_maps(watch(named, batch))["decoder"].queries == ["a", "b", "c", "d"]
    assert "'d'" in repr(gf.interpret.exciting_inputs(named, [batch], layer=0))
    for function, rest in [
        (gf.interpret.detect_heads, ()),
        (gf.interpret.position_table, ()),
        (gf.per_example_gradients, (batch,)),
        (gf.gradient_noise_scale, (batch,)),
        (gf.hvp, (batch, model.params)),
    ]:
        ours, theirs = pickle.dumps(function(model, *rest)), pickle.dumps(function(model.model, model.params, *rest))
        assert ours == theirs


def test_functions_that_were_given_keep_their_frames_and_errors_of_others_stay_as_they_are(run):
    def clamped(x):
        return gf.ops.linear(x, np.ones((3, 3)), None)

    with pytest.raises(GlassformerError) as caught:
        run.changed(gf.interpret.transform("blocks.0", clamped))
    assert "clamped" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]

    with pytest.raises(ZeroDivisionError):
        run.changed(gf.interpret.transform("blocks.0", lambda x: x / 0 if False else 1 // 0))


@pytest.fixture(scope="module")
def counting():
    return gf.train("counting", steps=20, show=False)


def test_changes_come_one_by_one_or_as_lists(counting, run):
    change, settings = add("blocks.0", 1.0), {"temperature": 0, "max_new_tokens": 3}
    text = counting.generate("1", changes=[change], **settings).text
    assert counting.generate("1", changes=change, **settings).text == text
    assert "".join(counting.stream("1", changes=change, **settings)) == text
    one, two = zero("blocks.0.attention"), zero("blocks.1.attention")
    assert run.changed([one, two]).loss == run.changed(one, two).loss


@pytest.mark.parametrize("position", [500, slice(40, None), "new"])
def test_a_change_that_cannot_be_made_while_writing_is_refused(position, counting):
    change = add("blocks.0", 1.0, position=position)
    with pytest.raises(GlassformerError, match=r"'add' of blocks.0 is never made"):
        counting.generate("1", changes=change, max_new_tokens=1)


def test_a_change_that_was_not_reached_is_named(counting, caplog):
    change = add("blocks.0", 1.0, position=counting.config.context - 1)
    with caplog.at_level(logging.WARNING, logger="glassformer"):
        list(counting.stream("1", changes=change, stop=" "))
    assert "'add' of blocks.0 altered nothing: the model read 1 tokens" in caplog.text


def test_errors_of_functions_that_the_library_was_given_stay_theirs():
    def loss(logits, targets):
        first, second = logits.shape, *targets.shape, 3
        return first, second

    with pytest.raises(ValueError, match="unpack") as caught:
        gf.train("majority", steps=1, show=False, loss=(loss, loss))
    assert not isinstance(caught.value, GlassformerError)
