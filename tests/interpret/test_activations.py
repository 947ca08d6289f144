"""Vectors over many texts, and the inputs that excite a neuron most."""

import numpy as np
import pytest

from browser import TEXTS, tiny_model
from glassformer import Batch
from glassformer.core.errors import ConfigError, DataError, LengthError
from glassformer.interpret import Activations, activations, exciting_inputs, fit_probe, mean, watch

pytestmark = pytest.mark.usefixtures("numpy_engine")


def test_values_that_are_kept_are_those_of_the_whole_run(run):
    kept = watch(run.model, run.params, run.batch, names=list(run))
    assert set(kept) == set(run)
    for name, value in run.items():
        np.testing.assert_array_equal(kept[name], value, err_msg=name)
        assert not kept[name].flags.writeable


def test_a_pass_ends_where_it_is_told(decoder):
    model, params, batch = decoder
    whole = watch(model, params, batch)
    early = watch(model, params, batch, until="blocks.0")
    assert "blocks.0.attention.attend.weights" in early._ipython_key_completions_()
    np.testing.assert_array_equal(early["blocks.0"], whole["blocks.0"])
    with pytest.raises(ConfigError, match=r"blocks\.1 was not kept"):
        early["blocks.1"]
    with pytest.raises(ConfigError, match="there is no value"):
        early["blocks.9"]
    with pytest.raises(ConfigError, match=r"logits is computed after blocks\.0"):
        watch(model, params, batch, names=["logits"], until="blocks.0")
    # What comes later did not run: these parameters would have made it fail.
    broken = {**params, "blocks": [params["blocks"][0], None]}
    other = batch._replace(tokens=batch.tokens[:, ::-1])
    again = type(early)(**{**vars(early), "params": broken}).again(other)
    np.testing.assert_array_equal(again["blocks.0"], watch(model, params, other)["blocks.0"])


@pytest.mark.parametrize("architecture", TEXTS)
def test_vectors_of_many_texts_are_those_of_each(architecture, tmp_path):
    model, text = tiny_model(architecture), TEXTS[architecture]
    texts = [text, text[:-1], text[:4], text[1:]]
    name = "encoder.blocks.0.feed_forward" if architecture == "encoder-decoder" else "blocks.1"
    calls = []
    found = activations(model, texts, [name], tmp_path / "x.npz", batch_size=3, progress=lambda *n: calls.append(n))
    each = [model.watch(one)[name][0] for one in texts]
    np.testing.assert_allclose(found[name], np.concatenate(each), atol=1e-12)
    np.testing.assert_array_equal(found.examples, np.repeat(range(4), [len(x) for x in each]))
    np.testing.assert_array_equal(found.positions, np.concatenate([np.arange(len(x)) for x in each]))
    tokens = [np.asarray(getattr(model.batch(one), "source" if "encoder." in name else "tokens"))[0] for one in texts]
    np.testing.assert_array_equal(found.tokens, np.concatenate(tokens))
    np.testing.assert_array_equal(found.last, np.cumsum([len(x) for x in each]) - 1)
    assert calls == [(3, 4), (4, 4)]
    in_memory = activations(model, iter(texts), [name], batch_size=3)
    reopened = Activations(np.load(tmp_path / "x.npz"))
    for other in (in_memory, reopened):
        np.testing.assert_array_equal(other[name], found[name])
        np.testing.assert_array_equal(other.positions, found.positions)


def test_means_and_probes_read_activations_that_have_a_vector_per_token():
    model, text = tiny_model("decoder"), TEXTS["decoder"]
    found = activations(model, [text, text[:4]], ["blocks.0"])
    assert set(activations(model, text, ["blocks.0"]).examples) == {0}
    run = model.watch(text)
    changed = run.changed(mean("blocks.0", found))
    np.testing.assert_allclose(
        changed["blocks.0"][0], np.tile(found["blocks.0"].mean(axis=0), (len(run["blocks.0"][0]), 1)), atol=1e-12
    )
    probe = fit_probe(found["blocks.0"], found.examples, classes=2)
    assert 0.5 <= probe.accuracy(found["blocks.0"], found.examples) <= 1

    model = tiny_model("encoder")
    with pytest.raises(ConfigError, match="choose values with one vector per token"):
        activations(model, [TEXTS["encoder"]], ["logits"])
    with pytest.raises(DataError, match="no texts"):
        activations(model, [], ["blocks.0"])


def data_for(model, batch, rng):
    """Two batches of other lengths, the second one padded."""
    vocab = min(model.config.vocab, 5)
    other = None if batch.source is None else rng.integers(0, 7, (3, 4))
    return [batch._replace(targets=None), Batch(rng.integers(0, vocab, (3, 4)), source=other)]


@pytest.mark.parametrize("name", ["encoder", "decoder", "encoder_decoder"])
def test_the_largest_values_of_all_data_are_found(name, request, rng):
    model, params, batch = request.getfixturevalue(name)
    data = data_for(model, batch, rng)
    found = exciting_inputs(model, params, data, layer=1, count=3)
    prefix = "decoder.blocks" if name == "encoder_decoder" else "blocks"
    every = []
    for one in data:
        x = watch(model, params, one)[f"{prefix}.1.feed_forward.down.x"][:, -one.tokens.shape[1] :]
        every.append(x[np.ones(one.tokens.shape, bool) if one.mask is None else one.mask])
    every = np.concatenate(every)
    assert np.array_equal(found.values, -np.sort(-every, axis=0)[:3].T)
    assert np.allclose(found.share, (every > 0).mean(axis=0))
    for neuron in (0, 31):
        for rank in range(3):
            number, example, position = (x[neuron, rank] for x in (found.batches, found.examples, found.positions))
            tokens = data[number].tokens[example]
            assert found.tokens[neuron, rank] == tokens[position]
            assert np.array_equal(
                found.window(neuron, rank, data, before=2), tokens[max(0, position - 2) : position + 1]
            )


def test_layers_that_read_the_source_are_asked_by_their_stack(encoder_decoder, rng):
    model, params, batch = encoder_decoder
    data = data_for(model, batch, rng)
    steps = []
    found = exciting_inputs(
        model, params, data, layer=0, count=2, stack="encoder", progress=lambda *done: steps.append(done)
    )
    number, example, position = (x[4, 1] for x in (found.batches, found.examples, found.positions))
    assert found.tokens[4, 1] == data[number].source[example, position]
    assert found.window(4, 1, data, before=0) == [found.tokens[4, 1]]
    assert steps == [(1, 2), (2, 2)]


def test_what_is_not_there_is_refused(decoder):
    model, params, batch = decoder
    with pytest.raises(LengthError, match="there is no feed-forward layer 2"):
        exciting_inputs(model, params, [batch], layer=2)
    with pytest.raises(LengthError, match="there is no data"):
        exciting_inputs(model, params, [], layer=0)
    with pytest.raises(ConfigError, match="count is 0"):
        exciting_inputs(model, params, [batch], layer=0, count=0)
    with pytest.raises(ConfigError, match="no stack 'encoder'"):
        exciting_inputs(model, params, [batch], layer=0, stack="encoder")
    with pytest.raises(LengthError, match="there is no input 9 of neuron 0"):
        exciting_inputs(model, params, [batch], layer=0).window(0, 9, [batch])
