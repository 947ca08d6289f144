"""The command around the checker: hints one at a time, solutions after a try, classes, labs of one's own."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, DataError
from glassformer.labs import check, check_backward, check_file, get_lab, start
from glassformer.labs.lab import read_lab
from runs import command

pytest_plugins = ["glassformer.labs.pytest_plugin"]
pytestmark = pytest.mark.usefixtures("numpy_engine")
GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "labs.md").read_text(encoding="utf-8")
OWN = next(block for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL) if "silu_backward" in block)


def test_a_student_starts_tries_asks_and_looks_up(desk):
    assert command("lab", "start", "softmax_backward").out == "softmax_backward.py\n"
    again = command("lab", "start", "softmax_backward")
    assert (again.code, "is there already" in again.err) == (2, True)
    empty = command("lab", "check", "softmax_backward.py")
    assert (empty.code, "still to be written" in empty.out) == (1, True)
    assert "have not tried" in command("lab", "solution", "softmax_backward").err
    (desk / "softmax.py").write_text("")
    assert "defines no function" in command("lab", "check", "softmax.py").out
    assert "have not tried" in command("lab", "solution", "softmax").err
    first, second = (command("lab", "hint", "softmax_backward").out for _ in range(2))
    assert (first.count("\n"), second.count("\n")) == (1, 2)
    path = desk / "softmax_backward.py"
    path.write_text(path.read_text().replace('raise NotImplementedError("write softmax_backward")', "return y * dy"))
    found = json.loads(command("lab", "check", path, "--json").out)
    assert (found["ok"], found["kind"], found["lab"]) == (False, "missing term", "softmax_backward")
    solved = command("lab", "solution", "softmax_backward")
    path.write_text(solved.out)
    assert command("lab", "check", path).code == 0
    row = next(row for row in json.loads(command("lab", "--json").out)["labs"] if row["name"] == "softmax_backward")
    assert (row["state"], row["chapter"]) == ("right", "2, 6")


def test_a_notebook_of_a_lab_is_checked_and_a_block_narrowed_down_to_its_wrong_part(desk):
    path = start("block", as_notebook=True)
    verdict = check_file(path)
    assert (verdict.kind, verdict.name) == ("empty", "layer_norm")

    path = desk / "block.py"
    path.write_text(get_lab("block").solution.replace("hidden = np.maximum(x @ w1 + b1, 0)", "hidden = x @ w1 + b1"))
    verdict = check_file(path)
    assert verdict.parts == ("layer_norm", "multi_head")
    assert verdict.name == "feed_forward"
    assert "layer_norm is right.\nmulti_head is right.\nfeed_forward is not right yet" in repr(verdict)


def test_a_class_is_graded(desk):
    (desk / "class" / "ada").mkdir(parents=True)
    (desk / "class" / "ada" / "softmax.py").write_text(get_lab("softmax").solution)
    (desk / "class" / "eve.py").write_text("from glassformer.ops import softmax\ndef nothing(): pass\n")
    result = command("lab", "grade", "class", "--csv")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert [(row["file"], row["lab"], row["right"]) for row in rows] == [
        ("ada/softmax.py", "softmax", "True"),
        ("eve.py", "", "False"),
    ]
    assert "does not say which lab" in rows[1]["finding"]
    assert "there is no folder" in command("lab", "grade", "nowhere").err


def test_a_lab_of_ones_own_is_a_short_file(desk):
    assert len(OWN.splitlines()) < 45
    (desk / "silu_backward.py").write_text(OWN)
    task = start("silu_backward.py", "task.py")
    assert "s = 1 /" not in task.read_text()
    solved = task.read_text().replace(
        'raise NotImplementedError("write silu_backward")', "return dy / (1 + np.exp(-x))"
    )
    task.write_text(solved)
    verdict = check_file(task)
    assert verdict.kind == "missing term"
    assert "x inside σ" in verdict.findings[0].words


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def silu_backward", "def other", "defines no function silu_backward"),
        ("def example", "def examples", "has no examples for silu_backward"),
        ('"dx": {', '"dz": {', "TERMS names dz"),
        ("HINTS = [", "GIVEN = ['lost']\nHINTS = [", "defines no function lost"),
        ("HINTS = [", "HINTS = 'a' #", "HINTS is a text"),
        ('DERIVATION = {"dx":', "DERIVATION = 3 #", "cannot be read as a lab: AttributeError"),
        ("return dy * (s", "return nothing * (s", "fails on its own example: NameError"),
        ("import numpy", "import nump", "cannot be read as a lab"),
    ],
)
def test_a_lab_that_contradicts_itself_is_refused(desk, old, new, words):
    path = desk / "silu_backward.py"
    path.write_text(OWN.replace(old, new))
    with pytest.raises(DataError, match=words):
        read_lab(path, "silu_backward")


def scaled(x, w):
    return np.tanh(x) * w


def scaled_backward(dy, x, w):
    t = np.tanh(x)
    return dy * w * (1 - t * t), (dy * t).sum(0)


def example(draw):
    return draw.array("B", "D"), draw.array("D")


def test_any_gradient_is_checked_without_a_lab(check_gradient):
    check_gradient(scaled, scaled_backward, example)
    assert check_backward(scaled, scaled_backward, (np.ones((2, 3)), np.ones(3))).ok
    softmax = gf.ops.softmax, gf.ops.softmax_backward
    assert check_backward(*softmax, lambda draw: draw.array("B", "S")).ok


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (lambda dy, x, w: (scaled_backward(dy, x, w)[0], dy * np.tanh(x)), "not summed", "dw has shape"),
        (lambda dy, x, w: (-scaled_backward(dy, x, w)[0], (dy * np.tanh(x)).sum(0)), "wrong sign", "dx"),
        (lambda dy, x, w: (scaled_backward(dy, x, w)[0], (dy * np.tanh(x)).mean(0)), "wrong factor", "1/B"),
        (lambda dy, x, w: scaled_backward(dy, x, w)[0], "wrong result", "1 result, not 2"),
    ],
)
def test_a_wrong_gradient_gets_its_name(wrong, kind, words):
    verdict = check_backward(scaled, wrong, example)
    assert verdict.kind == kind, repr(verdict)
    assert words in verdict.findings[0].words


def test_the_fixture_fails_with_the_checkers_words(check_lab):
    check_lab(lambda x: 1 / np.exp(x[..., None, :] - x[..., None]).sum(-1), "softmax")
    with pytest.raises(pytest.fail.Exception, match="softmax is not right yet: wrong axis"):
        check_lab(lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum(), "softmax")


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="two functions"):
        check_backward(3, scaled_backward, example)
    with pytest.raises(ConfigError, match="no hint 0"):
        gf.labs.hint("softmax", 0)
    with pytest.raises(DataError, match="there is no lab file"):
        check(scaled, "nowhere.py")
