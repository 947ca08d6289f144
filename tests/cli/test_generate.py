"""`glassformer generate`: what it prints, what it reads, and how it refuses."""

import io
import json
import signal
import subprocess
import sys
import time

import pytest

import glassformer as gf
from glassformer.core.dispatch import engine
from runs import command, process, tiny_session


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model of each kind, hardly trained: names, prose, dates and a classifier."""
    found = {}
    for task in ("lines", "text", "dates", "majority"):
        folder = tmp_path_factory.mktemp("runs") / task
        list(tiny_session(task, folder, steps=2, eval_every=2).steps())
        found[task] = folder
    return found


def test_it_prints_what_python_generates(folders):
    expected = gf.load(folders["text"]).generate("The ", max_new_tokens=10, seed=3, top_k=5).text
    settings = ("--max-new-tokens", 10, "--seed", 3, "--top-k", 5)
    result = command("generate", folders["text"], "The ", *settings)
    assert result == (0, expected + "\n", "note: stopped after 10 tokens (--max-new-tokens)\n")
    assert command("generate", folders["text"], "The ", *settings) == result


@pytest.mark.parametrize(("task", "prompt"), [("lines", ""), ("dates", "1. mai 2020")])
def test_models_with_a_start_token_and_with_a_source(folders, task, prompt):
    expected = gf.load(folders[task]).generate(prompt, temperature=0).text
    assert command("generate", folders[task], prompt, "--temperature", 0)[:2] == (0, expected + "\n")


def test_json_is_one_object(folders):
    result = command("generate", folders["text"], "The", "--json", "--n", 2, "--logprobs", "--max-new-tokens", 4)
    content = json.loads(result.out)
    assert content["prompt"] == "The"
    assert len(content["generations"]) == 2
    for one in content["generations"]:
        assert "".join(one["tokens"]) == one["text"]
        assert one["finish"] == "length"
        assert len(one["ids"]) == len(one["log_probabilities"]) == len(one["top"]) == 4
        assert one["top"][0][0].keys() == {"id", "token", "log_probability"}
        assert "score" not in one


def test_beams_stops_prompts_and_presets_mean_what_they_say(folders):
    settings = ("fox", "--beams", 3, "--max-new-tokens", 4)
    expected = gf.load(folders["text"]).generate("fox", beams=3, max_new_tokens=4, length_penalty=2.0)
    assert command("generate", folders["text"], *settings, "--length-penalty", 2).out == expected.text + "\n"
    result = command("generate", folders["text"], *settings, "--length-penalty", 2, "--json")
    assert json.loads(result.out)["generations"][0]["score"] == pytest.approx(expected.score)

    whole = command("generate", folders["text"], "The ", "--temperature", 0).out.removesuffix("\n")
    stop = whole[3:5]
    result = command("generate", folders["text"], "The ", "--temperature", 0, "--stop", "終", "--stop", stop)
    assert result.out == whole.partition(stop)[0] + "\n"

    result = command("generate", folders["text"], "--prompt", "The ")
    assert result.code == 2
    assert "there is no option --prompt" in result.err
    assert "the text follows the model" in result.err

    result = command("generate", "gpt2", "The ")
    assert result.code == 1
    assert "gpt2 is a preset" in result.err
    assert "--preset gpt2" in result.err


CUT = "note: stopped after 40 tokens (--max-new-tokens)\n"
FULL = "note: stopped because the context of 16 tokens is full\n"


@pytest.mark.parametrize("more", [(), ("--json",), ("--n", 2), ("--beams", 2)], ids=str)
def test_going_on_past_the_context_is_said_once(folders, more):
    result = command("generate", folders["text"], "The ", "--max-new-tokens", 40, *more)
    assert result.code == 0
    assert result.err.count("longer than the context of 16 tokens") == 1
    assert "--no-slide" in result.err
    assert result.err.endswith(CUT)


def test_it_can_stop_at_the_context_or_cut_a_prompt_that_is_too_long(folders):
    settings = ("The ", "--max-new-tokens", 40, "--temperature", 0)
    long, short = (command("generate", folders["text"], *settings, *more) for more in ((), ("--no-slide",)))
    assert (short.code, short.err) == (0, FULL)
    assert len(short.out) == 13 + 1
    assert long.out.startswith(short.out.removesuffix("\n"))

    settings = ("--max-new-tokens", 5, "--temperature", 0)
    whole = "dog. The quick brown"
    refused = command("generate", folders["text"], whole, *settings)
    assert (refused.code, "--truncate" in refused.err) == (1, True)
    cut = command("generate", folders["text"], whole, *settings, "--truncate")
    assert cut == command("generate", folders["text"], whole[-16:], *settings)


class Stdin:
    def __init__(self, content):
        self.buffer = io.BytesIO(content)


@pytest.mark.parametrize("typed", [b"The fox", b"The fox\n", b"The fox\r\n"])
def test_a_dash_reads_stdin_without_its_last_line_end(folders, monkeypatch, typed):
    monkeypatch.setattr(sys, "stdin", Stdin(typed))
    expected = command("generate", folders["text"], "The fox")
    assert command("generate", folders["text"], "-") == expected


def test_stdin_that_is_not_utf8_is_refused(folders, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(b"The \xff fox"))
    result = command("generate", folders["text"], "-")
    assert result.code == 1
    assert "error: stdin is not UTF-8 text: byte 4 is 0xff" in result.err


@pytest.mark.parametrize(
    ("task", "args", "code", "message"),
    [
        ("text", ("a", "--top-p", 0), 2, "error: top_p is 0.0"),
        ("text", ("a", "--stop", ""), 2, "error: a stop string is empty"),
        ("text", ("a", "--weights", "int5"), 2, "error: weights cannot be kept as 'int5'"),
        ("text", ("a" * 17,), 1, "error: the prompt has 17 tokens but this model reads at most 16"),
        ("text", ("日",), 1, "error: character '日' (U+65E5) at position 0"),
        ("majority", ("a",), 2, "is an encoder"),
    ],
)
def test_what_cannot_be_done_is_said_clearly(folders, task, args, code, message):
    result = command("generate", folders[task], *args)
    assert result.code == code
    assert message in result.err
    assert "hint: " in result.err
    assert result.out.strip() == ""


def test_ctrl_c_stops_cleanly(tmp_path, numpy_engine):
    # A context long enough that the answer would take far longer than the test waits.
    tiny_session("text", tmp_path / "long", context=100_000, positions="rotary").save()
    running = process("generate", tmp_path / "long", "a", "--max-new-tokens", 100_000)
    try:
        assert running.stdout.read(1)
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        running.kill()
        raise
    assert running.returncode == 130
    assert "Traceback" not in err
    assert out.endswith("\n")


@pytest.mark.parametrize("name", ["numpy", "jax"])
def test_every_engine_writes_the_same(folders, name, request):
    if name == "jax":
        request.getfixturevalue("jax")
    settings = ("The ", "--max-new-tokens", 6, "--temperature", 0)
    expected = command("generate", folders["text"], *settings)
    assert command("generate", folders["text"], *settings, "--engine", name)[:2] == expected[:2]
    assert engine() == name


def test_the_engine_jax_keeps_weights_in_its_own_ways(folders, jax):
    result = command("generate", folders["text"], "--engine", "jax", "--weights", "int8")
    assert result.code == 2
    assert "the engine jax does not keep weights as int8" in result.err
    assert "float32, bfloat16, float16" in result.err
    settings = ("The ", "--max-new-tokens", 3, "--weights", "bfloat16")
    assert command("generate", folders["text"], "--engine", "jax", *settings).code == 0


def test_an_engine_whose_library_is_missing_says_how_to_get_it(folders, monkeypatch):
    monkeypatch.setattr("glassformer.engines.is_installed", lambda name: name != "jax")
    result = command("generate", folders["text"], "--engine", "jax")
    assert result.code != 0
    assert 'pip install "glassformer[jax]"' in result.err


def test_a_lens_shows_what_each_layer_would_have_said(tmp_path):
    list(tiny_session("text", tmp_path / "run", steps=2).steps())
    words = ("generate", tmp_path / "run", "The ", "--max-new-tokens", 4, "--temperature", 0)
    shown, plain = command(*words, "--lens"), command(*words)
    assert shown.code == 0, shown.err
    assert shown.out.startswith(plain.out)
    assert len([line for line in shown.out.splitlines() if "\t" in line]) >= 1 + 4
    assert "leave out --json" in command(*words, "--lens", "--json").err
    assert "longer than the context" in command(*words[:-4], "--max-new-tokens", 60, "--lens").err
