"""No option is ignored: each changes what a command does, or is refused."""

import io
import string
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import glassformer as gf
from glassformer.cli import chat, inspect, train
from glassformer.core import dispatch
from glassformer.core.tree import flatten
from oracles import require
from runs import PROSE, command, tiny_session

# {text}, {sort} and {majority} are runs, {saved} is a model that `gf.save` wrote, {notes} a text, {file} some file;
# {out} is a path where nothing is yet.
GENERATE = "generate {text} Th --max-new-tokens 12"
LETTERS = " ".join(f"--stop {letter}" for letter in string.ascii_lowercase)
PLAN = "plan tiny-decoder --mesh data=2 --json"
CHAT = "chat {text}"
JAX = "train counting --engine jax"
OF_JAX = "is a setting of the engine jax"
TOGETHER = "several processes train together under JAX only"

CHANGES = {
    "train text": [
        "--data {notes}", "--text body", "--tokenizer bpe", "--preset gpt2", "--from {text}", "--set width=16",
        "--steps 3", "--seed 3", "--out elsewhere", "--tensorboard", "--record", "--engine cpu", "--json",
    ],
    "train classify": ["--label stars"],
    "train pairs": ["--source en", "--target de"],
    "train text --from {text}": ["--lora"],
    JAX: ["--mesh data=2", "--precision bfloat16", "--scan", "--remat", "--rules head.w=fsdp,none"],
    "eval {majority} --json": ["--checkpoint latest"],
    "eval {majority}": ["--json"],
    "tasks": ["--json"],
    "settings recipe": ["--json"],
    "runs {majority}": ["--json"],
    "tokens {notes} --out {out}": ["--out {out}.other", "--tokenizer bytes", "--json"],
    "tokens {notes} --out {out} --tokenizer bpe": ["--tokenizer-size 270"],
    "inspect {majority}": ["--out elsewhere", "--checkpoint latest", "--theme dark", "--format svg", "--json"],
    "look {majority} 00112220": ["--token #0", "--json"],
    "look {majority} 00112220 attribution --token #0": ["--against #1"],
    "look {text} The gradients": ["--position 0"],
    "look {majority} 00112220 patching --other 00112221": ["--other 11111111"],
    "look {majority} 00112220 ablation": ["--way mean"],
    "look {majority} 00112220 neurons": ["--top 3"],
    "params tiny-decoder --json": ["--batch 3", "--length 3", "--dtype float16", "--set window=2"],
    "params tiny-decoder": ["--json"],
    PLAN: [
        "--mesh data=4", "--device-memory 1GB", "--batch 8", "--length 3", "--accumulate 2", "--precision float32",
        "--optimizer lion", "--remat", "--ema", "--set layers=9",
    ],
    "plan tiny-decoder --mesh data=2": ["--json"],
    GENERATE: [
        "--lens", "--max-new-tokens 3", "--temperature 0", "--top-k 1", "--top-p 0.05", "--min-p 0.99",
        "--repetition-penalty 9", "--frequency-penalty -50", "--presence-penalty -50", "--beams 2", "--n 2",
        "--seed 9", "--logprobs", "--json",
    ],
    "generate {text} --max-new-tokens 12": ["Th"],
    f"{GENERATE} --beams 2 --json": ["--length-penalty 3"],
    f"{GENERATE} --frequency-penalty -50 --json": [LETTERS],
    "generate {text} Th --max-new-tokens 40": ["--no-slide"],
    "generate {text} TheTheTheTheTheTheThe --max-new-tokens 2": ["--truncate"],
    f"{GENERATE} --logprobs --json": ["--weights float16"],
    "predict {majority} 00112220": ["--top 2", "--json"],
    "predict {text} TheTheTheTheTheTheThe": ["--truncate"],
    CHAT: [
        "--system brief", "--max-new-tokens 3", "--temperature 0", "--top-k 1", "--top-p 0.5", "--seed 3",
        "--weights int8", "--engine cpu",
    ],
    "tokenize {text} The": ["--json"],
    "look {majority} 00112220 heads --json": ["--top 1"],
    "look {majority} 00112220 patching --other 11112220 --token 2 --json": ["--top 1"],
    "export {text} {out}": ["--format gguf", "--json"],
    "export {text} {out} --format gguf": ["--weights f16"],
    "models": ["--json"],
}  # fmt: skip
"""For each line, what may be added to it: each gives another result or other files."""

REFUSED = [
    ("train counting --mesh data=1", OF_JAX),
    ("train counting --precision float16", OF_JAX),
    ("train counting --scan", OF_JAX),
    ("train counting --remat", OF_JAX),
    ("train counting --rules head.w=", OF_JAX),
    ("train counting --coordinator a:1", TOGETHER),
    ("train counting --processes 2", TOGETHER),
    ("train counting --process 0", TOGETHER),
    ("train counting --steps 3 --set steps=4", "steps is given twice"),
    ("train counting --lora", "--lora needs a model to start from"),
    ("train text --from {text} --preset gpt2", "--preset builds a new model"),
    ("train --resume {text} --lora", "--resume continues a run with its own settings"),
    ("tokens {notes} --out {out} --tokenizer-size 300", "--tokenizer-size has no meaning for chars"),
    ("inspect {saved} The --checkpoint latest", "is no run, so it has no checkpoints"),
    (f"{PLAN} --precision float16 --set compute=bfloat16", "--precision is also given by --set"),
    (f"{PLAN} --remat --set remat=false", "--remat is also given by --set"),
    (f"{GENERATE} --length-penalty 2", "length_penalty and early_stopping belong to beam search"),
    (f"{GENERATE} --beams 2 --top-k 3", "beam search takes the likeliest answer"),
    (f"{GENERATE} --beams 2 --seed 3", "beam search draws nothing"),
    ("predict {sort} 210210 --top 3", "this model writes its answer"),
    ("predict {sort} 210210 --truncate", "this model answers an input as a whole"),
    ("predict {majority} 00112220 --truncate", "this model answers an input as a whole"),
    ("replay {text} --frames 3 --step 1", "--step names the steps"),
    ("replay {text} --json --out {out}", "--json writes no page"),
    ("compare {text} {sort} --format svg", "--format is of the figure"),
    ("tokenize {text} The --specials", "never turns text into special tokens"),
    ("export {text} {out} --weights f16", "--weights is a setting of GGUF files"),
    ("predict {majority} 00112220 --engine jax", "on the engines cpu and numpy only"),
]  # fmt: skip
"""Options that have no meaning together, or for such a model, and what is said about them."""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    found = {"notes": folder / "notes.txt", "file": folder / "notes.txt", "saved": folder / "saved"}
    found["notes"].write_text(PROSE, encoding="utf-8")
    with dispatch.use_engine("numpy"):
        for task in ("text", "sort", "majority"):
            found[task] = folder / "runs" / task
            # The best of them is the first, so that it is not the latest.
            list(tiny_session(task, found[task], steps=3, eval_every=1, lr=3.0).steps())
    gf.save(gf.load(found["text"]), found["saved"])
    return found


@pytest.fixture(autouse=True)
def told(tmp_path, monkeypatch):
    """What commands that take long were asked for, instead of doing it."""
    found = []

    def tell(*words, **settings):
        found.append((words, settings, dispatch.engine()))

    def drawn(model, batch, folder, **settings):
        tell(folder, settings["theme"], settings["form"], [float(np.sum(x)) for x in flatten(model.params).values()])
        return [folder / "index.html"]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    session = SimpleNamespace(workers=None, opening=())
    monkeypatch.setattr(train, "new_session", lambda *w, **s: tell(*w, **s) or session)
    monkeypatch.setattr(train, "run_session", lambda session, **how: tell(**how) or {})
    monkeypatch.setattr(train, "print_summary", lambda *_: None)
    monkeypatch.setattr(train, "require_tensorboard", lambda wanted: None)
    monkeypatch.setattr("glassformer.plots.inspect_model", drawn)
    monkeypatch.setattr(inspect, "write_page", lambda *_: None)
    monkeypatch.setattr(chat, "load", tell)
    monkeypatch.setattr(chat, "Conversation", tell)
    dispatch.set_engine("numpy")
    return found


def outcome(words, places, out, told):
    """What a command says, writes and was asked for, where {out} is called the same each time."""
    if "--engine jax" in words:
        require("jax")
    told.clear()
    out.parent.mkdir()
    result = command(*(word.format(**places, out=out) for word in words.split()))
    files = {path.name: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()}
    return result, result.out.replace(str(out), "OUT"), files, [*told]


@pytest.mark.parametrize(("words", "more"), [(words, more) for words, found in CHANGES.items() for more in found])
def test_no_option_is_ignored(words, more, places, tmp_path, told):
    without, *first = outcome(words, places, tmp_path / "one" / "out", told)
    given, *second = outcome(f"{words} {more}", places, tmp_path / "two" / "out", told)
    assert without.code in (0, 1), without.err  # too long a prompt, for instance, fails
    assert given.code == 0, given.err
    assert "Traceback" not in without.err
    assert first != second


@pytest.mark.parametrize(("words", "fact"), REFUSED)
def test_what_has_no_meaning_is_refused(words, fact, places, tmp_path, told):
    result, _, files, asked = outcome(words, places, tmp_path / "three" / "out", told)
    assert result.code == 2, result
    assert fact in result.err
    assert "\n\nhint: " in result.err
    assert not files
    assert not asked
