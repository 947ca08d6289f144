"""The command as a whole: help, version, exit codes."""

import json
import os
import subprocess
import sys

import pytest

import glassformer
from glassformer.cli.app import COMMANDS, load_command
from glassformer.cli.examples import EXAMPLES
from runs import command, finished, process

OPTIONS = {
    "train": [
        "TASK",
        "--data",
        "--preset",
        "--set",
        "--steps",
        "--seed",
        "--out",
        "--resume",
        "--json",
        "--tensorboard",
    ],
    "eval": ["RUN", "--checkpoint", "--json"],
    "tasks": ["--json"],
    "params": ["PRESET|CONFIG", "--batch", "--length", "--dtype", "--set", "--json"],
    "settings": ["TASK|PRESET|GROUP", "--json"],
    "runs": ["FOLDER", "--json"],
    "compare": ["RUN RUN", "--out", "--format", "--no-samples", "--json"],
    "check": ["--json"],
    "demo": ["--out", "--json"],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_help_names_every_option(name):
    for flag in ("--help", "-h"):
        result = command(name, flag)
        assert result.code == 0
        for option in OPTIONS[name]:
            assert option in result.out


def test_help_lists_every_command_with_its_line():
    result = command("--help")
    assert result.code == 0
    said = " ".join(result.out.replace("│", " ").split())
    for name, line in COMMANDS.items():
        assert f"{name} {line}" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_the_first_of_its_docstring(name):
    loaded = load_command(name)
    assert loaded.name == name
    assert loaded.help.splitlines()[0] == COMMANDS[name]


RUN_AND_LIST = """
import json, sys
from glassformer.cli import main
try:
    main()
except SystemExit as leave:
    print(json.dumps([leave.code, sorted(sys.modules)]), file=sys.stderr)
"""
HEAVY = {"babel", "gguf", "jax", "jinja2", "matplotlib", "numba", "pydantic", "safetensors", "tokenizers", "torch"}
HEAVY |= {"transformers"}


def modules_of(*args):
    """Run a command in a fresh process; return the modules that it has loaded at its end."""
    running = [sys.executable, "-c", RUN_AND_LIST, *args]
    result = subprocess.run(running, capture_output=True, encoding="utf-8", check=True)
    code, modules = json.loads(result.stderr.splitlines()[-1])
    assert code == 0
    return set(modules)


@pytest.mark.parametrize("args", [["--help"], ["tasks"], ["models"], ["params", "gpt2"]], ids=" ".join)
def test_what_a_command_does_not_need_is_not_loaded(args):
    modules = modules_of(*args)
    assert {name.split(".")[0] for name in modules} & HEAVY == set()
    # `models` measures folders as `pull` does, and `params` reads settings as they are typed.
    unused = COMMANDS.keys() - {*args, "pull", "settings"}
    assert {f"glassformer.cli.{name}" for name in unused} & modules == set()


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["tasks"]], ids=" ".join)
def test_what_only_lists_does_not_even_load_numpy(args):
    assert "numpy" not in modules_of(*args)


def test_a_number_is_still_checked():
    for wrong in ("0", "many"):
        result = command("params", "gpt2", "--batch", wrong)
        assert result.code == 2
        assert result.err.startswith("error: invalid value for '--batch': ")
        assert "\n\nhint: `glassformer params --help` lists" in result.err


def test_no_command_shows_the_help():
    result = command()
    assert result.code == 2
    assert "Usage" in result.out + result.err


def test_the_version_is_that_of_the_package():
    result = command("--version")
    assert result == (0, f"glassformer {glassformer.__version__}\n", "")


def test_an_unknown_command_is_misuse():
    result = command("trian")
    assert result.code == 2
    assert result.err == "error: there is no command 'trian'\n\nhint: did you mean 'train'?\n"


@pytest.mark.parametrize(
    ("args", "fact", "hint"),
    [
        (["params", "gpt2", "--lenght", "8"], "there is no option --lenght", "did you mean '--length'?"),
        (["params", "gpt2", "--zzz"], "there is no option --zzz", "hint: `glassformer params --help`"),
        (["params", "gpt2", "--batch", "0"], "'--batch': it must be greater than or equal to 1", "lists what there is"),
        (["params", "gpt2", "--batch", "x"], "'--batch': it must be a valid integer", "lists what there is"),
        (["params"], "missing argument 'PRESET|CONFIG|MODEL'", "--help` lists what there is"),
        (["models", "all"], "got unexpected extra argument", "--help` lists what there is"),
        (["train", "--steps"], "'--steps' requires an argument", "--help` lists what there is"),
    ],
)
def test_all_errors_look_alike(args, fact, hint):
    result = command(*args)
    assert (result.code, result.out) == (2, "")
    said, _, remedy = result.err.partition("\n\n")
    assert said.startswith("error: ")
    assert fact in said
    assert remedy.startswith("hint: ")
    assert hint in remedy


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", [60, 120])
def test_help_fits_and_cuts_nothing(name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    shown, _, examples = command(name, "--help").out.partition("\nExamples\n")
    usage, *lines = shown.splitlines()
    assert usage.startswith(f"Usage: glassformer {name} [OPTIONS]")
    assert not set("{}") & set(usage)
    assert "[[" not in usage
    assert max(map(len, lines)) <= width
    assert "<bool>" not in shown
    words = " ".join(shown.split())
    for parameter in load_command(name).params:
        assert all(part in words for part in (parameter.help or "").split() if len(part) < 20)
    assert [line.strip() for line in examples.splitlines() if line.strip()] == EXAMPLES.get(name, [])


def test_the_module_runs_as_the_command():
    result = finished(process("--version"))
    assert (result.code, result.out) == (0, f"glassformer {glassformer.__version__}\n")


@pytest.mark.skipif(os.name != "posix", reason="closes a pipe in the manner of POSIX")
def test_a_reader_who_leaves_early_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    running = subprocess.run(
        [sys.executable, "-m", "glassformer", "tasks"], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert "Traceback" not in running.stderr
    assert "Exception ignored" not in running.stderr
