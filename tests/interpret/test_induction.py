"""Induction, from nothing to a circuit: one command trains it, detectors name its heads, ablation takes it apart.

A head of the first layer writes at every token which one came before; heads of the second look for their own token
there, and so find what followed it (Elhage et al. 2021). Trained once, for all that is asked of it here.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer import ops
from glassformer.interpret import detect_heads, head_scores, repeated_tokens, watch, zero
from glassformer.runs.replay import detected_heads, measure
from runs import command

pytestmark = pytest.mark.usefixtures("numpy_engine")

MODEL = {"block": "attention_only", "width": 48, "layers": 2, "heads": 4, "tied_head": "false"}
QUICK = {"batch": 32, "lr": 4e-3, "warmup": 50, "eval_every": 300, "train": 10_000, "validation": 32, "held_out": 32}
STEPS = 300
LENGTH, SYMBOLS = 11, 26


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    """The training, as it can be returned to."""
    folder = tmp_path_factory.mktemp("induction") / "run"
    settings = [part for name, value in {**MODEL, **QUICK}.items() for part in ("--set", f"{name}={value}")]
    trained = command("train", "induction", *settings, "--steps", STEPS, "--record", "--out", folder, "--json")
    assert trained.code == 0, trained.err
    return gf.replay(folder)


@pytest.fixture(scope="module")
def found(replay):
    """The model at the end, and the heads that its detectors name: those before, and those that look for them."""
    trained = replay.at(-1).trained
    named = detect_heads(trained.model, trained.params)["decoder"].named()
    heads = {
        kind: [(one.layer, one.head) for one in named if one.kind == kind] for kind in ("previous token", "induction")
    }
    return trained, heads


@pytest.fixture(scope="module")
def run(found):
    """A run on sequences that come twice; the loss is that of their second time, where every token can be known."""
    tokens = repeated_tokens(SYMBOLS, LENGTH, 16, seed=1)
    targets = np.roll(tokens, -1, axis=1)
    targets[:, :LENGTH] = targets[:, -1] = ops.IGNORE
    return watch(found[0].model, found[0].params, gf.Batch(tokens, targets))


def induction_of(run):
    """The strongest induction score of the second layer."""
    return float(head_scores(run)["decoder"].scores["induction"][1].max())


def test_detectors_name_the_heads_of_the_circuit_and_without_them_there_is_no_induction(found, run):
    _, heads = found
    assert heads["previous token"]
    assert {layer for layer, _ in heads["previous token"]} == {0}
    assert len(heads["induction"]) >= 2
    assert {layer for layer, _ in heads["induction"]} == {1}
    assert induction_of(run) > 0.7
    assert run.loss < 0.1

    before = run.changed(*(zero("blocks.0.attention.output.x", head=head) for _, head in heads["previous token"]))
    assert induction_of(before) < 0.25
    assert before.loss > np.log(SYMBOLS) / 2
    others = sorted(set(range(4)) - {head for _, head in heads["previous token"]})
    assert induction_of(run.changed(*(zero("blocks.0.attention.output.x", head=head) for head in others))) > 0.7


def test_the_replay_shows_the_step_at_which_it_happens(replay):
    steps = range(0, STEPS + 1, 25)
    course = measure(replay, steps, {"heads": detected_heads("previous token", "induction")})
    strongest = course["heads.induction"][:, 1].max(axis=1)
    before = course["heads.previous token"][:, 0].max(axis=1)
    happened = int(np.argmax(strongest > 0.5))
    assert 0 < happened < len(steps) - 1
    assert np.all(strongest[:happened] < 0.5)
    assert np.all(strongest[happened:] > 0.5)
    assert before[happened] > 0.4  # what it looks for is there already
    assert course["loss"][happened] < course["loss"][1] / 2


def test_the_page_about_it_runs_as_printed(replay, capsys):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "looking_inside.md").read_text(encoding="utf-8")
    [block] = [
        block for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "runs/induction" in block
    ]
    exec(block.replace("runs/induction", str(replay.run.folder)), {})
    said = capsys.readouterr().out
    assert "previous token" in said
    assert "layer 1" in said
