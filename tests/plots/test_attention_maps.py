"""Heat maps of attention: one panel for each head, labels on both sides, numbers where they fit."""

import numpy as np
import pytest

from glassformer.core.errors import ShapeError
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
        assert ax.get_title() == f"head {head}"
        assert tick_texts(ax.xaxis) == list("abcd")
    assert tick_texts(maps(figure)[0].yaxis) == list("abcd")
    assert maps(figure)[0].texts[0].get_text() == f"{w[0, 0, 0]:.2f}"[1:]


def test_forbidden_cells_hold_no_number_and_a_weight_that_rounds_to_one_is_one(rng):
    allowed = np.tri(4, dtype=bool)
    figure = attention_heads(np.tri(4)[None] / np.arange(1, 5)[:, None], list("abcd"), allowed=allowed)
    texts = [text.get_text() for text in maps(figure)[0].texts]
    assert len(texts) == 10
    assert texts[0] == "1.00"

    almost = np.array([[[0.999, 0.001], [0.5, 0.5]]])
    texts = [text.get_text() for text in maps(attention_heads(almost, list("ab")))[0].texts]
    assert texts == ["1.00", ".00", ".50", ".50"]


def test_sources_stand_below_and_targets_beside(rng, tmp_path):
    figure = attention_heads(weights(rng, 2, 2, 5), ["t1", "t2"], ["s1", "s2", "s3", "s4", "s5"])
    ax = maps(figure)[0]
    assert tick_texts(ax.xaxis) == ["s1", "s2", "s3", "s4", "s5"]
    assert tick_texts(ax.yaxis) == ["t1", "t2"]
    assert save(figure, tmp_path / "cross.png").stat().st_size > 1000


def test_of_many_heads_the_first_sixteen_are_drawn_and_the_title_says_so(rng):
    figure = attention_heads(weights(rng, 20, 2, 2), list("ab"))
    assert len(maps(figure)) == 16
    assert figure.get_suptitle() == "Attention (head 0 to head 15 of 20)"


def test_full_and_causal_stand_side_by_side(rng):
    figure = full_against_causal(weights(rng, 3, 3), np.tri(3) / np.arange(1, 4)[:, None], list("abc"))
    full, causal = maps(figure)
    assert len(full.texts) == 9
    assert len(causal.texts) == 6
    assert full.get_title().startswith("full")
    assert causal.get_title().startswith("causal")
    assert max(len(line) for ax in (full, causal) for line in ax.get_title().split("\n")) < 25, "titles overlap"


def test_panels_and_axes_are_named_even_of_a_single_head(rng):
    figure = attention_heads(weights(rng, 2, 2, 2), list("ab"), names=["before", "after"])
    assert [ax.get_title() for ax in maps(figure)] == ["before", "after"]
    with pytest.raises(ShapeError, match="1 names for 2 heads"):
        attention_heads(weights(rng, 2, 2, 2), list("ab"), names=["before"])
    figure = attention_heads(weights(rng, 1, 3, 3), list("abc"))
    (ax,) = maps(figure)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key (is looked at)", "query (looks)")
    assert figure.get_supylabel() == ""


@pytest.mark.parametrize(("shape", "axes"), [((2, 3), ("head", "layer")), ((3, 2), ("layer", "head"))])
def test_every_map_of_a_grid_stands_in_its_place(shape, axes):
    w = np.zeros((*shape, 4, 4))
    w[1, 0, 2, 3] = 1
    ax = attention_grid(w).axes[0]
    row, column = (1, 0) if shape == (2, 3) else (0, 1)
    image = ax.images[0].get_array()
    assert np.argwhere(image == 1).tolist() == [[row * 4 + 2, column * 4 + 3]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == axes


def test_long_sequences_keep_the_largest_weights_and_labels_must_fit(rng):
    w = np.zeros((1, 2, 300, 300))
    w[0, 0, 299, 7] = 1
    figure = attention_grid(w, allowed=np.tri(300, dtype=bool))
    image = figure.axes[0].images[0].get_array()
    assert image.shape == (60, 120)
    assert image[59, 1] == 1
    assert np.ma.is_masked(image[0, 59])
    assert "the largest weight of 5 tokens" in figure.get_label()

    with pytest.raises(ShapeError, match=r"shape \(2, 3, 3\) do not fit 4 query labels"):
        attention_heads(weights(rng, 2, 3, 3), list("abcd"))


@pytest.mark.parametrize(("heads", "size"), [(1, 3), (3, 16), (16, 12)])
def test_long_labels_leave_the_names_of_the_axes_inside_the_figure(rng, heads, size):
    figure = attention_heads(weights(rng, heads, size, size), [f"{n} internationalization" for n in range(size)])
    figure.draw_without_rendering()
    for ax in maps(figure):
        for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
            box = text.get_window_extent()
            assert min(box.x0, box.y0) >= 0
            assert box.x1 <= figure.bbox.x1
