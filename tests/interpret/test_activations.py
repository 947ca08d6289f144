"""Only what is needed: named values of a pass that ends early, and the vectors of many texts, against whole runs."""

import numpy as np
import pytest

from browser import TEXTS, tiny_model
from glassformer.core.errors import ConfigError, DataError
from glassformer.interpret import Activations, activations, fit_probe, mean, watch

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


def test_means_and_probes_read_activations():
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


def test_what_has_no_vector_per_token_is_refused():
    model = tiny_model("encoder")
    with pytest.raises(ConfigError, match="choose values with one vector per token"):
        activations(model, [TEXTS["encoder"]], ["logits"])
    with pytest.raises(DataError, match="no texts"):
        activations(model, [], ["blocks.0"])
