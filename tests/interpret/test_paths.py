"""Path patching: only the path counts."""

import numpy as np
import pytest

from glassformer.errors import ConfigError, LengthError
from glassformer.interpret import Logit, at, freeze, patch_path, put, take, watch

TARGET = Logit(1, against=0)
SENDER = at("blocks.0.attention.output.x", head=1)


@pytest.fixture
def runs(decoder):
    model, params, batch = decoder
    other = batch._replace(tokens=(batch.tokens + 1) % 7)
    return watch(model, params, batch), watch(model, params, other)


def test_a_path_to_the_logits_leaves_all_later_sublayers_as_they_were(runs):
    run, source = runs
    later = ("blocks.0.feed_forward", "blocks.1.attention", "blocks.1.feed_forward")
    alone = run.changed(take(SENDER.name, source, head=1), *map(freeze, later))
    found = patch_path(run, source, SENDER, at("logits"), TARGET)
    assert np.isclose(found.effect, TARGET.value(alone) - TARGET.value(run), rtol=1e-12)
    assert (found.run, found.source) == (TARGET.value(run), TARGET.value(source))


def test_a_receiver_reads_the_stream_plus_what_the_sender_wrote(runs):
    run, source = runs
    w = run.params["blocks"][0]["attention"]["output"]["w"][4:]
    wrote = (source[SENDER.name] - run[SENDER.name])[..., 4:] @ w
    told = run.changed(put("blocks.0", run["blocks.0"] + wrote))
    for name in ("blocks.1.attention.attend.k", "blocks.1.attention.output.x"):
        alone = run.changed(take(name, told, head=0))
        found = patch_path(run, source, SENDER, at(name, head=0), TARGET)
        assert found.effect != 0
        assert np.isclose(found.effect, TARGET.value(alone) - TARGET.value(run), rtol=1e-9)


def test_paths_lead_from_the_source_to_the_target(encoder_decoder):
    model, params, batch = encoder_decoder
    run = watch(model, params, batch)
    source = watch(model, params, batch._replace(source=(batch.source + 1) % 9))
    sender = at("encoder.blocks.0.feed_forward")
    first, second = (
        patch_path(run, source, sender, at(f"decoder.blocks.{n}.cross_attention"), TARGET).effect for n in range(2)
    )
    assert first != 0 != second
    blind = patch_path(run, source, sender, at("decoder.blocks.0.attention"), TARGET)
    assert blind.effect == 0  # attention to the target itself comes before any look at the source


def test_freezing_what_would_not_move_is_not_warned_of(runs, caplog):
    run, source = runs
    patch_path(run, source, SENDER, at("logits"), TARGET)
    assert not caplog.records


def test_what_is_no_path_is_refused(runs, decoder):
    run, source = runs
    with pytest.raises(ConfigError, match="does not come before"):
        patch_path(run, source, at("blocks.1.attention"), at("blocks.0.attention"), TARGET)
    with pytest.raises(ConfigError, match="there is no value"):
        patch_path(run, source, at("blocks.0.atention"), at("logits"), TARGET)
    model, params, batch = decoder
    short = watch(model, params, batch._replace(tokens=batch.tokens[:, 1:], targets=None, mask=None))
    with pytest.raises(LengthError, match="as many tokens"):
        patch_path(run, short, SENDER, at("logits"), TARGET)
