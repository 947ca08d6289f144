"""The page about one's own data: its files are made, its commands run, and they say what it prints."""

import re
import shlex
from pathlib import Path

import pytest

from runs import command

pytestmark = pytest.mark.usefixtures("numpy_engine")

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "guides" / "own_data.md").read_text(encoding="utf-8")
MAKE, BIG, USE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)
TINY = ["--set=width=8", "--set=heads=2", "--set=layers=1"]


def test_every_command_of_the_page_says_what_it_prints(tmp_path, monkeypatch, unseen_figures, capsys):
    monkeypatch.chdir(tmp_path)
    exec(MAKE, {})
    for line, *printed in (part.splitlines() for block in BLOCKS for part in block.split("$ ")[1:]):
        words = shlex.split(line)[1:]
        few = []
        if words[0] == "train":
            steps = words.index("--steps") if "--steps" in words else len(words)
            words = [*words[:steps], *words[steps + 2 :]]
            few = ["--steps", "1", *TINY, *(["--set=encoder_layers=1"] if words[1] == "pairs" else [])]
        result = command(*words, *few)
        assert result.code == 0, f"{line}\n{result.err}"
        assert "\n".join(printed) in result.err, result.err
    exec(BIG.replace("200_000_000", "20_000"), {})
    words = ["train", "text", "--data=big.txt", "--steps=1", "--set=eval_tokens=128", "--out=runs/big", *TINY]
    assert command(*words).code == 0
    measured = command("eval", "runs/big")
    assert (measured.code, "±" in measured.out, "--all measures all" in measured.err) == (0, True, True)
    assert command("tokens", "big.txt", "--out", "big.tokens").code == 0
    exec(USE.replace("steps=20", "steps=1").replace("steps=5", "steps=1"), {})
    assert "('even', 'odd')" in capsys.readouterr().out
