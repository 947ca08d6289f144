"""Runs that do not fit into memory are refused before they begin."""

import numpy as np
import pytest

import gguf_files
from browser import TEXTS, ended, state, tiny_explorer, tiny_model
from glassformer.core.errors import GlassformerError, LengthError
from glassformer.core.files import plain_json
from glassformer.core.quantized import Quantized
from glassformer.core.tree import flatten
from glassformer.interpret import watch
from glassformer.models import Batch
from glassformer.web import memory_budget, run_session
from glassformer.web.explorer import Explorer
from glassformer.web.offers import Offer
from glassformer.web.router import ask, load_routes
from glassformer.web.state import read_state


@pytest.mark.parametrize("architecture", TEXTS)
def test_the_count_is_what_a_run_keeps(architecture, numpy_engine):
    subject = tiny_model(architecture)
    batch = subject.batch(TEXTS[architecture])
    run = watch(subject.model, subject.params, batch)
    kept = {id(a): a.nbytes for call in run.calls for a in call.outputs if isinstance(a, np.ndarray)}
    said = memory_budget.run_bytes(subject.model.config, batch, 8)
    assert 0.8 * sum(kept.values()) < said < 4 * sum(kept.values())


def test_what_does_not_fit_is_refused_with_both_numbers(monkeypatch, explorer):
    monkeypatch.setattr(memory_budget, "free_bytes", lambda: 3 * 2**30)
    config = tiny_model("decoder").model.config
    assert memory_budget.kept_of(config, Batch(np.zeros((1, 64), int)), 8) == "everything"
    with pytest.raises(LengthError, match=r"into 65,536 tokens takes about .* GiB, and 3\.0 GiB of memory are free"):
        memory_budget.kept_of(config, Batch(np.zeros((1, 65_536), int)), 8)
    monkeypatch.setattr(memory_budget, "free_bytes", lambda: 1)
    with pytest.raises(LengthError, match="takes about"):
        explorer.session(read_state(state("encoder", text="00000000")))


def test_a_system_that_does_not_say_what_is_free_is_believed_to_have_it(monkeypatch, tmp_path):
    monkeypatch.setattr(memory_budget, "MEMINFO", tmp_path / "nothing")
    assert memory_budget.free_bytes() is None
    config = tiny_model("decoder").model.config
    assert memory_budget.kept_of(config, Batch(np.zeros((1, 65_536), int)), 8) == "block_checkpoints"
    (tmp_path / "nothing").write_text("MemTotal: 5 kB\nMemAvailable: 3 kB\n")
    assert memory_budget.free_bytes() == 3072


def test_a_run_that_would_keep_too_much_keeps_block_checkpoints(monkeypatch, explorer, numpy_engine):
    whole = explorer.session(read_state(state("decoder", text="for x in"))).run
    monkeypatch.setattr(memory_budget, "WHOLE", 1)
    run = explorer.session(read_state(state("decoder", text="for y in"))).run
    assert (whole.keeps, run.keeps) == ("everything", "block_checkpoints")
    again = explorer.session(read_state(state("decoder", text="for x in"))).run
    assert again.keeps == "block_checkpoints"  # runs of another kind were let go
    assert all(again[name].tobytes() == whole[name].tobytes() for name in whole)


def test_weights_that_a_file_stores_in_blocks_are_unpacked_for_short_texts_alone(monkeypatch, tmp_path, numpy_engine):
    arrays = gguf_files.llama_tensors(np.random.default_rng(0), width=32, hidden=64)
    settings = gguf_files.llama_settings(embedding_length=32, feed_forward_length=64, **{"rope.dimension_count": 8})
    types = {name: "Q8_0" for name, array in arrays.items() if array.ndim == 2}
    path = tmp_path / "model.gguf"
    gguf_files.write(path, "llama", {**settings, **gguf_files.byte_tokenizer()}, arrays, types)
    explorer = Explorer({"packed": Offer("packed", "a file", "published", str(path))})
    monkeypatch.setattr(run_session, "PRECISE", 0)
    asked = read_state({"model": "packed", "text": "one two"})
    whole, opened = explorer.session(asked).run, explorer.opened("packed")
    packed = [isinstance(leaf, Quantized) for leaf in flatten(opened.model.params).values()]
    assert not any(packed)
    trees = [opened.model.params, opened.params, whole.params]
    assert len({id(flatten(tree)["embedding.tokens.table"]) for tree in trees}) == 1
    monkeypatch.setattr(memory_budget, "WHOLE", 1)
    explorer.session(read_state({"model": "packed", "text": "another"}))  # short runs are let go
    run = explorer.session(asked).run
    assert sum(isinstance(leaf, Quantized) for leaf in flatten(run.params).values()) == len(types)
    assert flatten(opened.model.params).keys() == flatten(run.params).keys()
    assert all(run[name].tobytes() == whole[name].tobytes() for name in whole)
    name = "blocks.1.attention.query.w"
    np.testing.assert_array_equal(explorer.session(asked).array("value", name), flatten(whole.params)[name])
    monkeypatch.setattr(memory_budget, "WHOLE", 1 << 27)
    again = explorer.session(read_state({"model": "packed", "text": "one two."})).run
    assert again.keeps == "everything"
    _gone_and_back(opened, path)


def _gone_and_back(opened, path):
    """What could not be opened again is opened the next time."""
    path.rename(path.with_suffix(".away"))
    with pytest.raises(GlassformerError):
        opened.ready("block_checkpoints")
    path.with_suffix(".away").rename(path)
    opened.ready("everything")
    assert sum(isinstance(leaf, Quantized) for leaf in flatten(opened.ready("block_checkpoints")).values()) > 0


@pytest.mark.parametrize("architecture", TEXTS)
def test_views_say_the_same_of_a_run_that_keeps_block_checkpoints(architecture, monkeypatch, numpy_engine):
    load_routes()
    block = "decoder.blocks.1" if architecture == "encoder-decoder" else "blocks.1"
    changes = [{"word": "zero", "name": f"{block}.attention.output.x", "where": {"head": 1}}]
    entry = {"name": f"{block}.attention.attend.weights", "index": [0, 1, 2, 1]}
    asked = {"attention": {}, "backward": {}, "outcome": {}, "run": {}, "scene": {},
             "card": entry, "proof": entry,
             "attribution": {"token": None, "against": None, "position": -1}}  # fmt: skip
    if architecture != "encoder":  # nobody said which class it should have been
        asked["step"] = {"optimizer": "adamw", "lr": 0.01}
    found = []
    for whole in (memory_budget.WHOLE, 1):
        monkeypatch.setattr(memory_budget, "WHOLE", whole)
        explorer = tiny_explorer(architecture)
        state_of = state(architecture, changes=changes)
        said = {word: ask(explorer, word, {"state": state_of, **more}) for word, more in asked.items()}
        said["attribution"] = ended(explorer, said["attribution"])
        found.append(plain_json(said))
        assert explorer.session(read_state(state_of)).run.keeps == ("everything" if whole > 1 else "block_checkpoints")
    assert found[0] == found[1]


def test_proofs_and_steps_that_do_not_fit_are_refused(monkeypatch, explorer, numpy_engine):
    asked = {"state": state("decoder"), "name": "embedding", "index": [0, 0, 0]}
    explorer.session(read_state(asked["state"]))
    monkeypatch.setattr(memory_budget, "free_bytes", lambda: 1 << 10)
    with pytest.raises(LengthError, match="a proof, which computes in float64, takes about"):
        ask(explorer, "proof", asked)
    with pytest.raises(LengthError, match="a step of an optimizer takes about"):
        ask(explorer, "step", {"state": asked["state"], "optimizer": "sgd", "lr": 0.1})


def test_the_gradient_of_a_card_of_a_long_text_is_found_when_it_is_asked_for(monkeypatch, numpy_engine):
    load_routes()
    asked = {"state": state("decoder"), "name": "blocks.1.attention", "index": [0, 1, 2]}
    short = ask(tiny_explorer("decoder"), "card", asked)
    monkeypatch.setattr(memory_budget, "WHOLE", 1)
    explorer = tiny_explorer("decoder")
    first = ask(explorer, "card", asked)
    assert (first["later"], first["gradient"]) == ("asked", None)
    assert "long text" in first["reason"]
    assert ask(explorer, "proof", asked)["difference"] < 1e-9
    assert ask(explorer, "card", {**asked, "gradient": True})["value"] == short["gradient"]
    assert ask(explorer, "card", asked) == short
