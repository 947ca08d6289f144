"""The command as a whole: help, version, exit codes."""

import os
import subprocess
import sys

import pytest

import glassformer
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
    "params": ["PRESET|CONFIG", "--batch", "--length", "--dtype", "--json"],
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


def test_help_lists_every_command():
    result = command("--help")
    assert result.code == 0
    for name in OPTIONS:
        assert name in result.out


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
    assert "trian" in result.err


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
