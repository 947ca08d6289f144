"""The other figures: bars, tables, curves."""

import numpy as np
import pytest

from glassformer.core.errors import LengthError, ShapeError
from glassformer.interpret import similarity_by_distance
from glassformer.interpret.heads import score_maps
from glassformer.interpret.stream import residual_statistics
from glassformer.ops import sinusoidal
from glassformer.plots import (
    head_positions,
    head_specialization,
    layer_curves,
    position_heat_map,
    prediction_bars,
    prediction_table,
    save,
    similarity_curve,
)


def texts(ax):
    return [text.get_text() for text in ax.texts]


def statistics(rng, L=2, H=2, T=5):
    weights = rng.dirichlet(np.ones(T), size=(L, H, T))
    return score_maps(weights[:, None], np.ones((1, T, T), dtype=bool))


def test_the_likeliest_comes_first_and_the_right_answer_is_named_wherever_it_ranks():
    figure = prediction_bars(np.array([0.1, 0.6, 0.25, 0.05]), lambda i: "abcd"[i], top=3)
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "c", "a"]
    assert texts(ax) == ["60.0 %", "25.0 %", "10.0 %"]
    assert [bar.get_width() for bar in ax.patches] == [0.6, 0.25, 0.1]

    probabilities = np.array([0.1, 0.6, 0.3])
    assert prediction_bars(probabilities, answer=1).axes[0].get_title() == "right: 60.0 %"
    assert prediction_bars(probabilities, answer=0).axes[0].get_title() == "the right answer 0 ranks 3: 10.0 %"


def test_the_table_writes_the_likeliest_tokens_below_each_position(rng):
    probabilities = rng.dirichlet(np.ones(6), size=4)
    figure = prediction_table(probabilities, list("wxyz"), top=3, targets=probabilities.argmax(axis=-1))
    (ax,) = figure.axes
    assert len(texts(ax)) == 12
    assert texts(ax)[:4] == [str(i) for i in probabilities.argmax(axis=-1)]
    assert len(ax.patches) == 4


def test_predictions_of_the_wrong_shape_are_refused():
    with pytest.raises(ShapeError, match=r"expected \(V,\)"):
        prediction_bars(np.ones((2, 3)))
    with pytest.raises(ShapeError, match="do not fit 1 input labels"):
        prediction_table(np.ones((2, 3)), ["a"])


def test_the_table_of_positions_is_drawn_on_a_scale_around_zero(tmp_path):
    figure = position_heat_map(sinusoidal(np.arange(10), 6))
    image = figure.axes[0].images[0]
    assert image.get_array().shape == (10, 6)
    assert image.norm.vmin == -image.norm.vmax
    save(position_heat_map(np.zeros((1, 1))), tmp_path / "zero.png")
    save(similarity_curve(similarity_by_distance(np.ones((1, 4)))), tmp_path / "one.png")


def test_layers_are_drawn_as_values_size_and_change(rng):
    figure = layer_curves(residual_statistics(rng.standard_normal((4, 5, 6))))
    values, size, change = figure.axes
    assert len(size.patches) == 4
    assert len(change.patches) == 3
    assert len(texts(size)) == 4
    assert [label.get_text() for label in size.get_xticklabels()] == ["embedding", "block 0", "block 1", "block 2"]
    assert values.get_title() == "values"
    with pytest.raises(LengthError, match="no layers"):
        layer_curves([])


def test_every_head_shows_its_score_and_its_name(rng):
    sharp = np.zeros((1, 12, 5, 5))
    sharp[..., 0] = 1 - 4e-5
    sharp[..., 1:] = 1e-5
    found = score_maps(sharp[:, None], np.ones((1, 5, 5), dtype=bool))
    assert found.statistics.specialization.max() < 1
    assert set(texts(head_specialization(found).axes[0])) == {"1.00"}

    found = statistics(rng, L=2, H=3)
    figure = head_specialization(found)
    shown = texts(figure.axes[0])
    assert len(shown) == 6
    assert shown[0] == f"{found.statistics.specialization[0, 0]:.2f}\n{found.kinds[0][0]}"


def test_every_head_gets_bars_of_the_positions_it_looks_at(rng):
    found = statistics(rng)
    figure = head_positions(found, list("vwxyz"))
    assert len(figure.axes) == 4
    for number, ax in enumerate(figure.axes):
        heights = [patch.get_height() for patch in ax.patches if hasattr(patch, "get_height")]
        np.testing.assert_allclose(heights, found.statistics.received[divmod(number, 2)])
        # All panels have the same positions, so the lowest ones name them.
        assert [label.get_text() for label in ax.get_xticklabels()] == (list("vwxyz") if number >= 2 else [])


def test_of_many_heads_every_kind_is_shown(rng):
    sharp = np.zeros((2, 12, 6, 6))
    sharp[:, :] = np.eye(6)  # most heads look at themselves
    sharp[1, 7] = 1 / 6  # one looks everywhere
    found = score_maps(sharp[:, None], np.ones((1, 6, 6), dtype=bool))
    titles = [ax.get_title() for ax in head_positions(found).axes]
    assert len(titles) == 16
    assert "layer 1, head 7: broad" in titles


def test_hundreds_of_positions_and_a_single_one(rng, tmp_path):
    long = rng.dirichlet(np.ones(300), size=(1, 1, 2))
    found = score_maps(long[:, None], np.ones((1, 2, 300), dtype=bool), is_cross=True)
    save(head_positions(found), tmp_path / "long.png")
    single = score_maps([np.ones((1, 1, 1, 1))], np.ones((1, 1, 1), dtype=bool))
    save(head_positions(single), tmp_path / "single.png")
    save(head_specialization(single), tmp_path / "score.png")
