"""What stands in the picture of a run: names that exist, in the order of the computation, with the stream between."""

import numpy as np
import pytest

from browser import TEXTS, tiny_model
from glassformer.api.trained_model import TrainedModel
from glassformer.data import build_task
from glassformer.interpret.scene import SAYS, growth, lengths, scene
from glassformer.models import build
from glassformer.runs.planning import model_config


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
