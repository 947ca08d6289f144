"""No option is ignored: each of every command changes what happens, or is refused, as shown here or elsewhere."""

import ast
import io
import string
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import glassformer as gf
from glassformer import dispatch
from glassformer.cli import chat, inspect, train
from glassformer.cli.app import COMMANDS, load_command
from glassformer.tree import flatten
from oracles import require
from runs import PROSE, command, tiny_session


class Changes(NamedTuple):
    """Words that give another result, or other files, with some more than without."""

    words: str
    more: str


class Refused(NamedTuple):
    """Words that are refused, and what is said about them."""

    words: str
    fact: str


class Elsewhere(NamedTuple):
    """The test that shows it."""

    file: str
    name: str


# {text}, {sort} and {majority} are runs, {saved} is a model that `gf.save` wrote, {notes} a text, {file} some file;
# {out} is a path where nothing is yet.
GENERATE = "generate {text} --prompt Th --max-new-tokens 12"
LETTERS = " ".join(f"--stop {letter}" for letter in string.ascii_lowercase)
PLAN = "plan tiny-decoder --mesh data=2 --json"
CHAT = "chat {text}"
JAX = "train counting --engine jax"
OF_JAX = "is a setting of the engine jax"
TOGETHER = "several processes train together under JAX only"
DEMO = "test_it_proves_trains_and_writes_a_page_and_never_suggests_what_it_does_not_have"
DEMO = Elsewhere("cli/test_demo.py", DEMO)
PROCESSES = Elsewhere("cli/test_train_processes.py", "test_two_processes_have_the_losses_of_one")

OPTIONS = {
    "demo": {
        "--out": DEMO,
        "--json": DEMO,
    },
    "train": {
        "--task": Elsewhere("cli/test_own.py", "test_a_file_is_trained_on_and_every_command_finds_it_again"),
        "--data": Changes("train text", "--data {notes}"),
        "--preset": Changes("train text", "--preset gpt2"),
        "--from": Changes("train text", "--from {text}"),
        "--lora": Changes("train text --from {text}", "--lora"),
        "--set": Changes("train text", "--set width=16"),
        "--steps": Changes("train text", "--steps 3"),
        "--seed": Changes("train text", "--seed 3"),
        "--out": Changes("train text", "--out elsewhere"),
        "--anyway": Elsewhere("runs/test_continuation.py", "test_the_command_goes_on_anyway_and_the_run_shows_it"),
        "--resume": Elsewhere("cli/test_train.py", "test_a_finished_run_can_be_resumed_and_says_the_same"),
        "--tensorboard": Changes("train text", "--tensorboard"),
        "--record": Changes("train text", "--record"),
        "--engine": Changes("train text", "--engine cpu"),
        "--mesh": Changes(JAX, "--mesh data=2"),
        "--precision": Changes(JAX, "--precision bfloat16"),
        "--scan": Changes(JAX, "--scan"),
        "--remat": Changes(JAX, "--remat"),
        "--rules": Changes(JAX, "--rules head.w=fsdp,none"),
        "--coordinator": PROCESSES,
        "--processes": PROCESSES,
        "--process": PROCESSES,
        "--json": Changes("train text", "--json"),
    },
    "eval": {
        "--checkpoint": Changes("eval {majority} --json", "--checkpoint latest"),
        "--engine": Elsewhere("cli/test_evaluate.py", "test_the_engine_jax_measures_on_its_devices"),
        "--json": Changes("eval {majority}", "--json"),
    },
    "tasks": {"--json": Changes("tasks", "--json")},
    "settings": {
        "--from": Elsewhere("cli/test_finetune.py", "test_the_defaults_of_fine_tuning_are_listed"),
        "--lora": Elsewhere("cli/test_finetune.py", "test_the_defaults_of_fine_tuning_are_listed"),
        "--json": Changes("settings recipe", "--json")},
    "runs": {"--json": Changes("runs {majority}", "--json")},
    "compare": {
        "--out": Elsewhere("cli/test_compare.py", "test_everything_is_shown_side_by_side"),
        "--format": Elsewhere("cli/test_compare.py", "test_json_gives_everything"),
        "--samples": Elsewhere("cli/test_compare.py", "test_a_run_without_steps_is_compared_as_far_as_it_goes"),
        "--json": Elsewhere("cli/test_compare.py", "test_json_gives_everything"),
    },
    "tokens": {
        "--out": Changes("tokens {notes} --out {out}", "--out {out}.other"),
        "--tokenizer": Changes("tokens {notes} --out {out}", "--tokenizer bytes"),
        "--bpe-size": Changes("tokens {notes} --out {out} --tokenizer bpe", "--bpe-size 270"),
        "--json": Changes("tokens {notes} --out {out}", "--json"),
    },
    "inspect": {
        "--out": Changes("inspect {majority}", "--out elsewhere"),
        "--checkpoint": Changes("inspect {majority}", "--checkpoint latest"),
        "--theme": Changes("inspect {majority}", "--theme dark"),
        "--format": Changes("inspect {majority}", "--format svg"),
        "--json": Changes("inspect {majority}", "--json"),
    },
    "explore": {
        "--prompt": Elsewhere("cli/test_explore.py", "test_the_page_begins_with_the_model_and_the_prompt"),
        "--runs": Elsewhere("cli/test_explore.py", "test_runs_of_a_folder_are_offered"),
        "--port": Elsewhere("cli/test_explore.py", "test_a_port_can_be_chosen_and_one_in_use_is_refused"),
        "--browser": Elsewhere("cli/test_explore.py", "test_a_browser_is_opened_unless_it_is_not_wanted"),
    },
    "replay": {
        "--frames": Elsewhere("cli/test_replay.py", "test_every_option_has_its_effect"),
        "--step": Elsewhere("cli/test_replay.py", "test_every_option_has_its_effect"),
        "--out": Elsewhere("cli/test_replay.py", "test_every_option_has_its_effect"),
        "--engine": Elsewhere("cli/test_replay.py", "test_every_option_has_its_effect"),
        "--json": Elsewhere("cli/test_replay.py", "test_everything_is_there_as_json"),
    },
    "look": {
        "--token": Changes("look {majority} 00112220", "--token #0"),
        "--against": Changes("look {majority} 00112220 attribution --token #0", "--against #1"),
        "--position": Changes("look {text} The gradients", "--position 0"),
        "--other": Changes("look {majority} 00112220 patching --other 00112221", "--other 11111111"),
        "--way": Changes("look {majority} 00112220 ablation", "--way mean"),
        "--top": Changes("look {majority} 00112220 neurons", "--top 3"),
        "--figure": Elsewhere("cli/test_look.py", "test_a_figure_and_a_page_are_written"),
        "--page": Elsewhere("cli/test_look.py", "test_a_figure_and_a_page_are_written"),
        "--json": Changes("look {majority} 00112220", "--json"),
    },
    "check": {
        "--engine": Elsewhere("cli/test_check.py", "test_the_engine_whose_gradients_are_proved_can_be_chosen"),
        "--json": Elsewhere("cli/test_check.py", "test_people_see_that_all_are_exact"),
    },
    "params": {
        "--batch": Changes("params tiny-decoder --json", "--batch 3"),
        "--length": Changes("params tiny-decoder --json", "--length 3"),
        "--dtype": Changes("params tiny-decoder --json", "--dtype float16"),
        "--set": Changes("params tiny-decoder --json", "--set window=2"),
        "--json": Changes("params tiny-decoder", "--json"),
    },
    "plan": {
        "--mesh": Changes(PLAN, "--mesh data=4"),
        "--device-memory": Changes(PLAN, "--device-memory 1GB"),
        "--batch": Changes(PLAN, "--batch 8"),
        "--length": Changes(PLAN, "--length 3"),
        "--accumulate": Changes(PLAN, "--accumulate 2"),
        "--precision": Changes(PLAN, "--precision float32"),
        "--optimizer": Changes(PLAN, "--optimizer lion"),
        "--remat": Changes(PLAN, "--remat"),
        "--ema": Changes(PLAN, "--ema"),
        "--rules": Elsewhere("cli/test_rules.py", "test_a_plan_counts_what_the_rules_leave_in_one_piece"),
        "--set": Changes(PLAN, "--set layers=9"),
        "--json": Changes("plan tiny-decoder --mesh data=2", "--json"),
    },
    "generate": {
        "--lens": Changes(GENERATE, "--lens"),
        "--prompt": Changes("generate {text} --max-new-tokens 12", "--prompt Th"),
        "--max-new-tokens": Changes(GENERATE, "--max-new-tokens 3"),
        "--temperature": Changes(GENERATE, "--temperature 0"),
        "--top-k": Changes(GENERATE, "--top-k 1"),
        "--top-p": Changes(GENERATE, "--top-p 0.05"),
        "--min-p": Changes(GENERATE, "--min-p 0.99"),
        "--repetition-penalty": Changes(GENERATE, "--repetition-penalty 9"),
        "--frequency-penalty": Changes(GENERATE, "--frequency-penalty -50"),
        "--presence-penalty": Changes(GENERATE, "--presence-penalty -50"),
        "--beams": Changes(GENERATE, "--beams 2"),
        "--length-penalty": Changes(f"{GENERATE} --beams 2 --json", "--length-penalty 3"),
        "--n": Changes(GENERATE, "--n 2"),
        "--seed": Changes(GENERATE, "--seed 9"),
        "--stop": Changes(f"{GENERATE} --frequency-penalty -50 --json", LETTERS),
        "--slide": Changes("generate {text} --prompt Th --max-new-tokens 40", "--no-slide"),
        "--truncate": Changes("generate {text} --prompt TheTheTheTheTheTheThe --max-new-tokens 2", "--truncate"),
        "--weights": Changes(f"{GENERATE} --logprobs --json", "--weights float16"),
        "--logprobs": Changes(GENERATE, "--logprobs"),
        "--engine": Elsewhere("cli/test_generate.py", "test_every_engine_writes_the_same"),
        "--json": Changes(GENERATE, "--json"),
    },
    "predict": {
        "--top": Changes("predict {majority} 00112220", "--top 2"),
        "--truncate": Changes("predict {text} TheTheTheTheTheTheThe", "--truncate"),
        "--engine": Refused("predict {majority} 00112220 --engine jax", "on the engines cpu and numpy only"),
        "--json": Changes("predict {majority} 00112220", "--json"),
    },
    "chat": {
        "--system": Changes(CHAT, "--system brief"),
        "--max-new-tokens": Changes(CHAT, "--max-new-tokens 3"),
        "--temperature": Changes(CHAT, "--temperature 0"),
        "--top-k": Changes(CHAT, "--top-k 1"),
        "--top-p": Changes(CHAT, "--top-p 0.5"),
        "--seed": Changes(CHAT, "--seed 3"),
        "--weights": Changes(CHAT, "--weights int8"),
        "--lens": Elsewhere("cli/test_chat.py", "test_layers_would_have_said"),
        "--engine": Elsewhere("cli/test_chat.py", "test_the_engine_can_be_chosen"),
    },
    "tokenize": {
        "--specials": Elsewhere("cli/test_tokenize.py", "test_special_tokens_are_read_only_when_asked_for"),
        "--parse-special": Elsewhere("cli/test_tokenize.py", "test_special_tokens_are_read_only_when_asked_for"),
        "--json": Changes("tokenize {text} The", "--json"),
    },
    "embed": {
        "--file": Elsewhere("cli/test_weights.py", "test_embed_reads_lines_of_a_file_or_of_stdin"),
        "--nearest": Elsewhere("cli/test_weights.py", "test_embed_shows_the_nearest_of_many_texts"),
        "--json": Elsewhere("cli/test_weights.py", "test_embed_gives_vectors_as_json"),
    },
    "verify": {"--json": Elsewhere("cli/test_weights.py", "test_verify_prints_a_row_for_every_layer")},
    "export": {
        "--format": Changes("export {text} {out}", "--format gguf"),
        "--weights": Changes("export {text} {out} --format gguf", "--weights f16"),
        "--json": Changes("export {text} {out}", "--json"),
    },
    "pull": {
        "--wheel": Elsewhere("cli/test_pull.py", "test_pull_prints_the_path_and_says_when_it_is_there"),
        "--json": Elsewhere("cli/test_pull.py", "test_pull_prints_the_path_and_says_when_it_is_there"),
    },
    "models": {"--json": Changes("models", "--json")},
}  # fmt: skip

WITHOUT_MEANING = [
    Refused("train counting --mesh data=1", OF_JAX),
    Refused("train counting --precision float16", OF_JAX),
    Refused("train counting --scan", OF_JAX),
    Refused("train counting --remat", OF_JAX),
    Refused("train counting --rules head.w=", OF_JAX),
    Refused("train counting --coordinator a:1", TOGETHER),
    Refused("train counting --processes 2", TOGETHER),
    Refused("train counting --process 0", TOGETHER),
    Refused("train counting --steps 3 --set steps=4", "steps are given twice"),
    Refused("train counting --lora", "--lora needs a model to start from"),
    Refused("train text --from {text} --preset gpt2", "--preset builds a new model"),
    Refused("train --resume {text} --lora", "--resume continues a run with its own settings"),
    Refused("tokens {notes} --out {out} --bpe-size 300", "--bpe-size has no meaning for chars"),
    Refused("inspect {saved} The --checkpoint latest", "is no run, so it has no checkpoints"),
    Refused(f"{PLAN} --precision float16 --set compute=bfloat16", "--precision is also given by --set"),
    Refused(f"{PLAN} --remat --set remat=false", "--remat is also given by --set"),
    Refused(f"{GENERATE} --length-penalty 2", "length_penalty and early_stopping belong to beam search"),
    Refused(f"{GENERATE} --beams 2 --top-k 3", "beam search takes the likeliest answer"),
    Refused(f"{GENERATE} --beams 2 --seed 3", "beam search draws nothing"),
    Refused("predict {sort} 210210 --top 3", "this model writes its answer"),
    Refused("predict {sort} 210210 --truncate", "this model answers an input as a whole"),
    Refused("predict {majority} 00112220 --truncate", "this model answers an input as a whole"),
    Refused("tokenize {text} The --specials", "never turns text into special tokens"),
    Refused("export {text} {out} --weights f16", "--weights is a setting of GGUF files"),
]  # fmt: skip
"""Options that have no meaning together, or for such a model."""


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

    def drawn(model, params, batch, folder, **settings):
        tell(folder, settings["theme"], settings["copies"], [float(np.sum(x)) for x in flatten(params).values()])
        return [folder / "index.html"]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    for begin in ("new_session", "fine_tuning_session"):
        monkeypatch.setattr(train, begin, lambda *w, **s: tell(*w, **s) or SimpleNamespace(watch=None))
    monkeypatch.setattr(train, "_train_and_report", lambda session, watch, **how: tell(**how))
    monkeypatch.setattr(train, "require_tensorboard", lambda wanted: None)
    monkeypatch.setattr(inspect, "inspect_model", drawn)
    monkeypatch.setattr(inspect, "answers", lambda trained: [])
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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_among_these(name):
    known = {max(one.opts, key=len) for one in load_command(name).params if one.param_type_name == "option"}
    assert known - {"--trust"} == set(OPTIONS[name]), "test_own.py tests --trust"


ROWS = [(name, option, row) for name, rows in OPTIONS.items() for option, row in rows.items()]


@pytest.mark.parametrize(("name", "option", "row"), ROWS, ids=lambda part: part if isinstance(part, str) else "")
def test_no_option_is_ignored(name, option, row, places, tmp_path, told):
    if isinstance(row, Elsewhere):
        tree = ast.parse((Path(__file__).parents[1] / row.file).read_text(encoding="utf-8"))
        assert row.name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        return
    if isinstance(row, Refused):
        test_what_has_no_meaning_is_refused(row, places, tmp_path, told)
        return
    without, *first = outcome(row.words, places, tmp_path / "one" / "out", told)
    given, *second = outcome(f"{row.words} {row.more}", places, tmp_path / "two" / "out", told)
    assert without.code in (0, 1), without.err  # too long a prompt, for instance, fails
    assert given.code == 0, given.err
    assert "Traceback" not in without.err
    assert first != second


@pytest.mark.parametrize("row", WITHOUT_MEANING, ids=lambda row: row.words)
def test_what_has_no_meaning_is_refused(row, places, tmp_path, told):
    result, _, files, asked = outcome(row.words, places, tmp_path / "three" / "out", told)
    assert result.code == 2, result
    assert row.fact in result.err
    assert "\n\nhint: " in result.err
    assert not files
    assert not asked
