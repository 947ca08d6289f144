"""Attention as it is measured: the same numbers from all contenders, and costs by the formulas."""

import pytest

from attention import Cost, cost, exponent, same_results, visible
from attention_length import draw
from peers.attention_steps import Jax, Ours, Torch, pattern_of

SIZES = {"lengths": [9, 16], "heads": 2, "channels": 4}


def test_all_contenders_compute_the_same(torch, jax):
    contenders = [Torch(**SIZES), Jax(**SIZES)]
    contenders += [Ours(way=way, engine="cpu", **SIZES) for way in ("tiled", "dense", "whole")]
    for contender in contenders:
        contender.step()
    check = same_results({str(i): contender.facts() for i, contender in enumerate(contenders)})
    assert check.ok, check.error


@pytest.mark.parametrize("way", ["tiled", "window", "strided"])
@pytest.mark.parametrize("length", [1, 7, 300])
def test_pairs_are_counted_as_the_mask_shows_them(way, length):
    assert visible(way, length) == int(pattern_of(way, length).dense(length).sum())


def test_costs_follow_the_formulas_and_the_exponent_is_the_slope():
    pairs = 2 * 10  # two heads; 1 + 2 + 3 + 4 pairs in each
    assert cost("dense", 4, heads=2, channels=8) == Cost(pairs, 32 * pairs, 64 * pairs, 4 * (4 * 2 * 4 * 8 + 2 * 16))
    assert cost("tiled", 4, heads=2, channels=8) == Cost(pairs, 32 * pairs, 80 * pairs, 4 * (4 * 2 * 4 * 8 + 2 * 4))
    lengths = [128, 256, 1024]
    assert exponent(lengths, [3e-9 * length**1.5 for length in lengths]) == pytest.approx(1.5)


def test_time_and_memory_are_drawn_side_by_side_on_logarithmic_scales():
    rows = [
        {"way": "dense", "length": length, "seconds": {"median": length / 1e4}, "grown_bytes": 8.0 * length}
        for length in (128, 256)
    ]
    figure = draw({"exponents": {"dense": {"seconds": 2.0}}, "rows": rows})
    time, memory = figure.axes
    assert {time.get_xscale(), time.get_yscale(), memory.get_yscale()} == {"log"}
    assert [line.get_label() for line in time.lines] == ["dense: time like $T^{2.00}$"]
    assert [list(line.get_ydata()) for line in memory.lines] == [[1024.0, 2048.0]]
    assert "dense takes 0.0256 s at 256 positions" in figure.get_label()
