"""The command as a whole: help, version, exit codes."""

import json
import os
import subprocess
import sys

import pytest

import glassformer
from glassformer.cli.commands import SECTIONS, declarations, load_command
from runs import command, finished, process

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


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["tasks"], ["models"], ["params", "gpt2"]], ids=" ".join)
def test_what_a_command_does_not_need_is_not_loaded(args):
    modules = modules_of(*args)
    assert {name.split(".")[0] for name in modules} & HEAVY == set()
    assert "numpy" not in modules or args[0] in ("models", "params")
    # `models` measures folders as `pull` does, and `params` reads settings as they are typed.
    used = {declarations()[name].module for name in args if name in declarations()} | {"settings"}
    unused = {one.module for one in declarations().values()} - used
    assert {f"glassformer.cli.{name}" for name in unused} & modules == set()


@pytest.mark.parametrize(
    ("args", "fact", "hint"),
    [
        (["trian"], "there is no command 'trian'", "did you mean 'train'?"),
        (["params", "gpt2", "--lenght", "8"], "there is no option --lenght", "did you mean '--length'?"),
        (["params", "gpt2", "--zzz"], "there is no option --zzz", "hint: `glassformer params --help`"),
        (["params", "gpt2", "--batch", "0"], "'--batch': 0 is not in the range", "lists arguments and options"),
        (["params", "gpt2", "--batch", "x"], "'--batch': 'x' is not a valid integer", "lists arguments and options"),
        (["params"], "missing argument 'PRESET|CONFIG|MODEL'", "--help` lists"),
        (["models", "all"], "got unexpected extra argument", "--help` lists"),
        (["train", "--steps"], "'--steps' requires an argument", "--help` lists"),
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


@pytest.mark.parametrize("name", declarations())
def test_help_explains_every_argument_and_option_and_shows_examples(name):
    shown = command(name, "--help").out
    for parameter in load_command(name).params:
        assert parameter.help, parameter.name
        assert any(word in shown for word in (parameter.opts[0], parameter.metavar or parameter.name.upper()))
    assert [line.strip() for line in shown.partition("Examples:\n")[2].splitlines()] == [*declarations()[name].examples]


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
    assert running.returncode == 141, "as a program that SIGPIPE ends"


START_AND_INTERRUPT = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from glassformer.cli import main
main()
"""


def test_ctrl_c_while_the_command_loads_is_no_traceback():
    running = subprocess.run([sys.executable, "-c", START_AND_INTERRUPT], capture_output=True, text=True)
    assert (running.returncode, running.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("name", declarations())
def test_a_command_is_what_its_file_declares(name):
    made, declared = load_command(name), declarations()[name]
    assert made.name == name
    assert " ".join(made.help.partition("\n\n")[0].split()) == declared.summary
    assert declared.section in SECTIONS
    assert declared.examples


def test_commands_that_open_runs_take_trust():
    taking = {name for name in declarations() if any("--trust" in one.opts for one in load_command(name).params)}
    assert taking == {
        "train", "eval", "settings", "compare", "replay", "inspect", "explore", "look", "params", "plan", "generate",
        "predict", "chat", "tokenize", "embed", "verify", "export",
    }  # fmt: skip
