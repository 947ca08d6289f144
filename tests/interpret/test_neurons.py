"""Neurons and the inputs that excite them most."""

import numpy as np
import pytest

from glassformer import Batch
from glassformer.core.errors import ConfigError, LengthError
from glassformer.interpret import exciting_inputs, watch


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
