"""Figures of methods: every cell and bar stands for its number, and what does not fit is refused."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig
from glassformer.core.errors import ConfigError, ShapeError
from glassformer.core.show import Result
from glassformer.interpret import Logit, attribute, head_scores, lens, patch_heads, patch_stream, watch
from glassformer.interpret.heads import score_maps
from glassformer.plots import detector_maps, draw, lens_map, patching_map, save, signed_bars, themed
from glassformer.plots.predictions import MOST_POSITIONS

pytestmark = pytest.mark.usefixtures("numpy_engine")


@pytest.fixture(scope="module")
def runs():
    """A model of two blocks on two texts of 30 tokens."""
    model = Decoder(DecoderConfig(vocab=7, width=4, heads=2, layers=2, context=30))
    params = model.init(0, np.float64)
    return [watch(model, params, Batch((np.arange(30)[None] * step) % 7)) for step in (1, 2)]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_lens_has_a_row_for_each_block_and_a_column_for_each_position(runs, tmp_path):
    seen = lens(runs[0], at=["embedding", "block 0", "block 1"], positions=[0, 1])
    with themed("dark"):
        figure = lens_map(seen, ["a", "b"], lambda i: f"t{i}", title="Mine")
    ids, odds = seen.top(1)
    assert words(figure) == [f"t{i}" for i in ids[::-1, 0, :, 0].reshape(-1)]
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), odds[::-1, 0, :, 0])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["block 1", "block 0", "embedding"]
    assert figure.get_label().startswith("Mine: the likeliest token at 3 points")
    assert save(figure, tmp_path / "lens.svg").stat().st_size > 1000


def test_of_many_points_and_positions_some_are_drawn(runs, monkeypatch):
    monkeypatch.setattr("glassformer.plots.predictions.MOST_ROWS", 4)
    figure = lens_map(lens(runs[0]), [str(n) for n in range(30)])
    assert figure.axes[0].images[0].get_array().shape == (3, MOST_POSITIONS)
    assert "the last 24 of 30" in figure.axes[0].get_xlabel()
    with pytest.raises(ShapeError, match="2 words for 30 positions"):
        lens_map(lens(runs[0]), ["a", "b"])


def test_a_result_is_drawn_by_what_it_shows(runs):
    logit = Logit(1)
    *_, scores = head_scores(runs[0]).values()
    for found in (lens(runs[0]), attribute(runs[0], logit), patch_heads(*runs, logit), scores):
        assert draw(found, title="Mine").get_label().startswith("Mine: ")
    assert draw(attribute(runs[0], logit)).get_label().startswith("What adds to the logit of 1")
    with pytest.raises(ConfigError, match="'words' has no figure"):
        draw(Result("words", ("word",), [["a"]]))


def test_bars_are_drawn_in_their_order_and_the_rest_is_counted():
    figure = signed_bars(["a", "b", "c"], [3.0, -2.0, 1.0], top=2, title="Parts", unit="adds")
    assert [bar.get_width() for bar in figure.axes[0].patches] == [3.0, -2.0]
    assert figure.axes[0].get_xlabel() == "adds · the first 2 of 3"
    assert "a +3, b -2" in figure.get_label()
    with pytest.raises(ShapeError, match="2 names for values of shape"):
        signed_bars(["a", "b"], [1.0], title="Parts")


def test_a_map_of_patching_has_the_last_point_on_top(runs, monkeypatch):
    found = patch_stream(*runs, Logit(3), estimate=False)
    figure = patching_map(found, [f"t{n}" for n in range(30)])
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), found.effect[::-1])
    assert "The largest effect" in figure.get_label()
    heads = patching_map(patch_heads(*runs, Logit(3), estimate=False))
    assert len(words(heads)) == 4
    assert len(words(figure)) == 150
    monkeypatch.setattr("glassformer.plots.charts.MOST_TEXTS", 3)
    assert words(patching_map(found)) == []  # numbers are written where there is room


def test_kinds_of_heads_have_a_map_each():
    scores = np.array([[0.25, 1.0], [0.5, 0.0]])
    some = score_maps([np.ones((1, 2, 1, 1))] * 2, np.ones((1, 1, 1), dtype=bool))
    numbers = {"induction": scores, "first token": scores / 2}
    found = replace(some, scores=numbers, chance={"induction": 0.1, "first token": 0.2})
    figure = detector_maps(found, title="Kinds")
    assert words(figure) == [".25", "1.00", ".50", ".00"]
    assert figure.axes[0].get_title() == "induction (by chance 0.10)"
    assert "layer 0 head 1 induction 1.00" in figure.get_label()
