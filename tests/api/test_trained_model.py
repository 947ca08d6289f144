"""What a trained model can do by its architecture, and what it says where it cannot."""

import copy
import pickle

import numpy as np
import pytest

import glassformer as gf
from fine_tuning import published
from glassformer.api.loading import load
from glassformer.core.errors import ConfigError, DataError, LengthError, ShapeError
from glassformer.weights.sentence import embed
from runs import TINY, write_data

pytestmark = pytest.mark.usefixtures("numpy_engine")

QUICK = {"steps": 2, "show": False}


@pytest.fixture(scope="module")
def encoder():
    return gf.train("majority", **TINY["majority"], **QUICK)


@pytest.fixture(scope="module")
def decoder():
    return gf.train("counting", **QUICK)


@pytest.fixture(scope="module")
def both():
    return gf.train("dates", **TINY["dates"], **QUICK)


def test_writers_write_as_language_models_do_by_their_parameters(decoder, both, tmp_path):
    for model, prompt in ((decoder, "1 2"), (both, "3. mai 2001")):
        answer = model.generate(prompt, max_new_tokens=4, seed=2)
        assert answer == load(gf.save(model, tmp_path / model.config.architecture)).generate(
            prompt, max_new_tokens=4, seed=2
        )
        assert "".join(model.stream(prompt, max_new_tokens=4, seed=2)) == answer.text
    assert len(decoder.generate(["1", "2"], max_new_tokens=2)) == 2

    before = decoder.generate("1 2", max_new_tokens=1, temperature=0, log_probabilities=0).log_probabilities
    kept = decoder.params["embedding"]["tokens"]["table"].copy()
    decoder.params["embedding"]["tokens"]["table"][:] = 0
    after = decoder.generate("1 2", max_new_tokens=1, temperature=0, log_probabilities=0).log_probabilities
    decoder.params["embedding"]["tokens"]["table"][:] = kept
    assert before != after


def test_classes_have_probabilities_as_of_a_sequence_alone(encoder):
    rows = np.array([[0, 1, 2, 0, 0, 1, 0, 0], [2, 2, 2, 2, 2, 2, 2, 1]])
    found = encoder.classify(rows)
    logits, _ = encoder.model.forward(encoder.params, rows)
    want = gf.ops.softmax(logits)[0]
    for one, probabilities in zip(found, want, strict=True):
        np.testing.assert_allclose(list(one.probabilities.values()), probabilities, rtol=1e-5)
        assert one.index == probabilities.argmax()
        assert one.probability == one.probabilities[one.label]

    texts = ["012", "00112220", "2"]
    together = encoder.classify(texts)
    for text, found in zip(texts, together, strict=True):
        assert found.probability == pytest.approx(encoder.classify(text).probability, rel=1e-5)


def test_texts_have_vectors(encoder, tmp_path):
    assert encoder.embed(["012", "2"]).shape == (2, 8)
    bert = gf.load(published("bert", tmp_path / "bert"))
    np.testing.assert_array_equal(bert.embed("dog"), embed(bert, ["dog"])[0])
    with pytest.raises(LengthError, match="a text is empty"):
        bert.embed(["dog", ""])
    with pytest.raises(ConfigError, match="an encoder without a head for classes"):
        bert.classify("dog")


def test_what_an_architecture_cannot_do_and_inputs_that_make_no_sense_are_refused(encoder, decoder):
    for call in (encoder.generate, encoder.stream, encoder.chat):
        with pytest.raises(ConfigError, match="does not write text") as error:
            call("0")
        assert error.value.hint
    with pytest.raises(ConfigError, match="only encoders give vectors"):
        decoder.embed("1")
    with pytest.raises(ConfigError, match="tells no classes apart"):
        decoder.classify("1")
    with pytest.raises(ConfigError, match="no chat template"):
        decoder.chat("Hello")

    for wrong in ([0.5, 1.0], np.zeros((2, 2, 2), int)):
        with pytest.raises(LengthError, match="one input has shape"):
            encoder.classify(wrong)
    with pytest.raises(LengthError, match="the input has 99 tokens but this model reads at most"):
        encoder.classify([0] * 99)
    for wrong in ("", [[0], []]):
        with pytest.raises(LengthError, match="the input is empty"):
            encoder.classify(wrong)
    with pytest.raises(LengthError, match="nothing to classify"):
        encoder.classify([])


def test_evaluation_measures_any_data_that_fits(decoder, tmp_path):
    assert decoder.evaluate("counting") == decoder.evaluate()
    text = gf.train(write_data("text", tmp_path), **TINY["text"], **QUICK)
    own = text.evaluate(write_data("text", tmp_path), context=16)
    assert own == text.evaluate()
    ids = text.tokenizer.encode("The quick brown fox jumps over the lazy dog.")
    assert text.evaluate(ids).targets == len(ids) - 1
    with pytest.raises(ConfigError, match="has no data of its own"):
        gf.TrainedModel(text.config, text.params, text.tokenizer).evaluate()
    with pytest.raises(ConfigError, match="context is an option of tasks"):
        text.evaluate(ids, context=3)
    with pytest.raises(ConfigError, match="context is an option of a task"):
        text.evaluate(context=3)
    with pytest.raises(ConfigError, match="context is an option of tasks"):
        text.evaluate(text.task, context=3)
    bare = gf.TrainedModel(text.config, text.params)
    assert bare.evaluate(ids).loss == text.evaluate(ids).loss
    assert len(gf.train(np.tile(ids[:8], (20, 1)), bare, **QUICK).metrics) == QUICK["steps"]
    with pytest.raises(DataError, match="there is no task and no file"):
        text.evaluate("nowhere")
    with pytest.raises(ConfigError, match="has a vocabulary of its own"):
        decoder.evaluate("majority")


def test_a_given_execution_replaces_that_of_the_model_and_what_is_no_model_is_refused(decoder):
    how = gf.Execution(remat=True)
    assert gf.TrainedModel(decoder.model, decoder.params, execution=how).model.execution == how

    with pytest.raises(ConfigError, match=r"^3 is no model"):
        gf.TrainedModel(3, 4)
    for params in (4, None, [decoder.params]):
        with pytest.raises(ConfigError, match=r"^params is "):
            gf.TrainedModel(decoder.model, params)
    without = {name: part for name, part in decoder.params.items() if name != "blocks"}
    for params, lacks in (({}, "embedding.tokens.table"), (without, "blocks.0")):
        for model in (decoder.model, decoder.config):
            with pytest.raises(ShapeError, match=f"the parameters lack .*{lacks}"):
                gf.TrainedModel(model, params)


def test_what_is_not_known_is_said(decoder):
    bare = gf.TrainedModel(decoder.config, decoder.params)
    with pytest.raises(ConfigError, match="has no task that says how to ask it"):
        bare.ask("1")
    with pytest.raises(ConfigError, match="has no task that says how to ask it"):
        bare.samples()
    with pytest.raises(LengthError, match="the input has"):
        decoder.ask("1 2 3 4 5 6 " * 50)
    with pytest.raises(ConfigError, match="nothing is known about the training"):
        bare.plot()
    with pytest.raises(gf.GlassformerError, match="this model has no tokenizer"):
        bare.generate("1")
    with pytest.raises(ConfigError, match="there is no format 'onnx'"):
        decoder.export("nowhere", format="onnx")
    assert repr(decoder).startswith("TrainedModel(decoder, ")


def test_what_is_of_another_type_is_said(decoder, encoder):
    for method, wrong in ((decoder.generate, 3), (decoder.generate, ["1", 2]), (decoder.ask, 3), (encoder.embed, 3)):
        with pytest.raises(DataError, match="is no text"):
            method(wrong)
    for nothing in (5, None, {0, 1}, {"a": 1}):
        with pytest.raises(gf.GlassformerError, match="there is nothing to classify"):
            encoder.classify(nothing)
    with pytest.raises(ConfigError, match="the place of a model is 3"):
        gf.load(3)
    with pytest.raises(ConfigError, match="lora is '8'"):
        gf.train("majority", encoder, lora="8", steps=1, show=False)
    with pytest.raises(ConfigError, match="holds out data of its own"):
        gf.train("majority", encoder, validation=np.zeros((2, 3), int), steps=1, show=False)


def test_exports_are_read_again(tmp_path):
    sizes = {"width": 16, "heads": 2, "layers": 1, "feed_forward": 32, "context": 8, "dropout": 0.0}
    model = gf.train(write_data("text", tmp_path), "gpt2", **sizes, **QUICK)
    model.export(tmp_path / "hf")
    tokens = np.array([[1, 2, 3]])
    logits, _ = model.model.forward(model.params, tokens)
    files = {name: model.export(tmp_path / f"{name}.gguf", weights=name)[0] for name in ("f32", "f16")}
    for path, error in ((tmp_path / "hf", 1e-6), (files["f32"], 1e-6), (files["f16"], 1e-2)):
        again = gf.load(path)
        np.testing.assert_allclose(again.model.forward(again.params, tokens)[0], logits, atol=error)
    assert files["f16"].stat().st_size < files["f32"].stat().st_size
    with pytest.raises(ConfigError, match="weights is a setting of GGUF files"):
        model.export(tmp_path / "folder", weights="f16")


def test_models_are_pickled_and_copied(encoder):
    named, bare = encoder, gf.train((np.zeros((20, 4), int), np.zeros(20, int)), **QUICK)
    for model in (named, bare):
        again, copied = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
        for other in (again, copied):
            assert other.classify([0, 0]) == model.classify([0, 0])
        copied.params["embedding"]["tokens"]["table"][:] = 7
        assert not (model.params["embedding"]["tokens"]["table"] == 7).all()
    assert pickle.loads(pickle.dumps(named)).evaluate() == named.evaluate()
    assert copy.deepcopy(bare).task is copy.copy(bare).task is bare.task


@pytest.mark.parametrize("pooling", ["mean", "cls", "first"])
def test_a_classifier_embeds_as_it_pools(pooling):
    model = gf.train("majority", pooling=pooling, **TINY["majority"], **QUICK)
    _, saved = model.model.forward(model.params, model.tokenizer.encode("00112220")[None])
    pooled = saved["classifier"].x[0]
    np.testing.assert_allclose(model.embed("00112220"), pooled / np.linalg.norm(pooled), rtol=1e-5)


def test_a_text_becomes_a_batch_and_a_run(encoder, both):
    np.testing.assert_array_equal(encoder.batch("0012", "2").targets, [2])
    assert encoder.watch("0012").logits.shape == (1, 3)
    batch = both.batch("3. mai 2001", "2001")
    assert both.answer_tokenizer.decode(batch.tokens[0, 1:]) == "2001"
    assert batch[0:1].source.shape == batch.source.shape
