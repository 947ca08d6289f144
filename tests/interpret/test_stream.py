"""Statistics of the residual stream, against numbers worked out by hand."""

import numpy as np
import pytest

from glassformer import Batch, Encoder, EncoderConfig
from glassformer.core.errors import ShapeError
from glassformer.interpret import layer_statistics, watch
from glassformer.interpret.stream import residual_statistics


def test_every_number_of_a_small_stream():
    first = np.array([[3.0, 4.0], [0.0, 0.0]])
    second = np.array([[6.0, 8.0], [1.0, -1.0]])
    embedding, block = residual_statistics(np.stack([first, second]))
    assert embedding.name == "embedding"
    assert embedding.mean == pytest.approx(7 / 4)
    assert embedding.rms == pytest.approx(2.5)
    assert embedding.zeros == 0.5
    assert embedding.norm == pytest.approx(2.5)
    assert embedding.change == 0
    assert block.name == "block 0"
    assert (block.minimum, block.maximum) == (-1, 8)
    assert block.std == pytest.approx(np.std([6, 8, 1, -1]))
    # The first token moved by its own length; the second started at zero, which has no length to compare with.
    assert block.change == pytest.approx(0.5)


def test_six_blocks_of_the_reference_size_have_seven_rows(rng):
    config = EncoderConfig(
        vocab=10, width=64, heads=4, layers=6, context=16, feed_forward=256, norm_position="post", head="none"
    )
    model = Encoder(config)
    rows = layer_statistics(watch(model, model.init(0), Batch(rng.integers(0, 10, (1, 16)))))
    assert [row.name for row in rows] == ["embedding", *(f"block {i}" for i in range(6))]
    # A post-norm block ends with a layer norm whose gain is still one and whose shift is zero.
    for row in rows[1:]:
        assert row.mean == pytest.approx(0, abs=1e-6)
        assert row.rms == pytest.approx(1, abs=1e-3)


def test_all_tokens_of_all_examples_are_described(encoder_decoder):
    run = watch(*encoder_decoder)
    first = layer_statistics(run, "decoder")[1]
    values = run["decoder.blocks.0"][run.batch.mask]
    assert first.mean == pytest.approx(values.mean())
    assert first.maximum == values.max()
    assert len(layer_statistics(run, "encoder")) == 2


def test_a_learned_first_vector_is_a_vector_of_the_stream(encoder):
    run = watch(*encoder)
    first = layer_statistics(run)[0]
    assert first.maximum == max(run["embedding"][0].max(), run["embedding"][1, :4].max())


def test_streams_of_the_wrong_shape_are_refused():
    with pytest.raises(ShapeError, match="expected \\(layers \\+ 1, tokens, width\\)"):
        residual_statistics(np.ones((3, 4)))
