"""Generation as it is measured: the same tokens from everyone, the rates, and the limit."""

import pytest

from benches import be_brief, contend_here
from glassformer.bench import generate, machine
from glassformer.bench.generate import COMPILED, FLOAT32, HUGGING_FACE, INT8, LIMIT, NUMPY
from glassformer.bench.process import Process
from glassformer.bench.timing import Race
from glassformer.bench.writers import read_per_token
from glassformer.models import build
from glassformer.tree import count
from oracles import require

SMALL = {"width": 16, "heads": 2, "layers": 2, "vocab": 300, "context": 32}


@pytest.fixture
def small(monkeypatch):
    """Measure a GPT-2 of a few thousand parameters, as briefly as possible."""
    contend_here(monkeypatch)
    be_brief(monkeypatch)
    monkeypatch.setattr(generate, "GPT2", {"preset": "gpt2", "changes": SMALL, "prompt": 6, "new": 8})
    monkeypatch.setattr(generate, "MATRIX", {"rows": 64, "columns": 32})


def measured(**settings):
    return generate.gpt2(seconds=0.01, talk=lambda text: None, **settings)


def test_our_engines_write_the_same_tokens(small):
    report = measured(peers=False)
    assert report.ok
    names = [figure.name for figure in report.figures]
    assert {NUMPY, LIMIT} <= set(names)
    assert HUGGING_FACE not in names
    assert len(report.facts[NUMPY]["tokens"]) == 8
    assert report.facts[NUMPY]["tokens_per_second_after_first"] > 0


def test_hugging_face_writes_the_same_tokens(small, torch, monkeypatch):
    require("transformers")
    monkeypatch.setattr(machine, "is_here", lambda module: module in ("torch", "transformers"))
    contenders = generate.gpt2_contenders
    some = lambda job, **asked: [p for p in contenders(job, **asked) if p.name != COMPILED or p.close()]  # noqa: E731
    monkeypatch.setattr(generate, "gpt2_contenders", some)  # to compile takes long
    report = measured(peers=True)
    assert report.ok, report.checks
    assert report.facts[HUGGING_FACE]["tokens"] == report.facts[NUMPY]["tokens"]
    assert len(set(report.facts[NUMPY]["tokens"])) > 1
    assert report.ratio == f"× as fast as {HUGGING_FACE}"
    assert report.notes == ["Numba is not installed, so the engine cpu was not measured: pip install numba"]


def test_rates_are_held_against_the_best_peer():
    seconds = {NUMPY: 9.0, FLOAT32: 2.0, INT8: 1.0, HUGGING_FACE: 6.0, COMPILED: 4.0}
    result = Race({name: [[value]] for name, value in seconds.items()})
    ready = {name: contender(name, [1] * 9, first=[0.5]) for name in seconds}
    bars = generate.gpt2_bars(result, ready, COMPILED, generate.Spread.of([8.0]))
    assert [(bar.what.split(":")[0], bar.value) for bar in bars[:2]] == [(FLOAT32, 2.0), (INT8, 4.0)]
    assert all("compiled" in bar.what for bar in bars[:2])


def contender(name, tokens, first=()):
    """Stand for a process that has written these tokens."""
    process = Process.__new__(Process)
    process.name, process.first = name, list(first)
    process.facts = {"tokens": tokens, "bytes_per_token": 500}
    return process


def test_tokens_that_differ_are_counted():
    ready = {name: contender(name, [1, 2, 3]) for name in (NUMPY, FLOAT32)}
    assert generate.same_tokens(ready).ok
    ready[HUGGING_FACE] = contender(HUGGING_FACE, [1, 5, 4])
    check = generate.same_tokens(ready)
    assert (check.error, check.ok) == (2, False)


def test_rates_come_with_and_without_the_first_token():
    process = contender("A", [1] * 9, first=[7.0, 1.0, 1.0, 1.0])
    result = Race({"A": [[5.0], [5.0], [5.0]]})
    assert generate.rate(result, "A", 9).median == 9 / 5
    assert generate.after_first(process, result, 9) == 8 / 4


def test_the_limit_is_the_best_bandwidth_over_the_bytes_of_a_token():
    ready = {NUMPY: contender(NUMPY, [])}
    for name in (generate.BLAS, generate.KERNEL):
        ready[name] = contender(name, [])
        ready[name].facts = {"bytes": 1000}
    result = Race({generate.BLAS: [[0.5]], generate.KERNEL: [[0.25]]})
    assert generate.bandwidth_limit(result, ready).median == (1000 / 0.25) / 500


@pytest.mark.parametrize("tied", [True, False])
def test_a_token_reads_all_weights_but_the_tables_it_looks_up(tied):
    model = build("tiny-decoder", tied_head=tied)
    params = model.init(0)
    config = model.config
    total = 4 * count(params)
    looked_up = config.context * config.width + (0 if tied else config.vocab * config.width)
    assert read_per_token(params, tied=tied) == total - 4 * looked_up
