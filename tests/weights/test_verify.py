"""Beside the reference, layer by layer: it agrees, and the first layer that does not is named."""

import sys

import numpy as np
import pytest

from family_models import saved
from glassformer.api.trained_model import TrainedModel
from glassformer.core.errors import ConfigError
from glassformer.core.tree import tree_map
from glassformer.models import build, preset
from glassformer.weights.folder import open_folder
from glassformer.weights.verify import LIMIT, verify
from oracles import require

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
