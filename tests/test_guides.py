"""The guides: whatever they print runs, line by line, with small models, and says what they print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from fine_tuning import published, sentence_encoder
from glassformer import hvp, per_example_gradients
from glassformer.core.tree import flatten
from glassformer.weights import catalog
from own_parts import forgotten
from runs import PROSE, command, write_data

GUIDES = Path(__file__).resolve().parents[1] / "docs" / "guides"
SMALL = {"eval_every": 3, "layers": 1, "width": 16, "heads": 2}
"""Settings of a run that is quick enough for a test, where a command as printed does not have its own."""
TINY = ["--set=width=8", "--set=heads=2", "--set=layers=1"]


def blocks(guide, language):
    """Return the blocks of a language in a guide."""
    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", blocks("python", "python"), ids=lambda code: code.split("\n")[0][:40])
def test_every_block_about_python_runs_as_printed(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    exec(compile(code, "docs/guides/python.md", "exec"), namespace)
    if "params, optimizer" in code:
        assert namespace["loss"] < 0.5
    if "tuned" in namespace:
        assert namespace["tuned"].evaluate().loss < namespace["model"].evaluate("song.txt").loss


def test_the_blocks_about_jax_print_what_the_guide_says(jax, capsys):
    page = (GUIDES / "jax.md").read_text(encoding="utf-8")
    pairs = re.findall(r"```python\n(.*?)```\n\nprints `([^`]*)`", page, flags=re.DOTALL)
    namespace: dict = {}
    for code, printed in pairs:
        exec(compile(code, "docs/guides/jax.md", "exec"), namespace)
        assert " ".join(capsys.readouterr().out.split()) == printed
    assert len(pairs) == page.count("```python")
    model, host, batch, ours = (namespace[name] for name in ("model", "host", "batch", "by_numpy"))
    for found, expected in (
        (namespace["grads"], ours),
        (namespace["by_example"], per_example_gradients(model, host, batch).grads),
        (namespace["along"], hvp(model, host, batch, ours)),
    ):
        for name, x in flatten(expected).items():
            np.testing.assert_allclose(flatten(found)[name], x, rtol=0, atol=1e-12, err_msg=name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with all files of the guide to parts of one's own, and its code that proves their gradients."""
    codes = blocks("own_parts", "python")
    files = {match[1]: code for code in codes if (match := re.match(r"# (\w+\.py)\n", code))}
    assert files
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    [proof] = (code for code in codes if not code.startswith("# "))
    return tmp_path, proof


@pytest.mark.usefixtures("numpy_engine", "unseen_figures")  # `test_own_parts.py` has both engines
def test_every_command_about_parts_of_ones_own_runs(folder):
    data = ["--data", write_data("text", folder[0])]
    lines = [line for block in blocks("own_parts", "console") for line in block.splitlines()]
    assert lines
    for line in lines:
        program, name, *rest = shlex.split(line)
        assert program == "glassformer"
        small = [f"--set={key}={value}" for key, value in SMALL.items() if f"{key}=" not in line]
        quick = {"train": ["--steps", "3", *small], "generate": ["--max-new-tokens", "3"]}.get(name, [])
        with forgotten():  # each command is a process of its own
            result = command(name, *rest, *quick, *(data if rest[0] == "text" else []))
        assert result.code == 0, f"{line}\n{result.err}"


def test_the_gradients_of_parts_of_ones_own_are_proved(folder):
    done = subprocess.run([sys.executable, "-W", "error", "-c", folder[1]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("numpy_engine", "unseen_figures")
def test_every_command_about_data_of_ones_own_says_what_it_prints(tmp_path, monkeypatch, capsys):
    make, big, use = blocks("own_data", "python")
    monkeypatch.chdir(tmp_path)
    exec(make, {})
    parts = [part for block in blocks("own_data", "console") for part in block.split("$ ")[1:]]
    for line, *printed in map(str.splitlines, parts):
        words = shlex.split(line)[1:]
        few = []
        if words[0] == "train":
            steps = words.index("--steps") if "--steps" in words else len(words)
            words = [*words[:steps], *words[steps + 2 :]]
            few = ["--steps", "1", *TINY, *(["--set=encoder_layers=1"] if words[1] == "pairs" else [])]
        result = command(*words, *few)
        assert result.code == 0, f"{line}\n{result.err}"
        assert "\n".join(printed) in result.err, result.err
    exec(big.replace("200_000_000", "20_000"), {})
    words = ["train", "text", "--data=big.txt", "--steps=1", "--set=eval_tokens=128", "--out=runs/big", *TINY]
    assert command(*words).code == 0
    measured = command("eval", "runs/big")
    assert (measured.code, "±" in measured.out, "--all measures all" in measured.err) == (0, True, True)
    assert command("tokens", "big.txt", "--out", "big.tokens").code == 0
    exec(use.replace("steps=20", "steps=1").replace("steps=5", "steps=1"), {})
    assert "('even', 'odd')" in capsys.readouterr().out


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Small models in the place of the published ones."""
    folder = tmp_path_factory.mktemp("models")
    return {"minilm": sentence_encoder(folder / "minilm"), "smollm2": published("llama", folder / "smollm2")}


@pytest.mark.usefixtures("numpy_engine", "unseen_figures")
def test_what_the_guide_to_fine_tuning_prints_runs(small, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "resolve", small.get)
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"the quick brown fox {i},{'ab'[i % 2]}\n" for i in range(40))
    Path("labels.csv").write_text("text,label\n" + rows)
    Path("notes.txt").write_text(PROSE)
    trained = gf.train
    monkeypatch.setattr(gf, "train", lambda *given, **more: trained(*given, **more, steps=2, show=False))
    for line in "".join(blocks("fine_tuning", "sh")).splitlines():
        program, name, *rest = shlex.split(line)
        few = {"train": ["--steps", "2"], "generate": ["--max-new-tokens", "2"]}.get(name, [])
        assert program == "glassformer"
        result = command(name, *rest, *few) if name != "pull" else None
        assert result is None or result.code == 0, f"{line}: {result.err}"
    for code in blocks("fine_tuning", "python"):
        if "peft" not in code.partition("\n")[0]:  # tests/training/test_peft.py compares with PEFT
            exec(code, {})


@pytest.mark.parametrize(
    ("topic", "column"),
    [("text --from smollm2", 1), ("text --from smollm2 --lora", 2), ("classify --from minilm", 3),
     ("classify --from minilm --lora", 4)],
)  # fmt: skip
def test_the_table_of_defaults_of_fine_tuning_is_true(topic, column, small, monkeypatch):
    monkeypatch.setattr(catalog, "resolve", small.get)
    listed = command("settings", *topic.split())
    assert listed.code == 0, listed.err
    shown = {name: default for _, name, default, *_ in (line.split("\t") for line in listed.out.splitlines())}
    page = (GUIDES / "fine_tuning.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (steps|batch|learning rate|weight decay) \|(.*)\|$", page, flags=re.MULTILINE)
    said = {name: float(cells.split("|")[column - 1].replace(",", "")) for name, cells in table}
    names = {"learning rate": "lr", "weight decay": "weight_decay"}
    assert said == {name: float(shown[names.get(name, name)]) for name in said}
