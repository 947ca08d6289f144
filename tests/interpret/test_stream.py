"""Statistics of the residual stream and of the scene, against numbers worked out by hand."""

import numpy as np
import pytest

from browser import TEXTS, tiny_model
from glassformer import Batch, Encoder, EncoderConfig
from glassformer.api.trained_model import TrainedModel
from glassformer.core.errors import ShapeError
from glassformer.data import build_task
from glassformer.interpret import layer_statistics, watch
from glassformer.interpret.scene import SAYS, growth, lengths, scene
from glassformer.interpret.stream import residual_statistics
from glassformer.models import build
from glassformer.runs.planning import model_config


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


def test_all_tokens_of_all_examples_are_described_in_seven_rows_of_six_blocks(rng, encoder_decoder):
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

    run = watch(*encoder_decoder)
    first = layer_statistics(run, "decoder")[1]
    values = run["decoder.blocks.0"][run.batch.mask]
    assert first.mean == pytest.approx(values.mean())
    assert first.maximum == values.max()
    assert len(layer_statistics(run, "encoder")) == 2


def test_a_learned_first_vector_is_of_the_stream_and_wrong_shapes_are_refused(encoder):
    run = watch(*encoder)
    first = layer_statistics(run)[0]
    assert first.maximum == max(run["embedding"][0].max(), run["embedding"][1, :4].max())
    with pytest.raises(ShapeError, match="expected \\(layers \\+ 1, tokens, width\\)"):
        residual_statistics(np.ones((3, 4)))


def stations(part):
    return [*part.start, *(one for block in part.blocks for one in block.stations), *part.end]


@pytest.mark.parametrize("architecture", TEXTS)
def test_stations_are_values_of_the_run_in_the_order_of_the_computation(architecture):
    run = tiny_model(architecture).watch(TEXTS[architecture])
    parts = scene(run)
    assert [part.tokens for part in parts] == (["source", "tokens"] if len(parts) == 2 else ["tokens"])
    for part in parts:
        found = stations(part)
        assert all(one.name in run and one.kind in SAYS for one in found)
        made = [run.addresses[one.name].number for one in found if one.kind in ("embedding", "adds", "stream", "norm")]
        assert made == sorted(made)
        for block in part.blocks:
            assert block.stations[-1].kind == "stream"
            assert np.array_equal(run[block.stations[-1].name], run[block.name])


def test_the_stream_is_what_it_was_and_what_a_sublayer_added():
    run = tiny_model("encoder-decoder").watch(TEXTS["encoder-decoder"])
    for part in scene(run):
        stream, added = run[part.start[0].name], 0.0
        for one in (station for block in part.blocks for station in block.stations):
            if one.kind == "adds":
                added = run[one.name]
                ratio = np.median(np.linalg.norm(added[0], axis=-1) / np.linalg.norm(stream[0], axis=-1))
                assert growth(run)[one.name] == pytest.approx(ratio, rel=1e-12)
            elif one.kind == "stream":
                stream = stream + added
                assert np.allclose(run[one.name], stream, rtol=0, atol=1e-12)


def test_a_learned_first_vector_has_no_share_and_lengths_are_norms():
    task = build_task("majority")
    model = build(model_config(task, None, {"width": 8, "heads": 2, "layers": 1, "pooling": "cls"}))
    run = TrainedModel.of_task(model, model.init(0), task).watch("11110222")
    adds, stream = run["blocks.0.attention"][0, 1:], run["embedding"][0]
    ratio = np.median(np.linalg.norm(adds, axis=-1) / np.linalg.norm(stream, axis=-1))
    assert growth(run)["blocks.0.attention"] == pytest.approx(ratio, rel=1e-5)

    x = np.arange(24.0).reshape(2, 3, 4)
    assert lengths(x) == pytest.approx([np.sqrt((row**2).sum()) for row in x[0]])
