"""Shell completion: what the Tab key offers without importing a command, and what `--install-completion` writes."""

import json
import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from glassformer.bugs import museum
from glassformer.cli import completion
from glassformer.cli.app import app
from glassformer.studies import studies
from glassformer.weights import catalog
from runs import command


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    """A folder with a run, a home of one's own, and a cache with one pulled model."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(catalog.CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("SHELL", "/bin/bash")
    place = catalog.CATALOG["minilm"].path
    place.parent.mkdir(parents=True)
    place.write_text("x") if place.suffix else place.mkdir(exist_ok=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.json").write_text("{}")
    (tmp_path / "runs" / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def collected():
    return completion._collect()


@pytest.fixture
def cached(monkeypatch, collected):
    """What is collected from all commands, collected once."""
    monkeypatch.setattr(completion, "_collect", lambda: collected)


def offered(*words):
    """What is offered for the last word: its values, or the kind of path."""
    found = ShellComplete(app, {"resilient_parsing": True}, "glassformer", "X").get_completions(
        [*words[:-1]], words[-1]
    )
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lo", ["look"]),
        ("train maj", ["majority"]),
        ("train text --set wid", ["width="]),
        ("train text --engine ", ["cpu", "numpy", "jax"]),
        ("train --resume ", ["runs/mine"]),
        ("train text --data ", ["<file>"]),
        ("train text --from mini", ["minilm"]),
        ("look ", ["minilm", "runs/mine"]),
        ("look runs/", ["runs/mine"]),
        ("look runs/mine text pat", ["patching"]),
        ("eval runs/mine --check", ["--checkpoint"]),
        ("eval runs/mine --checkpoint ", ["best", "latest"]),
        ("params gpt2-", ["gpt2-medium", "gpt2-large", "gpt2-xl"]),
        ("params gpt2 --set layer", ["layers="]),
        ("settings reci", ["recipe"]),
        ("pull ", ["smollm2", "minilm"]),
        ("explore --no", ["--no-browser"]),
        ("inspect runs/mine --out ", ["<dir>"]),
        ("generate runs/mine ", []),
        ("lab ", ["check", "grade", "hint", "solution", "start"]),
        ("lab start gelu", ["gelu", "gelu_backward"]),
        ("lab start ./my_lab", ["<file>"]),
        ("lab check ", ["<file>"]),
        ("lab grade --lab top", ["top_p"]),
        ("lab hint softmax --js", ["--json"]),
        ("bugs heads-m", ["heads-merge"]),
        ("study in", ["in_context", "induction"]),
        ("study ./mi", ["<file>"]),
    ],
)
def test_what_is_offered(line, expected, cached):
    assert offered(*line.split(" ")) == expected


def test_studies_exhibits_and_models_come_with_their_titles(cached):
    for words, titles in {
        ("study", ""): {name: study.question for name, study in studies().items()},
        ("bugs", ""): {name: exhibit.title for name, exhibit in museum().items()},
        ("pull", ""): {name: entry.title for name, entry in catalog.CATALOG.items()},
    }.items():
        found = ShellComplete(app, {}, "glassformer", "X").get_completions([words[0]], words[1])
        assert {item.value: item.help for item in found} == titles
        assert all(titles.values())


def test_commands_are_not_imported_to_complete(cached, desk):
    completion.skeleton("look")  # fills the cache
    code = (
        "import sys; from glassformer.cli import main; sys.argv = ['glassformer']\ntry: main()\nexcept SystemExit: pass"
    )
    code += "\nprint(sorted({'numpy', 'rich', 'numba'} & set(sys.modules)))"
    ask = {"COMP_WORDS": "glassformer look mi", "COMP_CWORD": "2", "_GLASSFORMER_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | ask, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["plain,minilm", "[]"], done.stderr


def test_the_cache_is_collected_anew_when_the_package_changes(cached, monkeypatch):
    completion.skeleton("look")
    monkeypatch.setattr(completion, "_collect", lambda: pytest.fail("it is there"))
    completion.skeleton("look")
    look = {"name": "look", "params": [], "help": "", "commands": {}}
    file = catalog.cache_folder() / "completion.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "key": "old"}))
    monkeypatch.setattr(completion, "_collect", lambda: {"commands": {"look": look}, "settings": {}})
    assert completion.skeleton("look").params == []


@pytest.mark.parametrize(("shell", "startup"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", None)])
def test_it_is_installed_and_says_how_to_undo_it(shell, startup, cached, desk):
    home = desk / "home"
    if startup:
        (home / startup).write_text("alias ll='ls -l'")
    for _ in range(2):  # the second time changes nothing
        result = command("--install-completion", shell)
        assert result.code == 0, result.err
    script = next(path for path in home.rglob("*") if path.is_file() and path.name != startup)
    assert script.read_text().count("_GLASSFORMER_COMPLETE") >= 1
    assert f"wrote {script}" in result.out
    assert f"to undo it, remove {script}" in result.out
    if startup:
        first, line = (home / startup).read_text().splitlines()
        assert first == "alias ll='ls -l'"
        assert line.startswith(f"source {script}")


def test_the_shell_in_use_is_the_default_and_others_are_refused(cached, monkeypatch):
    assert "complete -o nosort" in command("--show-completion").out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    result = command("--install-completion")
    assert result.code == 2
    assert "tcsh cannot be completed" in result.err
    assert "bash, zsh, fish" in result.err
