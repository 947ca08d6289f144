"""Models of every family: the same as `transformers`, layer by layer and token by token, or where not."""

import sys

import numpy as np
import pytest

from family_models import CASES, END, START, VOCAB, WRITERS, exact_copy, model_of, quiet, run, saved
from glassformer.api.trained_model import TrainedModel
from glassformer.config import EncoderDecoderConfig
from glassformer.core.errors import ConfigError
from glassformer.core.tree import tree_map
from glassformer.generation import Sampling, generate_steps
from glassformer.models import build, preset
from glassformer.weights.folder import open_folder
from glassformer.weights.verify import LIMIT, verify
from oracles import require

SEEDS = 3
STEPS = 40


def layers_of(loaded, ids):
    """What our blocks and our head give, by the names of `run`."""
    if isinstance(loaded.config, EncoderDecoderConfig):
        output, record = loaded.model.forward(loaded.params, ids, ids)
        stacks = {f"{name}.": record[name] for name in ("encoder", "decoder")}
    else:
        output, record = loaded.model.forward(loaded.params, ids)
        stacks = {"": record}
    blocks = {f"{k}blocks.{i}": b["output"] for k, saved in stacks.items() for i, b in enumerate(saved["blocks"])}
    return {**blocks, "output": output}


@pytest.mark.parametrize("name", CASES)
def test_every_layer_is_that_of_the_reference_and_rounds_no_worse(name, tmp_path):
    ours, theirs = {}, {}
    for seed in range(SEEDS):
        model = model_of(name, seed=seed)
        loaded = open_folder(saved(name, tmp_path / str(seed), model=model))
        ids = np.random.default_rng(seed).integers(2, VOCAB, (4, 50))
        exact = run(exact_copy(model), ids, exact=True)
        found, reference = layers_of(loaded, ids), run(model, ids)
        assert found.keys() == exact.keys()
        for layer, truth in exact.items():
            assert truth.dtype == np.float64
            assert found[layer].dtype == np.float32
            assert np.abs(found[layer] - reference[layer]).max() <= 1e-4 * np.abs(truth).max(), layer
            # The difference to the exact value, as a share of the largest.
            for errors, one in ((ours, found), (theirs, reference)):
                errors.setdefault(layer, []).append((one[layer] - truth).ravel() / np.abs(truth).max())
    for layer in ours:
        mine, reference = np.concatenate(ours[layer]), np.concatenate(theirs[layer])
        assert np.sqrt(np.mean(mine**2)) <= 2 * np.sqrt(np.mean(reference**2)), layer
        # The worst of 18,000 numbers depends on the order in which a processor's vector units add up.
        assert np.abs(mine).max() <= 3 * np.abs(reference).max(), layer


@pytest.mark.parametrize("name", WRITERS)
def test_greedy_answers_are_the_same_token_for_token(name, tmp_path):
    torch = require("torch")
    theirs = model_of(name)
    loaded = open_folder(saved(name, tmp_path, model=theirs))
    prompts = np.random.default_rng(5).integers(2, VOCAB, (2, 9))
    theirs.generation_config.eos_token_id = None  # to see all steps
    # Without a cache: for T5, theirs has as many layers as the encoder, not the decoder.
    settings = {"do_sample": False, "max_new_tokens": STEPS, "pad_token_id": END, "use_cache": False}
    with quiet():
        written = theirs.generate(torch.tensor(prompts), attention_mask=torch.ones(prompts.shape).long(), **settings)
    expected = written[:, -STEPS:].tolist()
    is_t5 = loaded.family == "t5"
    starts = [[START]] * 2 if is_t5 else list(prompts)
    greedy = {"max_new_tokens": STEPS, "sampling": Sampling(temperature=0)}
    steps = generate_steps(loaded.model, loaded.params, starts, sources=list(prompts) if is_t5 else None, **greedy)
    found = np.stack([step.ids for step in steps], axis=1).tolist()
    assert found == expected


@pytest.mark.parametrize("name", ["bert, tokens", "roberta, tokens", "distilbert, tokens", "bert"])
def test_padding_is_hidden_as_the_reference_hides_it(name, tmp_path):
    torch = require("torch")
    model = model_of(name)
    loaded = open_folder(saved(name, tmp_path, model=model))
    ids = np.random.default_rng(3).integers(2, VOCAB, (2, 12))
    mask = np.arange(12) < np.array([[12], [7]])
    padded = np.where(mask, ids, model.config.pad_token_id)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor(padded), attention_mask=torch.tensor(mask).long())[0].numpy()
    found, _ = loaded.model.forward(loaded.params, padded, mask=mask)
    assert np.abs(found - expected)[mask].max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["roberta, tokens", "roberta"])
@pytest.mark.parametrize("hidden", [True, False])
def test_positions_of_roberta_count_tokens_wherever_padding_stands(name, hidden, tmp_path):
    torch = require("torch")
    model = model_of(name)
    with torch.no_grad():  # a trained model has learned nothing for padding, but a file may hold anything
        model.base_model.embeddings.position_embeddings.weight[1] = 0.3
    loaded = open_folder(saved(name, tmp_path, model=model), np.float64)
    ids = np.random.default_rng(3).integers(2, VOCAB, (4, 12))
    mask = np.stack([np.arange(12) >= 5, np.arange(12) < 7, np.arange(12) % 3 > 0, np.ones(12, dtype=bool)])
    padded = np.where(mask, ids, 1)
    seen = torch.tensor(mask).long() if hidden else None
    theirs = exact_copy(model)
    parameters = list(theirs.base_model.embeddings.parameters())
    expected = theirs(input_ids=torch.tensor(padded), attention_mask=seen)[0]
    counts = torch.tensor(mask if hidden else np.ones_like(mask))[..., None]
    gradients = torch.autograd.grad(((expected.real * counts) ** 2).sum(), parameters)
    found, saved_ = loaded.model.forward(loaded.params, padded, mask=mask if hidden else None)
    difference = np.abs(found - expected.detach().numpy())[counts.numpy()[..., 0]]
    assert difference.max() <= 1e-12 * np.abs(found).max()
    grads = loaded.model.backward(loaded.params, saved_, 2 * found * counts.numpy())
    by_name = dict(zip([n for n, _ in theirs.base_model.embeddings.named_parameters()], gradients, strict=True))
    table = grads["embedding"]["positions"]["table"]
    np.testing.assert_allclose(table[1:], by_name["position_embeddings.weight"][2:], rtol=1e-9, atol=1e-9)


def test_segments_are_those_of_bert(tmp_path):
    torch = require("torch")
    model = model_of("bert")
    loaded = open_folder(saved("bert", tmp_path, model=model))
    ids = np.random.default_rng(3).integers(2, VOCAB, (2, 12))
    segments = np.arange(12)[None] // 5 % 3 * np.ones((2, 1), dtype=int)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor(ids), token_type_ids=torch.tensor(segments))[0].numpy()
    found, _ = loaded.model.forward(loaded.params, ids, segments=segments)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("name", "tied"), [("t5", True), ("t5 v1.1", False), ("llama", False), ("gpt2", True)])
def test_the_head_is_tied_where_the_published_one_is(name, tied, tmp_path):
    loaded = open_folder(saved(name, tmp_path))
    assert loaded.config.tied_head == tied
    assert ("w" in loaded.params["head"]) == (not tied)


ONE_EACH = ["gpt2", "bert, tokens", "bert", "distilbert, tokens", "roberta", "t5", "t5 v1.1", "llama", "qwen2"]


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_faithful_model_agrees_everywhere(name, tmp_path):
    loaded = open_folder(saved(name, tmp_path))
    result = verify(loaded, tmp_path)
    assert result.first_departure is None
    layers = [row.layer for row in result.rows]
    assert layers[0].endswith("embedding")
    assert layers[-1] == ("vectors" if name in ("bert", "roberta") else "logits")
    assert sum("blocks." in layer for layer in layers) == (5 if name.startswith("t5") else 3)
    assert all(row.largest > 0 and row.difference < LIMIT / 10 for row in result.rows)


@pytest.mark.parametrize(
    ("part", "departs"),
    [
        (lambda p: p["embedding"]["positions"]["table"], "embedding"),
        (lambda p: p["blocks"][1]["feed_forward"]["up"]["w"], "blocks.1"),
        (lambda p: p["final_norm"]["gamma"], "logits"),
    ],
)
def test_the_first_layer_that_departs_is_named(part, departs, tmp_path):
    loaded = open_folder(saved("gpt2", tmp_path))
    params = tree_map(np.array, loaded.params)
    part(params)[...] *= 1.001
    result = verify(TrainedModel(loaded.config, params, family="gpt2"), tmp_path)
    assert result.first_departure == departs


def test_numbers_that_are_none_do_not_pass_and_a_model_without_a_folder_is_exported_first(tmp_path):
    loaded = open_folder(saved("gpt2", tmp_path))
    params = tree_map(np.array, loaded.params)
    params["blocks"][1]["feed_forward"]["up"]["w"][0, 0] = np.nan
    assert verify(TrainedModel(loaded.config, params, family="gpt2"), tmp_path).first_departure == "blocks.1"

    require("transformers")
    config = preset("llama-2-7b", vocab=9, width=8, heads=4, layers=2, feed_forward=6, context=16)
    result = verify(TrainedModel(config, build(config).init(0), family=""))
    assert result.first_departure is None
    assert result.tokens == 16


def test_without_the_reference_the_remedy_is_named(tmp_path, monkeypatch):
    loaded = open_folder(saved("gpt2", tmp_path))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="needs transformers, which is not installed"):
        verify(loaded, tmp_path)
