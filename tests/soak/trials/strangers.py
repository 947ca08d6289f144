"""Run folders and saved models of strangers: their fields say anything, and their checksums are right.

Every command that takes a model or a run reads such a folder or refuses it in a sentence. Nothing hangs, no control
character of a field reaches the terminal, and no file outside of the folder is written.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.core.dispatch import use_engine
from glassformer.core.documents import digest as of_saved
from glassformer.core.files import sha256_of
from glassformer.runs.folder import checksum

from . import forks
from .mutate import ODD, replaced
from .trial import LostError, Trial, demand, described

from runs import finish, tiny_session, write_data  # isort: skip

EVIL = "\x1b]0;owned\x07\x1b[3Jaway\x9b2J\x08\r\u202e"
OUTSIDE = "outside"
"""Stands for a file that the folder has no business with."""
VALUES = (*ODD, EVIL, EVIL, OUTSIDE, OUTSIDE, "hf:org/name", ".", "run", "saved", [EVIL], {EVIL: EVIL})
FEW = {"steps": 2, "eval_every": 1}
MOST = 999
"""Largest number in a recipe or in the options of a task: larger ones ask for hours of honest work."""
NUMBERS = (float("nan"), float("inf"), -1e38, 1e30, 1e5, 0.0)
TEXTS = {"majority": "11110222", "lines": "ada", "pairs": "ada", "classify": "ada"}
LINKED = ("lock", "holder.json", "metrics.jsonl", "latest.safetensors", "best.safetensors", "recording", "config.json")

READS = (
    "predict {} TEXT", "predict {} TEXT --json", "eval {}", "eval {} --json", "generate {} TEXT --max-new-tokens 2",
    "generate {} TEXT --max-new-tokens 2 --json", "tokenize {} TEXT", "embed {} a TEXT", "chat {} TEXT",
    "look {} TEXT", "look {} TEXT attribution", "look {} TEXT gradients", "look {} TEXT heads --json",
    "look {} TEXT ablation", "look {} TEXT neurons", "export {} out", "export {} out.gguf",
    "train lines --data data/lines.txt --from {} --steps 1 --out new", "train lines --data data/lines.txt --from {} "
    "--lora --steps 1 --out new",
)  # fmt: skip
OF_RUNS = ("runs . --json", "runs .", "compare {} other", "train --resume {}", "train --resume {}", "replay {} --json")
SELDOM = ("inspect {} TEXT --theme dark", "replay {}")
"""Lines that draw figures and write a page take seconds."""
PYTHON = re.compile(
    r"Traceback|Warning: |object (has no|is not|cannot|of type|does not)|unsupported operand|not supported between|"
    r"must be (str|int|real|a )\w* ?(not|argument)|unhashable|unexpected keyword|positional argument|indices must|"
    r"\b(Key|Type|Value|Attribute|Index|Recursion)Error|invalid literal|cannot unpack|subscriptable|Axis limits|"
    r"<class|could not be broadcast|maximum recursion|the input is nested|"
    r"dictionary update|the system refuses|a library failed"
)
"""What Python says, and what the command line says of errors that nobody expected."""
DRAWS = re.compile(r"\x1b\[(\?25[lh]|[0-9;]*m|2K|\d*[ABCD])|\r")
"""Control codes by which the library rich draws."""
CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def prepare(shared: Path) -> None:
    """Train small runs, one with adapters beside another, and save their models."""
    forks.check(lambda: _write(shared), shared / "written.txt")


def _write(shared: Path) -> None:
    import glassformer as gf
    from glassformer.runs.start import new_session

    os.chdir(shared)
    with use_engine("numpy"):
        for task in TEXTS:
            finish(tiny_session(task, shared / task / "run", **FEW))
            gf.save(gf.load(shared / task / "run"), shared / task / "saved")
        data = write_data("lines", shared / "tuned" / "data")
        shutil.copytree(shared / "lines" / "run", shared / "tuned" / "base")
        given = {"source": str(shared / "tuned" / "base"), "data": data, "adapters": True, "recorded": True}
        finish(new_session("lines", shared / "tuned" / "run", settings={**FEW, "lora_rank": 2}, **given))
        model = gf.load(shared / "tuned" / "run")
        gf.save(model, shared / "tuned" / "saved")
        model.export(shared / "tuned" / "adapter", format="peft")


def _fields(path: Path, rng: random.Random, outside: Path) -> None:
    """Change fields of a JSON file, and make its checksum right."""
    content = json.loads(path.read_text(encoding="utf-8"))
    stated = content.pop("sha256", None)
    values = tuple(str(outside / "planted") if one is OUTSIDE else one for one in VALUES)
    for _ in range(rng.choice((1, 1, 2, 4))):
        part = content[rng.choice(list(content))] if isinstance(content, dict) and content else content
        content = replaced(content, rng, values) if not isinstance(part, dict) or rng.random() < 0.2 else content
        if isinstance(part, dict) and part:
            replaced(part, rng, values)
    if isinstance(content, dict):
        for part in (content.get("recipe"), *([content["task"].get("options")] if _is_task(content) else [])):
            _bound(part)
        with contextlib.suppress(Exception):
            content["sha256"] = checksum(content) if path.name == "config.json" else of_saved(content)
    text = json.dumps(content if stated or not isinstance(content, dict) else {**content, "sha256": None})
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


def _is_task(content: dict[str, Any]) -> bool:
    return isinstance(content.get("task"), dict)


def _bound(part: Any) -> None:
    """Leave small numbers in a dict."""
    for name, value in part.items() if isinstance(part, dict) else ():
        if isinstance(value, int | float) and abs(value) > MOST:
            part[name] = MOST


def _lines(path: Path, rng: random.Random, outside: Path) -> None:
    """Change fields of the lines of a file."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    changed = [replaced(line, rng, VALUES) if rng.random() < 0.7 else line for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in changed), encoding="utf-8", errors="surrogatepass")


def _weights(path: Path, rng: random.Random, outside: Path) -> None:
    """Put numbers into weights that are none, or far too large."""
    from glassformer.training.checkpoint import load_checkpoint, save_checkpoint
    from glassformer.weights.tensors import open_tensors, write_tensors

    found = load_checkpoint(path.parent, path.stem) if path.stem in ("best", "latest") else None
    tensors = None if found else open_tensors(path.parent)
    arrays = {name: np.array(tensors.read(name)) for name in tensors.stored} if tensors else dict(found.arrays)
    for name in rng.sample(list(arrays), min(len(arrays), rng.choice((1, 2, 99)))):
        if arrays[name].dtype.kind == "f" and arrays[name].size:
            arrays[name] = array = np.array(arrays[name])
            array.reshape(-1)[slice(None) if rng.random() < 0.5 else slice(0, 1)] = rng.choice(NUMBERS)
    path.unlink()  # others may map it
    if found is not None:
        save_checkpoint(path.parent, path.stem, arrays, found.meta)
        return
    write_tensors(path, arrays, {"format": "np"})
    about = path.parent / "glassformer.json"
    content = json.loads(about.read_text(encoding="utf-8"))
    content.pop("sha256")
    content["files"][path.name] = sha256_of(path)
    about.write_text(json.dumps({**content, "sha256": of_saved(content)}), encoding="utf-8")


def _links(path: Path, rng: random.Random, outside: Path) -> None:
    """Let a name in the folder lead to a file, a folder or nothing outside of it, or be a pipe."""
    link = path.parent / rng.choice(LINKED)
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    if rng.random() < 0.3:
        os.mkfifo(link)
    else:
        link.symlink_to(rng.choice((outside / "file", outside, outside / "planted")))


class Subject(NamedTuple):
    """What is spoiled: folders of those prepared, a file in each, and how."""

    folders: tuple[str, ...]
    file: str
    spoil: Callable[[Path, random.Random, Path], None]


SUBJECTS = {
    "config of a run": Subject((*TEXTS, "tuned"), "run/config.json", _fields),
    "config of a run with a base": Subject(("tuned",), "run/config.json", _fields),
    "description of a model": Subject((*TEXTS, "tuned"), "saved/glassformer.json", _fields),
    "adapter": Subject(("tuned",), "adapter/adapter_config.json", _fields),
    "metrics of a run": Subject((*TEXTS, "tuned"), "run/metrics.jsonl", _lines),
    "weights of a run": Subject((*TEXTS, "tuned"), "run/best.safetensors", _weights),
    "state of a run": Subject((*TEXTS, "tuned"), "run/latest.safetensors", _weights),
    "weights of a model": Subject((*TEXTS, "tuned"), "saved/model.safetensors", _weights),
    "links in a run": Subject((*TEXTS, "tuned"), "run/config.json", _links),
}


class Screen(io.StringIO):
    """A terminal, as far as a command can tell."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def attempt(shared: Path, own: Path, seed: int) -> None:
    """Spoil a folder, and try some commands on it."""
    kind, rng = TRIAL.kind(seed), random.Random(seed)
    subject = SUBJECTS[kind]
    name = rng.choice(subject.folders)
    here, outside = own / "here", own / "outside"
    shutil.copytree(shared / name, here)
    shutil.copytree(shared / "lines" / "data", here / "data", dirs_exist_ok=True)
    shutil.copytree(shared / name / "run", here / "other")
    for path in here.rglob("*.json"):  # a base is found by its whole path
        path.write_text(path.read_text(encoding="utf-8").replace(str(shared / name), str(here)), encoding="utf-8")
    _sign(here)
    outside.mkdir()
    (outside / "file").write_text("mine", encoding="utf-8")
    subject.spoil(here / subject.file, rng, outside)
    model = subject.file.split("/")[0]
    lines = [*READS, *(OF_RUNS if model == "run" else ())]
    chosen = rng.sample(lines, 3) + ([rng.choice(SELDOM)] if rng.random() < 0.04 else [])
    for line in chosen:
        words = [word.format(model) for word in line.split()]
        _type([TEXTS.get(name, "ada") if word == "TEXT" else word for word in words], here)
        demand(os.listdir(outside) == ["file"], f"{' '.join(words)} wrote {os.listdir(outside)} outside of the folder")
        demand((outside / "file").read_text() == "mine", f"{' '.join(words)} changed a file outside of the folder")
        demand(sorted(os.listdir(own)) == ["config", "here", "outside"], f"{' '.join(words)} wrote {os.listdir(own)}")


def _sign(here: Path) -> None:
    """Make the checksums of moved folders right."""
    for path in [*here.glob("*/config.json"), *here.glob("*/glassformer.json")]:
        content = json.loads(path.read_text(encoding="utf-8"))
        content.pop("sha256")
        sign = checksum if path.name == "config.json" else of_saved
        path.write_text(json.dumps({**content, "sha256": sign(content)}), encoding="utf-8")


def _type(words: list[str], here: Path) -> None:
    """Type one line at a terminal; lose the case unless it ends with an answer or a sentence."""
    from glassformer.cli import main

    said, shown, before, back, stdin = Screen(), Screen(), sys.argv, os.getcwd(), sys.stdin
    line, code = f"glassformer {' '.join(words)}", 0
    (here.parent / "config").mkdir(exist_ok=True)
    os.environ |= {"GLASSFORMER_ENGINE": "numpy", "XDG_CONFIG_HOME": str(here.parent / "config"), "HF_HUB_OFFLINE": "1"}
    streams = sys.stdout, sys.stderr
    try:
        os.chdir(here)
        sys.argv, sys.stdin = ["glassformer", *words], io.TextIOWrapper(io.BytesIO(b"hello\n/exit\n"))
        sys.stdout, sys.stderr = shown, said
        with warnings.catch_warnings():
            main()
    except SystemExit as leave:
        code = leave.code or 0
    except Exception as error:
        raise LostError(f"{described(error)} after {line}") from error
    finally:
        sys.stdout, sys.stderr = streams
        os.chdir(back)
        sys.argv, sys.stdin = before, stdin
    out, err = DRAWS.sub("", shown.getvalue()), DRAWS.sub("", said.getvalue())
    demand(code in (0, 1, 2), f"{line} ended with {code!r}")
    if found := PYTHON.search(err):
        raise LostError(f"{line} said {err[max(found.start() - 100, 0) : found.end() + 60]!r}")
    if found := CONTROL.search(out + err):
        raise LostError(f"{line} sent {found[0]!r} to the terminal")
    demand(code == 0 or "error: " in err, f"{line} ended with {code} and said {err[:99]!r}")
    is_computed = words[0] in ("predict", "look", "embed")
    demand(code != 0 or not is_computed or re.search(r"\bnan\b", out) is None, f"{line} printed nan as an answer")


TRIAL = Trial(
    name="strangers",
    title="run folders and models with changed fields and right checksums, under every command, at a terminal",
    kinds=tuple(SUBJECTS),
    full=2_000,
    quick=40,
    prepare=prepare,
    attempt=attempt,
    limit=40.0,
)
