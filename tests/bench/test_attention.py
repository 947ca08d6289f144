"""Attention as it is measured: the same numbers for everyone, costs by the formulas, the powers that are fitted."""

import numpy as np
import pytest

from benches import be_brief, contend_here
from glassformer.bench import attention, machine
from glassformer.bench.attention import CHANNELS, HEADS, JAX, NAMES, PEERS, TORCH, Cost, cost, exponent, visible
from glassformer.bench.attention_steps import Jax, Ours, Torch, pattern_of
from glassformer.bench.report import BYTES, SECONDS
from glassformer.bench.timing import Race

SIZES = {"lengths": [9, 16], "heads": 2, "channels": 4}


def quiet(text):
    pass


@pytest.mark.parametrize("way", ["tiled", "dense", "whole", "window", "strided"])
@pytest.mark.parametrize("engine", ["numpy", "cpu"])
def test_every_way_attends_at_every_length_and_tells_the_time_of_each_pass(way, engine):
    ours = Ours(way=way, engine=engine, **SIZES)
    for _ in range(2):
        assert ours.step() > 0
    facts = ours.facts()
    assert np.shape(facts["sample"]) == (4, 16)
    for part in ("forward", "backward"):
        assert [(length, len(seconds)) for length, seconds in facts[part]] == [(9, 2), (16, 2)]


def test_all_peers_and_all_causal_ways_compute_the_same(torch, jax):
    contenders = [
        Torch(**SIZES),
        Jax(**SIZES),
        *(Ours(way=way, engine="cpu", **SIZES) for way in ("tiled", "dense", "whole")),
    ]
    for contender in contenders:
        contender.step()
    check = attention.same_results({str(i): contender.facts() for i, contender in enumerate(contenders)})
    assert check.ok, check.error


@pytest.mark.parametrize("way", ["tiled", "window", "strided", "whole"])
@pytest.mark.parametrize("length", [1, 7, 64, 300])
def test_pairs_are_counted_as_the_mask_shows_them(way, length):
    expected = length**2 if way == "whole" else int(pattern_of(way, length).dense(length).sum())
    assert cost(way, length, heads=3).pairs == 3 * expected
    if way != "whole":
        assert visible(way, length) == expected


def test_costs_follow_the_formulas():
    pairs = 2 * 10  # two heads; 1 + 2 + 3 + 4 pairs in each
    assert cost("dense", 4, heads=2, channels=8) == Cost(pairs, 32 * pairs, 64 * pairs, 4 * (4 * 2 * 4 * 8 + 2 * 16))
    assert cost("tiled", 4, heads=2, channels=8) == Cost(pairs, 32 * pairs, 80 * pairs, 4 * (4 * 2 * 4 * 8 + 2 * 4))


def test_the_exponent_is_the_slope_on_logarithmic_scales():
    lengths = [128, 256, 1024]
    assert exponent(lengths, [3e-9 * length**1.5 for length in lengths]) == pytest.approx(1.5)


def made_up(monkeypatch, *, grows, slower=None):
    """Replace the measurement by seconds of 1e-6 · T to some power, the backward pass twice as long as the forward."""

    def run(ways, *, peers, seconds, talk, what):
        shown = {way: lengths for way, lengths in ways.items() if peers or way not in PEERS}
        facts, rounds = {}, {}
        for way, lengths in shown.items():
            forward = [(length, [9.0, 1e-6 * length**grows]) for length in lengths]  # the first was warming up
            backward = [(length, [2 * x for x in seconds]) for length, seconds in forward]
            facts[NAMES[way]] = {"forward": forward, "backward": backward, "sample": [[1.0, 2.0]] * 4}
            rounds[NAMES[way]] = [[sum(3e-6 * length**grows for length in lengths) * (1 + (NAMES[way] == slower))]]
        return Race(rounds), facts, []

    monkeypatch.setattr(attention, "run", run)


def test_the_report_of_the_growth_holds_powers_against_their_bars(monkeypatch):
    made_up(monkeypatch, grows=1.2)
    report = attention.growth(peers=True, seconds=1.0, talk=quiet)
    assert report.unit == SECONDS
    assert {bar.what.split(":")[0]: bar.ok for bar in report.bars} == {NAMES["window"]: False, NAMES["strided"]: True}
    assert report.facts["exponents"]["tiled"]["seconds"] == pytest.approx(1.2)
    row = report.facts["rows"][0]
    assert row["seconds"]["median"] == pytest.approx(3e-6 * row["length"] ** 1.2)
    flops = row["flops_forward"] + row["flops_backward"]
    assert row["flops_per_second"] == pytest.approx(flops / row["seconds"]["median"])


def test_the_report_of_one_length_compares_with_the_best_peer_if_there_is_one(monkeypatch):
    made_up(monkeypatch, grows=1.0, slower=TORCH)
    assert attention.speed(peers=True, seconds=1.0, talk=quiet).ratio == f"× as fast as {JAX}"
    made_up(monkeypatch, grows=1.0)
    report = attention.speed(peers=True, seconds=1.0, talk=quiet)
    assert report.ratio == f"× as fast as {TORCH}"
    assert [bar.value for bar in report.bars] == [1.0, 1.0]
    alone = attention.speed(peers=False, seconds=1.0, talk=quiet)
    assert TORCH not in alone.ratio
    assert len(alone.bars) == 1
    assert alone.to_dict()["ok"]


def test_the_report_of_memory_holds_tiles_against_dense(monkeypatch):
    sizes = {"tiled": 10, "dense": 200, "whole": 250}
    monkeypatch.setattr(attention, "grown_bytes", lambda way, length: sizes[way])
    monkeypatch.setattr(machine, "is_here", lambda module: module not in PEERS)
    report = attention.memory(peers=True, talk=quiet)
    assert report.unit == BYTES
    assert [figure.value.median for figure in report.figures] == [10, 200, 250]
    (bar,) = report.bars
    assert (bar.value, bar.ok) == (0.05, True)
    assert any("PyTorch is not installed" in note for note in report.notes)


def test_a_step_lets_a_fresh_process_grow_by_what_it_keeps(monkeypatch):
    """In a process that has lived, the arrays of a step may fit into memory that it already holds."""
    monkeypatch.setattr(attention, "best_engine", lambda: "numpy")
    assert attention.grown_bytes("dense", 1024) > 0.9 * HEADS * 1024 * 1024 * 4
    assert attention.contender("dense")[1]["channels"] == CHANNELS


def test_attention_is_measured_here(monkeypatch):
    contend_here(monkeypatch)
    be_brief(monkeypatch)
    monkeypatch.setattr(attention, "LENGTH", 32)
    monkeypatch.setattr(attention, "LENGTHS", {"tiled": (16, 32), "window": (16, 32)})
    speed = attention.speed(peers=False, seconds=0.01, talk=quiet, length=32)
    assert speed.ok
    assert [figure.name for figure in speed.figures] == [NAMES[way] for way in ("tiled", "dense", "whole")]
    growth = attention.growth(peers=False, seconds=0.01, talk=quiet)
    assert [figure.name for figure in growth.figures] == [
        f"{NAMES[way]}, {length}" for way in ("tiled", "window") for length in (16, 32)
    ]
