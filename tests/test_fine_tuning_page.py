"""What docs/guides/fine_tuning.md prints runs, line by line, with small models in the place of the published ones."""

import re
import shlex
from pathlib import Path

import pytest

import glassformer as gf
from fine_tuning import published, sentence_encoder
from glassformer.weights import catalog
from runs import PROSE, command

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "guides" / "fine_tuning.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {"minilm": sentence_encoder(folder / "minilm"), "smollm2": published("llama", folder / "smollm2")}


@pytest.mark.usefixtures("numpy_engine", "unseen_figures")
def test_what_the_page_prints_runs(small, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "resolve", small.get)
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"the quick brown fox {i},{'ab'[i % 2]}\n" for i in range(40))
    Path("labels.csv").write_text("text,label\n" + rows)
    Path("notes.txt").write_text(PROSE)
    trained = gf.train
    monkeypatch.setattr(gf, "train", lambda *given, **more: trained(*given, **more, steps=2, show=False))
    for language, block in BLOCKS:
        if language == "python":
            if "peft" not in block.partition("\n")[0]:  # tests/training/test_peft.py compares with PEFT
                exec(block, {})
            continue
        for line in block.splitlines():
            program, name, *rest = shlex.split(line)
            few = {"train": ["--steps", "2"], "generate": ["--max-new-tokens", "2"]}.get(name, [])
            assert program == "glassformer"
            result = command(name, *rest, *few) if name != "pull" else None
            assert result is None or result.code == 0, f"{line}: {result.err}"


@pytest.mark.parametrize(
    ("topic", "column"),
    [("text --from smollm2", 1), ("text --from smollm2 --lora", 2), ("classify --from minilm", 3),
     ("classify --from minilm --lora", 4)],
)  # fmt: skip
def test_its_table_of_defaults_is_true(topic, column, small, monkeypatch):
    monkeypatch.setattr(catalog, "resolve", small.get)
    listed = command("settings", *topic.split())
    assert listed.code == 0, listed.err
    shown = {name: default for _, name, default, *_ in (line.split("\t") for line in listed.out.splitlines())}
    table = re.findall(r"^\| (steps|batch|learning rate|weight decay) \|(.*)\|$", PAGE, flags=re.MULTILINE)
    said = {name: float(cells.split("|")[column - 1].replace(",", "")) for name, cells in table}
    names = {"learning rate": "lr", "weight decay": "weight_decay"}
    assert said == {name: float(shown[names.get(name, name)]) for name in said}
