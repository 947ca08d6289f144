"""A config says what it is, refuses what it cannot be, and survives a round trip through JSON."""

import dataclasses
import json
import pydoc
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import (
    CONFIGS,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    RotaryScaling,
    choices,
    config_from_dict,
)
from glassformer.core.errors import ConfigError

SIZES = {"vocab": 9, "width": 8, "heads": 4, "layers": 2, "context": 8}


def refused(make, fact, hint):
    """Whether `make` raises a ConfigError that states the fact and gives the hint."""
    with pytest.raises(ConfigError) as caught:
        make()
    assert fact in caught.value.fact
    assert hint in (caught.value.hint or "")
    assert str(caught.value) == f"{caught.value.fact}\n\nhint: {caught.value.hint}"


@pytest.mark.parametrize("cls", CONFIGS.values(), ids=lambda cls: cls.__name__)
def test_an_unknown_setting_is_answered_with_what_was_meant(cls):
    own = {"classes": 3} if cls is EncoderConfig else {}
    refused(
        lambda: cls(**SIZES, **own, head_count=4), f"{cls.__name__} has no setting 'head_count'", "did you mean 'head"
    )
    refused(lambda: cls(**SIZES, **own, droput=0.1), "no setting 'droput'", "did you mean 'dropout'")
    refused(lambda: cls(**SIZES, **own).replace(witdh=8), "no setting 'witdh'", "did you mean 'width'")


def test_settings_of_another_architecture_are_unknown():
    refused(lambda: DecoderConfig(**SIZES, pooling="mean"), "DecoderConfig has no setting 'pooling'", "")
    refused(lambda: EncoderConfig(**SIZES, classes=2, shared_embedding=True), "no setting 'shared_embedding'", "")


@pytest.mark.parametrize(
    ("settings", "fact", "hint"),
    [
        # of another type
        ({"vocab": 9.0}, "vocab is 9.0", "takes: whole number"),
        ({"layers": "2"}, "layers is '2'", "takes: whole number"),
        ({"width": True}, "width is True", "takes: whole number"),
        ({"context": None}, "context is None", "takes: whole number"),
        ({"dropout": "0.1"}, "dropout is '0.1'", "takes: number"),
        ({"gated": 1}, "gated is 1", "takes: true, false"),
        ({"final_norm": "yes"}, "final_norm is 'yes'", "takes: true, false, none"),
        ({"kv_heads": 1.5}, "kv_heads is 1.5", "whole number or none"),
        ({"activation": None}, "activation is None", "takes: text"),
        ({"positions": "rotary", "rotary_scaling": 8.0}, "rotary_scaling is 8.0", "JSON object or none"),
        # out of range
        *(({name: 0}, f"{name} is 0", "of at least 1") for name in SIZES),
        ({"window": 0}, "window is 0", "at least 1"),
        ({"stride": -1}, "stride is -1", "at least 1"),
        ({"feed_forward": 0}, "feed_forward is 0", "at least 1"),
        ({"dropout": 1.0}, "dropout is 1.0", "below 1"),
        ({"attention_dropout": -0.1}, "attention_dropout is -0.1", "at least 0"),
        ({"embedding_dropout": float("nan")}, "embedding_dropout is nan", "at least 0"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0", "above 0"),
        ({"rotary_base": -1}, "rotary_base is -1", "above 0"),
        ({"init_std": 0}, "init_std is 0", "above 0"),
        ({"relative_buckets": 6}, "relative_buckets is 6", "multiple of 4"),
        ({"activation": "swish"}, "activation is 'swish'", "silu"),
        ({"norm": "batch"}, "norm is 'batch'", "known: layer, none, rms"),
        ({"norm_position": "before"}, "norm_position is 'before'", "known: post, pre"),
        ({"positions": "sinusoid"}, "positions is 'sinusoid'", "did you mean 'sinusoidal'"),
        ({"rotary_pairing": "half"}, "rotary_pairing is 'half'", "did you mean 'halves'"),
        # in contradiction to each other
        ({"width": 10}, "width 10 is not divisible by 4 heads", "use width 12, or set head_width"),
        ({"kv_heads": 3}, "4 heads cannot share 3 key/value heads", "kv_heads must divide heads"),
        ({"kv_heads": 8}, "4 heads cannot share 8 key/value heads", "kv_heads must divide heads"),
        ({"positions": "rotary", "head_width": 3}, "heads have 3 channels", "even"),
        ({"rotary_scaling": RotaryScaling()}, "positions are 'learned'", 'positions="rotary"'),
        ({"positions": "relative", "relative_distance": 16}, "relative_distance is 16", "above 16, or fewer buckets"),
        ({"head_scale": True, "tied_head": False}, "head_scale belongs to a tied head", "leave head_scale out"),
        ({"norm": "rms", "norm_bias": False}, "an rms norm never has one", "leave norm_bias out"),
        ({"norm": "none", "norm_bias": False}, 'are set, but norm is "none"', "leave them out"),
        ({"norm": "none", "final_norm": True}, 'are set, but norm is "none"', "choose a norm"),
        ({"norm": "none", "embedding_norm": True}, 'are set, but norm is "none"', "choose a norm"),
        ({"block": "attention_onyl"}, "block is 'attention_onyl'", "attention_only"),
        ({"block": "feed_forward_only", "positions": "alibi"}, "'alibi', which act on attention", "learned"),
    ],
)
def test_values_of_another_type_out_of_range_or_in_contradiction_are_refused(settings, fact, hint):
    refused(lambda: DecoderConfig(**{**SIZES, **settings}), fact, hint)


@pytest.mark.parametrize(
    ("settings", "fact", "hint"),
    [
        ({}, "a classifier has classes=None", "set classes to 2 or more"),
        ({"classes": 1}, "a classifier has classes=1", "set classes to 2 or more"),
        ({"classes": 2, "head": "tokens"}, "classes is set, but head is 'tokens'", 'head="classes"'),
        ({"head": "none", "pooling": "cls"}, "pooling is \"cls\", but head is 'none'", 'head="classes"'),
        ({"classes": 2, "segments": -1}, "segments is -1", "at least 0"),
        ({"classes": 2, "padding_id": 99999}, "padding_id is 99999", "name one of the tokens"),
        ({"classes": 2, "padding_id": 0, "positions": "rotary"}, "with rotary positions", "leave it out"),
        ({"classes": 2, "pooling": "max"}, "pooling is 'max'", "known: cls, first, mean"),
        ({"head": "token"}, "head is 'token'", "did you mean 'tokens'"),
    ],
)
def test_an_encoder_refuses_what_its_head_cannot_be(settings, fact, hint):
    refused(lambda: EncoderConfig(**SIZES, **settings), fact, hint)


@pytest.mark.parametrize(
    ("settings", "fact", "hint"),
    [
        ({"block": "feed_forward_only"}, "sees nothing of its source", "choose another block"),
        ({"encoder_layers": 0}, "encoder_layers is 0", "at least 1"),
        ({"source_vocab": 0}, "source_vocab is 0", "at least 1"),
        (
            {"shared_embedding": True, "source_vocab": 7},
            "one table cannot serve 7 source ids and 9 target ids",
            "leave source_vocab out",
        ),
    ],
)
def test_an_encoder_decoder_refuses_two_vocabularies_in_one_table(settings, fact, hint):
    refused(lambda: EncoderDecoderConfig(**SIZES, **settings), fact, hint)


def test_replace_checks_again():
    refused(lambda: DecoderConfig(**SIZES).replace(width=9), "width 9 is not divisible", "use width 12")


def test_settings_that_are_none_follow_from_others():
    config = DecoderConfig(**SIZES, dropout=0.1)
    assert (config.hidden, config.key_heads, config.channels) == (32, 4, 2)
    assert (config.weight_dropout, config.input_dropout) == (0.1, 0.1)
    assert config.has_final_norm
    assert config.has_output_bias
    changed = config.replace(
        feed_forward=5, kv_heads=2, head_width=6, attention_dropout=0.0, embedding_dropout=0.2, norm_position="post"
    )
    assert (changed.hidden, changed.key_heads, changed.channels) == (5, 2, 6)
    assert (changed.weight_dropout, changed.input_dropout) == (0.0, 0.2)
    assert not changed.has_final_norm
    assert not config.replace(attention_bias=False).has_output_bias
    assert config.replace(attention_bias=False, output_bias=True).has_output_bias
    two = EncoderDecoderConfig(**SIZES)
    assert (two.source_size, two.encoder_depth, two.tied_head) == (9, 2, False)
    assert two.replace(source_vocab=5, encoder_layers=1).source_size == 5


def test_a_config_is_frozen_compares_by_value_and_takes_numpy_numbers():
    config = DecoderConfig(**SIZES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 16
    assert config == DecoderConfig(**SIZES)
    assert hash(config) == hash(DecoderConfig(**SIZES))
    assert config.replace(width=16).width == 16
    assert config.width == 8
    assert DecoderConfig(**SIZES) != EncoderDecoderConfig(**SIZES)

    config = DecoderConfig(**{**SIZES, "vocab": np.int64(12)}, dropout=np.float32(0.5))
    assert (config.vocab, config.dropout) == (12, 0.5)
    assert type(config.vocab) is int
    assert json.loads(json.dumps(config.to_dict()))["vocab"] == 12


@pytest.mark.parametrize("scaling", [{"factor": 0.0}, {"low_factor": 4.0}, {"original_context": "x"}])
def test_a_rotary_scaling_that_makes_no_sense_is_refused(scaling):
    with pytest.raises(ConfigError, match="rotary_scaling"):
        DecoderConfig(**SIZES, positions="rotary", rotary_scaling=scaling)


def test_settings_that_would_do_nothing_are_refused():
    refused(lambda: DecoderConfig(**SIZES, rotary_pairing="interleaved"), "rotary_pairing is set", "rotary")
    refused(lambda: EncoderConfig(**SIZES, classes=2, head_bias=True), "belong to a head for tokens", "leave them out")


SHARED = st.fixed_dictionaries(
    {"vocab": st.integers(1, 1000), "layers": st.integers(1, 9), "context": st.integers(1, 99)},
    optional={
        "kv_heads": st.sampled_from([None, 1, 2, 4]),
        "activation": st.sampled_from(choices()["activation"]),
        "gated": st.booleans(),
        "norm": st.sampled_from(choices()["norm"]),
        "norm_eps": st.floats(1e-12, 1.0),
        "norm_position": st.sampled_from(choices()["norm_position"]),
        "positions": st.sampled_from(choices()["positions"]),
        "rotary_pairing": st.sampled_from(choices()["rotary_pairing"]),
        "final_norm": st.sampled_from([None, True, False]),
        "dropout": st.floats(0, 0.99),
        "window": st.none() | st.integers(1, 9),
        "tied_head": st.booleans(),
    },
)


@given(settings=SHARED, cls=st.sampled_from(sorted(CONFIGS)))
def test_a_config_survives_json(settings, cls):
    own = {"classes": 3} if cls == "encoder" else {}
    if settings.get("positions") != "rotary":
        settings.pop("rotary_pairing", None)
    if settings.get("norm") == "none":
        settings.pop("final_norm", None)
    config = CONFIGS[cls](width=8, heads=4, **settings, **own)
    again = config_from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert type(again) is type(config)


def test_the_dict_holds_what_differs_from_the_defaults():
    scaled = DecoderConfig(**SIZES, positions="rotary", rotary_scaling=RotaryScaling(factor=4.0))
    assert scaled.to_dict() == {
        "architecture": "decoder",
        **SIZES,
        "positions": "rotary",
        "rotary_scaling": {"factor": 4.0, "low_factor": 1.0, "high_factor": 4.0, "original_context": 8192},
    }
    assert config_from_dict(json.loads(json.dumps(scaled.to_dict()))) == scaled
    # A tied head is the default of a decoder, not of an encoder-decoder.
    assert "tied_head" not in DecoderConfig(**SIZES, tied_head=True).to_dict()
    assert EncoderDecoderConfig(**SIZES, tied_head=True).to_dict()["tied_head"] is True


def test_a_dict_that_is_no_config_is_refused():
    refused(lambda: config_from_dict({**SIZES}), "the architecture is None", "known: decoder, encoder, encoder-decoder")
    refused(lambda: config_from_dict({"architecture": "decodr"}), "'decodr'", "did you mean 'decoder'")
    refused(lambda: config_from_dict({"architecture": "decoder", **SIZES, "head": 3}), "no setting 'head'", "heads")
    scaling = {"factr": 2.0}
    refused(
        lambda: DecoderConfig(**SIZES, positions="rotary", rotary_scaling=scaling),
        "rotary_scaling has no setting 'factr'",
        "did you mean 'factor'",
    )


@pytest.mark.parametrize("config", CONFIGS.values())
def test_help_names_every_setting_with_its_choices(config):
    text = pydoc.plain(pydoc.render_doc(config))
    for field in dataclasses.fields(config):
        words = choices().get(field.name, ())
        explained = re.search(rf"^ \|  {field.name}  +(.*)$", text, flags=re.MULTILINE)
        assert explained is not None, field.name
        assert [word for word in words if word not in explained[1]] == []
