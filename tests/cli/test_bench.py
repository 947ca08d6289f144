"""`glassformer bench`: what is measured, how it is told, and what happens when something is missing or misused."""

import json
from dataclasses import replace

import pytest

from benches import be_brief
from glassformer.bench import process, train
from glassformer.bench.report import SECONDS, Bar, Check, Figure, Report
from glassformer.bench.timing import Spread
from glassformer.cli import bench
from glassformer.cli.bench import seconds_text
from runs import command

MINUTE = train.Setting(layers=1, width=8, heads=2, length=4, batch=2, vocab=5)
QUICK, FASTER, SLOW = Spread(0.0021, 0.002, 0.0022, 9), Spread(2.5, 2.4, 2.6, 3), Spread(5.0, 5.0, 5.0, 1)
REPORT = Report(
    name="train/tiny",
    title="one training step",
    unit=SECONDS,
    ratio="× as fast as B",
    figures=[Figure("A", QUICK, FASTER), Figure("B", SLOW)],
    bars=[Bar("steps while B takes one", 2.5, 2.0), Bar("time by that of C", 1.4, 1.3, at_most=True)],
    checks=[Check("losses", 1e-7, 1e-4)],
    notes=["JAX is not installed [here]"],
)


@pytest.fixture
def said(monkeypatch):
    """Let the command find a fixed report instead of measuring."""

    def reports(report=REPORT):
        monkeypatch.setattr(bench, "_reports", lambda chosen, **settings: iter([report]))

    reports()
    return reports


@pytest.fixture
def minute(monkeypatch):
    """Measure the smallest model there is, as briefly as possible."""
    be_brief(monkeypatch)
    monkeypatch.setitem(train.SETTINGS, "tiny", MINUTE)
    monkeypatch.setitem(train.SETTINGS, "small", MINUTE)
    monkeypatch.setattr(train, "MEMORY_RUNS", 1)


def test_help_names_every_benchmark_and_option():
    result = command("bench", "--help")
    assert result.code == 0
    for text in ("WHAT", "train, generate,", "--no-peers", "--only", "--seconds", "--model", "--json"):
        assert text in result.out


def test_people_see_ratios_figures_bars_and_notes(said):
    result = command("bench", "train")
    assert result.code == 0
    for text in ("ratio: × as fast as B", "2.50", "2.40 – 2.60", "2.10 ms", "2.00 – 2.20 ms", "5.00 s"):
        assert text in result.out
    assert "steps while B takes one: 2.50, bar ≥ 2: reached" in result.out
    assert "time by that of C: 1.40, bar ≤ 1.3: missed" in result.out
    assert "losses: 1.0e-07, limit 0.0001: same" in result.out
    assert "note: JAX is not installed [here]" in result.out


def test_programs_get_one_object_with_the_machine_and_all_reports(said):
    result = command("bench", "--json")
    assert result.code == 0
    found = json.loads(result.out)
    assert list(found) == ["machine", "ok", "reports"]
    assert {"cpu", "cores", "versions", "blas"} <= found["machine"].keys()
    assert found["reports"] == [REPORT.to_dict()]


def test_different_results_are_a_failure_and_a_missed_bar_is_not(said):
    said(replace(REPORT, checks=[Check("losses", 0.1, 1e-4)]))
    result = command("bench", "train")
    assert result.code == 1
    assert "DIFFERENT" in result.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian"], "there is no benchmark 'trian'\n\nhint: did you mean 'train'?"),
        (["train", "--only", "tinny"], "train has no part 'tinny'\n\nhint: did you mean 'tiny'?"),
        (["startup", "--only", "tiny"], "startup has no part 'tiny'\n\nhint: leave out --only"),
        (["--only", "large"], "bench has no part 'large'"),
        (["train", "--seconds", "0"], "--seconds is 0"),
        (["train", "--seconds", "-3"], "--seconds is -3"),
        (["generate", "--model", "nowhere.gguf"], "there is no file nowhere.gguf"),
        (["train", "--seconds", "soon"], "--seconds"),
    ],
)
def test_misuse_is_answered_with_a_remedy(args, message):
    result = command("bench", *args)
    assert result.code == 2
    assert message in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("what", "only", "chosen"),
    [
        ([], [], {"train": [], "generate": [], "attention": [], "startup": []}),
        (["startup", "train"], [], {"startup": [], "train": []}),
        (["train"], ["small", "tiny"], {"train": ["small", "tiny"]}),
        ([], ["gpt2"], {"generate": ["gpt2"]}),
        ([], ["gpt2", "tiny"], {"train": ["tiny"], "generate": ["gpt2"]}),
    ],
)
def test_parts_choose_their_benchmarks(what, only, chosen):
    assert bench._chosen(what, only) == chosen


@pytest.mark.slow
def test_a_training_step_is_measured_here(minute):
    result = command("bench", "train", "--only", "tiny", "--no-peers", "--seconds", "0.01", "--json")
    assert result.code == 0, result.err
    time, memory = json.loads(result.out)["reports"]
    assert (time["name"], time["unit"]) == ("train/tiny", "seconds")
    assert (memory["name"], memory["unit"]) == ("train/tiny/memory", "bytes")
    names = [figure["name"] for figure in time["figures"]]
    assert train.NUMPY in names
    assert train.THREADED in names
    assert not {train.EAGER, train.COMPILED, train.JAX} & set(names)
    for figure in [*time["figures"], *memory["figures"]]:
        assert figure["value"]["low"] <= figure["value"]["median"] <= figure["value"]["high"]
    assert [check["ok"] for check in time["checks"]] == [True]
    assert time["facts"]["parameters"] == 5 * 8 + 4 * 8 + 12 * 8 * 8 + 3 * 8
    assert "measuring: train/tiny" in result.err


def test_a_missing_model_is_said_and_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path))
    result = command("bench", "generate", "--only", "smollm2")
    assert result.code == 0
    assert "note: SmolLM2 is not here, so it was not measured: glassformer pull smollm2" in result.out


def test_a_contender_of_ours_that_fails_ends_the_command(monkeypatch):
    def broken(*args, **settings):
        raise process.ContenderError("glassformer, engine cpu failed: ValueError: no")

    monkeypatch.setattr(bench, "bench_train", broken)
    result = command("bench", "train")
    assert result.code == 1
    assert result.err.endswith("error: glassformer, engine cpu failed: ValueError: no\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (123.4, "123 s"),
        (12.34, "12.3 s"),
        (1.234, "1.23 s"),
        (0.01234, "12.3 ms"),
        (4.5e-6, "4.50 µs"),
        (1e-8, "0.01 µs"),
    ],
)
def test_times_have_three_digits(seconds, text):
    assert seconds_text(seconds) == text
