"""A training step as it is measured: the same work for everyone, the bars, and what is missing."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from benches import be_brief, contend_here
from glassformer.bench import machine, train
from glassformer.bench.steps import Floor, Ours, Prepared, Problem
from glassformer.bench.timing import Race
from glassformer.bench.train import COMPILED, EAGER, JAX, NUMPY, OURS, SETTINGS, SHARDED, THREADED, Setting
from glassformer.tree import count

MINUTE = Setting(layers=2, width=8, heads=2, length=4, batch=3, vocab=5)


def test_eager_pytorch_computes_the_same_step(torch, monkeypatch):
    """PyTorch beside ours; what takes long to compile is left out."""
    contend_here(monkeypatch)
    be_brief(monkeypatch)
    kept = (NUMPY, EAGER, THREADED)
    some = lambda setting, **asked: [p for p in contenders(setting, **asked) if p.name in kept or p.close()]  # noqa: E731
    contenders = train.contenders
    monkeypatch.setattr(train, "contenders", some)
    report = train.step_time("tiny", MINUTE, peers=True, seconds=0.01, talk=lambda text: None)
    assert report.ratio == f"× as fast as {EAGER}"
    assert [check.what.split(",")[0] for check in report.checks] == [
        "first losses of all contenders",
        "loss against PyTorch",
        "gradients against PyTorch",
    ]
    assert report.ok, report.checks


def test_peers_that_are_missing_are_named_and_no_error(monkeypatch):
    monkeypatch.setattr(machine, "is_here", lambda module: False)
    notes = []
    for wanted in train.contenders(MINUTE, peers=True, notes=notes):
        wanted.close()
    assert notes == [
        "Numba is not installed, so the engine cpu was not measured: pip install numba",
        "PyTorch is not installed, so it was not measured: pip install torch",
        "JAX is not installed, so it was not measured: pip install jax",
    ]


def test_settings_are_those_of_the_published_rows():
    assert [setting.words for setting in SETTINGS.values()] == [
        "1 layer, width 32, 4 heads, 8 tokens × 32, vocabulary 3",
        "4 layers, width 128, 4 heads, 64 tokens × 12, vocabulary 65",
        "6 layers, width 384, 6 heads, 256 tokens × 4, vocabulary 65",
    ]


def test_everyone_gets_the_same_weights_and_batches():
    first, second = Problem(**asdict(MINUTE)), Problem(**asdict(MINUTE))
    config = first.model.config
    assert (config.tied_head, config.positions, config.activation) == (True, "learned", "gelu_tanh")
    assert not any([config.dropout, config.attention_bias, config.feed_forward_bias, config.norm_bias])
    assert count(first.params()) == count(second.params())
    for one, other in zip(first.batches, second.batches, strict=True):
        assert one.tokens.shape == (3, 4)
        np.testing.assert_array_equal(one.tokens, other.tokens)
        np.testing.assert_array_equal(one.tokens[:, 1:], one.targets[:, :-1])


def test_prepared_batches_come_in_turns():
    batches = Problem(**asdict(MINUTE)).batches
    data = Prepared(batches)
    assert data.batch(len(batches) + 1, 3, 0) is batches[1]
    np.testing.assert_array_equal(data.batch(0, 3, 0, rows=[2, 0]).tokens, batches[0].tokens[[2, 0]])


def test_our_contender_learns():
    ours = Ours(engine="numpy", **asdict(MINUTE))
    for _ in range(30):
        ours.step()
    assert len(ours.facts()["losses"]) == 6
    assert ours.advance() < ours.losses[0]
    ours.threads.close()


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_the_floor_multiplies_as_much_in_any_number_of_shards(shards, monkeypatch):
    done = []
    multiply = np.matmul
    monkeypatch.setattr(np, "matmul", lambda a, b, out: done.append(flops(a, b)) or multiply(a, b, out=out))
    Floor(shards=shards, **asdict(MINUTE)).step()
    N, D, T, L, V = 12, 8, 4, 2, 5
    forward = L * (N * 12 * D * D + 2 * 3 * T * T * D) + N * D * V
    assert sum(done) == 2 * 3 * forward


def flops(a, b):
    return 2 * a.size * b.shape[-1]


def race_of(**seconds):
    names = {"ours": OURS, "numpy": NUMPY, "eager": EAGER, "compiled": COMPILED, "floor": THREADED, "shards": SHARDED}
    return Race({names[name]: [[value]] * 3 for name, value in seconds.items()})


def test_bars_compare_with_the_better_pytorch_and_the_products():
    result = race_of(ours=1.0, numpy=2.0, eager=1.6, compiled=1.5, floor=0.8, shards=0.5)
    speed, floor = train.bars("medium", result, COMPILED, SHARDED)
    assert (speed.value, speed.bar, speed.ok) == (1.5, 1.15, True)
    assert (floor.value, floor.bar, floor.ok) == (2.0, 1.3, False)
    assert [bar.bar for bar in train.bars("small", result, COMPILED, SHARDED)] == [1.3]


def test_the_best_peer_is_the_best_of_all(monkeypatch):
    seconds = {OURS: 1.0, NUMPY: 2.0, EAGER: 1.6, COMPILED: 1.5, JAX: 1.25, THREADED: 0.5}
    facts = {"losses": [1.0], "parameters": 1}
    ready = {name: SimpleNamespace(name=name, facts=facts) for name in seconds}
    race = Race({name: [[value]] for name, value in seconds.items()})
    monkeypatch.setattr(train, "contenders", lambda *_, **__: [])
    monkeypatch.setattr(train, "compete", lambda *_, **__: (race, ready))
    monkeypatch.setattr(train, "same_gradients", lambda setting: [])
    report = train.step_time("small", MINUTE, peers=True, seconds=1.0, talk=print)
    assert report.ratio == f"× as fast as {JAX}"
    assert report.facts["baseline"] == JAX
    assert report.bars[0].value == 1.25


def test_memory_is_compared_with_the_least_of_all_peers(monkeypatch):
    grown = {"Ours": 30, "Torch": 40, "Jax": 20}
    monkeypatch.setattr(
        train, "call", lambda what, asked: {"growth": grown[asked["build"].split(":")[1]], "peak": 0, "imports": 0}
    )
    monkeypatch.setattr(machine, "is_here", lambda module: True)
    report = train.step_memory("small", MINUTE, peers=True, talk=print)
    assert report.ratio == f"of what {JAX} takes"
    assert [figure.ratio.median for figure in report.figures] == [1.5, 2.0, 1.0]
    assert report.bars[0].value == 1.5


def test_without_peers_or_kernels_there_is_less_to_compare():
    alone = race_of(ours=1.0, numpy=2.0, floor=1.0)
    assert [bar.at_most for bar in train.bars("medium", alone, NUMPY, THREADED)] == [True]
    assert train.bars("medium", race_of(numpy=2.0, floor=1.0), NUMPY, THREADED) == []


def test_losses_that_differ_are_found():
    facts = {"A": {"losses": [2.0, 1.5, 1.25]}, "B": {"losses": [2.0, 1.5]}, "products": {"losses": []}}
    assert train.same_losses(facts).ok
    facts["C"] = {"losses": [2.0, 1.5003]}
    check = train.same_losses(facts)
    assert not check.ok
    assert check.error == pytest.approx(2e-4)
