"""The presets: settings of known models, by name."""

import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.models import PRESETS, preset


def test_every_preset_can_be_built_and_changed_and_says_what_it_is():
    for name in PRESETS:
        model = gf.build(name)
        assert model.config == preset(name)
        assert model.config.architecture in {"encoder", "decoder", "encoder-decoder"}
    changed = preset("gpt2", layers=2, width=64, heads=4)
    assert (changed.layers, changed.width, changed.heads) == (2, 64, 4)
    assert preset("gpt2").layers == 12


def test_what_is_no_model_and_unknown_presets_are_refused():
    with pytest.raises(ConfigError, match="3 is no model"):
        gf.build(3)
    with pytest.raises(ConfigError, match="there is no preset 'gpt-2'") as caught:
        preset("gpt-2")
    assert "gpt2" in caught.value.hint
