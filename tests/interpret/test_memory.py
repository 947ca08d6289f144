"""Runs that do not fit into memory are refused before they begin; parts of one are kept instead."""

import re

import numpy as np
import pytest

import gguf_files
import glassformer as gf
from browser import TEXTS, state, tiny_explorer, tiny_model
from glassformer.core.errors import GlassformerError, LengthError
from glassformer.core.quantized import Quantized, quantize
from glassformer.core.tree import flatten, map_named
from glassformer.interpret import gradients, memory, watch, zero
from glassformer.models import Batch
from glassformer.web import run_session
from glassformer.web.explorer import Explorer
from glassformer.web.offers import Offer
from glassformer.web.router import ask, load_routes
from glassformer.web.state import read_state


@pytest.mark.parametrize("architecture", TEXTS)
def test_the_count_is_what_a_run_keeps(architecture, numpy_engine):
    own = tiny_model(architecture)
    batch = own.batch(TEXTS[architecture])
    run = watch(own.model, own.params, batch)
    kept = {id(a): a.nbytes for call in run.calls for a in call.outputs if isinstance(a, np.ndarray)}
    said = memory.run_bytes(own.model.config, len(batch.tokens), memory.length_of(batch), 8)
    assert 0.8 * sum(kept.values()) < said < 4 * sum(kept.values())


def test_a_text_that_does_not_fit_is_refused_with_the_length_that_would(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 3 * 2**30)
    config = tiny_model("decoder").model.config
    memory.check_fits(config, Batch(np.zeros((1, 64), int)), 8)
    words = r"a run on 65,536 tokens take about .* GiB, and 3\.0 GiB of memory are free"
    with pytest.raises(LengthError, match=words) as refused:
        memory.check_fits(config, Batch(np.zeros((1, 65_536), int)), 8)
    fitting = int(re.match("[0-9,]+", refused.value.hint)[0].replace(",", ""))
    memory.check_fits(config, Batch(np.zeros((1, fitting), int)), 8)
    with pytest.raises(LengthError):
        memory.check_fits(config, Batch(np.zeros((1, fitting + 1), int)), 8)


def test_runs_their_gradients_and_changes_are_refused_but_not_parts_of_them(monkeypatch):
    own = tiny_model("decoder")
    batch = own.batch(TEXTS["decoder"])
    run = watch(own.model, own.params, batch)
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: 1)
    for refused in (
        lambda: watch(own.model, own.params, batch),
        lambda: gradients(run),
        lambda: run.changed(zero("blocks.0")),
    ):
        with pytest.raises(LengthError, match="tokens take about"):
            refused()
    name = "blocks.1.attention.attend.weights"
    assert watch(own.model, own.params, batch, names=[name])[name].tobytes() == run[name].tobytes()


def test_a_system_that_does_not_say_what_is_free_is_believed_to_have_it(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "nothing")
    assert memory.free_bytes() is None
    memory.check_fits(tiny_model("decoder").model.config, Batch(np.zeros((1, 65_536), int)), 8)
    (tmp_path / "nothing").write_text("MemTotal: 5 kB\nMemAvailable: 3 kB\n")
    assert memory.free_bytes() == 3072


def test_values_of_weights_in_blocks_are_those_of_the_unpacked_ones(numpy_engine):
    model = gf.build(gf.DecoderConfig(vocab=7, width=32, heads=2, layers=2, context=8))
    packing = {"w": lambda x: quantize(x.T, "Q8_0").T, "table": lambda x: quantize(x, "Q8_0")}
    params = map_named(lambda name, x: packing.get(name.rpartition(".")[2], lambda x: x)(x), model.init(0))
    batch = Batch(np.random.default_rng(0).integers(0, 7, (2, 5)))
    run = watch(model, params, batch)
    assert not any(isinstance(leaf, Quantized) for leaf in flatten(run.params).values())
    kept = watch(model, params, batch, names=list(run))
    assert any(isinstance(leaf, Quantized) for leaf in flatten(kept.params).values())
    assert all(kept[name].tobytes() == run[name].tobytes() for name in run)


def test_the_explorer_unpacks_the_weights_that_a_file_stores_in_blocks_once(monkeypatch, tmp_path, numpy_engine):
    arrays = gguf_files.llama_tensors(np.random.default_rng(0), width=32, hidden=64)
    settings = gguf_files.llama_settings(embedding_length=32, feed_forward_length=64, **{"rope.dimension_count": 8})
    types = {name: "Q8_0" for name, array in arrays.items() if array.ndim == 2}
    path = tmp_path / "model.gguf"
    gguf_files.write(path, "llama", {**settings, **gguf_files.byte_tokenizer()}, arrays, types)
    explorer = Explorer({"packed": Offer("packed", "a file", "published", str(path))})
    monkeypatch.setattr(run_session, "PRECISE", 0)
    run, opened = explorer.session(read_state({"model": "packed", "text": "one two"})).run, explorer.opened("packed")
    assert not any(isinstance(leaf, Quantized) for leaf in flatten(opened.model.params).values())
    trees = [opened.model.params, opened.params, run.params]
    assert len({id(flatten(tree)["embedding.tokens.table"]) for tree in trees}) == 1
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: 1)
    with pytest.raises(LengthError, match="tokens would fit"):
        explorer.session(read_state({"model": "packed", "text": "one two three"}))


def test_proofs_and_steps_that_do_not_fit_are_refused(monkeypatch, numpy_engine):
    load_routes()
    explorer = tiny_explorer("decoder")
    asked = {"state": state("decoder"), "name": "embedding", "index": [0, 0, 0]}
    explorer.session(read_state(asked["state"]))
    monkeypatch.setattr(memory, "free_bytes", lambda: 1 << 10)
    with pytest.raises(GlassformerError, match="a proof, which computes in float64, takes about"):
        ask(explorer, "proof", asked)
    with pytest.raises(GlassformerError, match="a step of an optimizer takes about"):
        ask(explorer, "step", {"state": asked["state"], "optimizer": "sgd", "lr": 0.1})
