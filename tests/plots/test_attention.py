"""Heat maps of attention: one panel for each head, labels on both sides, numbers where they fit."""

import numpy as np
import pytest

from glassformer.errors import ShapeError
from glassformer.plots import attention_grid, attention_heads, full_against_causal, save


def weights(rng, *shape):
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def maps(figure):
    """The axes that hold heat maps, without the color bar."""
    return [ax for ax in figure.axes if ax.images]


def tick_texts(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_small_maps_show_labels_and_every_weight(rng):
    w = weights(rng, 3, 4, 4)
    figure = attention_heads(w, list("abcd"))
    assert len(maps(figure)) == 3
    for head, ax in enumerate(maps(figure)):
        assert len(ax.texts) == 16
        assert ax.get_title() == f"head {head + 1}"
        assert tick_texts(ax.xaxis) == tick_texts(ax.yaxis) == list("abcd")
    assert maps(figure)[0].texts[0].get_text() == f"{w[0, 0, 0]:.2f}"[1:]


def test_forbidden_cells_hold_no_number(rng):
    allowed = np.tri(4, dtype=bool)
    figure = attention_heads(np.tri(4)[None] / np.arange(1, 5)[:, None], list("abcd"), allowed=allowed)
    texts = [text.get_text() for text in maps(figure)[0].texts]
    assert len(texts) == 10
    assert texts[0] == "1.00"


def test_twelve_tokens_are_written_and_thirteen_are_not(rng):
    for count, written in ((12, 144), (13, 0)):
        figure = attention_heads(weights(rng, 1, count, count), ["x"] * count)
        assert len(maps(figure)[0].texts) == written


def test_sources_stand_below_and_targets_beside(rng, tmp_path):
    figure = attention_heads(weights(rng, 2, 2, 5), ["t1", "t2"], ["s1", "s2", "s3", "s4", "s5"])
    ax = maps(figure)[0]
    assert tick_texts(ax.xaxis) == ["s1", "s2", "s3", "s4", "s5"]
    assert tick_texts(ax.yaxis) == ["t1", "t2"]
    assert save(figure, tmp_path / "cross.png").stat().st_size > 1000


def test_all_maps_of_a_figure_share_one_scale(rng):
    figure = attention_heads(weights(rng, 3, 4, 4), list("abcd"))
    assert len({ax.images[0].norm.vmax for ax in maps(figure)}) == 1


def test_of_many_heads_the_first_sixteen_are_drawn(rng):
    figure = attention_heads(weights(rng, 20, 2, 2), list("ab"))
    assert len(maps(figure)) == 16
    assert "the first 16 of 20 heads" in figure.get_label()


def test_long_inputs_show_some_of_the_labels(rng, tmp_path):
    labels = [f"token{i}" for i in range(150)]
    figure = attention_heads(weights(rng, 1, 150, 150), labels)
    shown = tick_texts(maps(figure)[0].yaxis)
    assert 10 < len(shown) < 150
    assert shown[0] == "token0"
    assert save(figure, tmp_path / "long.png").stat().st_size > 1000


def test_one_token_is_a_map_too(tmp_path):
    figure = attention_heads(np.ones((2, 1, 1)), ["only"], allowed=np.ones((1, 1), dtype=bool))
    assert [text.get_text() for text in maps(figure)[0].texts] == ["1.00"]
    save(figure, tmp_path / "one.png")
    save(attention_grid(np.ones((1, 1, 1, 1))), tmp_path / "grid.png")
    save(full_against_causal(np.ones((1, 1)), np.ones((1, 1)), ["only"]), tmp_path / "masks.png")


def test_a_grid_has_a_row_for_each_layer_and_a_column_for_each_head(rng):
    figure = attention_grid(weights(rng, 3, 4, 5, 5))
    assert len(maps(figure)) == 12
    assert [ax.get_ylabel() for ax in maps(figure) if ax.get_ylabel()] == ["layer 1", "layer 2", "layer 3"]
    assert [ax.get_title() for ax in maps(figure)[:4]] == ["head 1", "head 2", "head 3", "head 4"]


def test_full_and_causal_stand_side_by_side(rng):
    figure = full_against_causal(weights(rng, 3, 3), np.tri(3) / np.arange(1, 4)[:, None], list("abc"))
    full, causal = maps(figure)
    assert len(full.texts) == 9
    assert len(causal.texts) == 6
    assert full.get_title().startswith("full")
    assert causal.get_title().startswith("causal")


def test_weights_that_do_not_fit_their_labels_are_refused(rng):
    with pytest.raises(ShapeError, match=r"shape \(2, 3, 3\) do not fit 4 query labels"):
        attention_heads(weights(rng, 2, 3, 3), list("abcd"))
