"""Every lab: filled in it passes, empty it says what to do, its terms sum to its results, mistakes get their names."""

import ast
import re
import textwrap

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, DataError
from glassformer.labs import check, check_file, get_lab, list_labs
from glassformer.labs.draw import examples
from glassformer.labs.lab import FOLDER, ORDER
from glassformer.labs.trees import results
from lab_mistakes import MISTAKES, OTHER_WAYS

LABS = list_labs()


def functions(source):
    """The functions that a file defines."""
    namespace = {}
    exec(source, namespace)
    return namespace


def filled_in(name, old="", new=""):
    """The functions of a lab's solution, with another text in one place."""
    words, mark, code = get_lab(name).solution.partition("LAB = ")
    assert old in code, f"{name}: the solution has no {old!r}"
    return functions(words + mark + code.replace(old, new, 1))


def test_the_order_names_every_statement():
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__init__"} == {*ORDER}


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_a_lab_passes_filled_in_says_what_to_do_empty_and_hides_its_solution(lab):
    solved, empty = functions(lab.solution), functions(lab.start)
    for exercise in lab.exercises:
        assert check(solved[exercise.name], lab.name).ok
        verdict = check(empty[exercise.name], lab.name)
        assert verdict.kind == "empty"
        assert f"{exercise.name} is still to be written" in repr(verdict)

    assert lab.chapter
    assert lab.statement
    assert len(lab.hints) >= 2
    tree = ast.parse(lab.solution)
    returned = [ast.unparse(node.value) for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value]
    for text in (lab.statement, *lab.hints):
        assert not [line for line in returned if len(line) > 12 and line in text], "the answer is given away"
    assert f"gf.labs.check({lab.exercises[-1].name}" in lab.notebook

    for exercise in lab.exercises:
        for example in examples(exercise.example, 3):
            right = results(exercise.reference(*example.args), exercise.returns)
            for name, terms in exercise.terms.items():
                total = sum(np.asarray(term(*example.args)) for term in terms.values())
                np.testing.assert_allclose(total, right[name], atol=1e-12)


@pytest.mark.parametrize(("lab", "old", "new", "kind"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_planted_mistake_gets_its_name(lab, old, new, kind):
    verdict = check(filled_in(lab, old, new)[get_lab(lab).exercises[-1].name], lab)
    assert not verdict.ok
    assert verdict.kind == kind, repr(verdict)


@pytest.mark.parametrize(("lab", "source"), OTHER_WAYS, ids=lambda value: str(value)[:30])
def test_another_right_way_is_right(lab, source):
    function = functions("import math\nimport numpy as np\n" + textwrap.dedent(source))[lab]
    verdict = check(function)
    assert verdict.ok, repr(verdict)


def test_a_verdict_shows_the_term_the_smallest_input_and_the_formula_of_a_wrong_answer():
    def my_softmax_backward(dy, y):
        return y * dy

    words = repr(gf.labs.check(my_softmax_backward))
    assert "dx lacks the term −y · Σ dy · y (the row sum)" in words
    assert "your dx: [[[2.]]]" in words
    assert "right dx: [[[0.]]]" in words
    assert "dx = y · (dy − Σ dy · y)" in words

    def softmax_backward(dy, y):
        dx = y * (dy - (dy * y).sum(-1, keepdims=True))
        return 2 * dx if dx.size == 6 else dx

    assert check(softmax_backward).findings[0].kind == "wrong factor"


def test_a_changed_loop_comes_to_an_end():
    def top_p(logits, p):
        e = np.exp(logits - logits.max())
        e, out, total = e / e.sum(), np.zeros(len(e)), 0.0
        while total < p:
            best = int(np.argmax(np.where(out > 0, 0, e)))
            out[best] = 2.0 * e[best] ** 1.5
            total += e[best]
        return out / out.sum()

    assert not check(top_p).ok

    by_column = "norms = np.sqrt(np.sum(dw**2, axis=0))\n        dw = dw / np.maximum(norms, 1)"
    old = "norm = np.sqrt(np.sum(dw**2))\n        if norm > 1:\n            dw = dw / norm"
    assert not check(filled_in("training_loop", old, by_column)["training_loop"]).ok


@pytest.mark.parametrize(
    ("lab", "old", "new", "words"),
    [
        ("attention_backward", "sqrt(q.shape[-1])", "sqrt(k.shape[1])", "all of dq is divided by √S instead of √C"),
        ("attention_backward", "/ np.sqrt(q.shape[-1])", "", "all of dq is not divided by √C"),
        ("softmax_backward", "(dy, y)", "(dy)", "softmax_backward is called with (dy, y), which yours does not take"),
        ("layer_norm", "gamma * centered", "centered", "your y: [[[-3., 2.]]]\n  right y: [[[-4., 0.]]]"),
    ],
)  # fmt: skip
def test_a_verdict_says_it_plainly(lab, old, new, words):
    assert words in repr(check(filled_in(lab, old, new)[lab], lab))


def test_what_four_digits_hide_and_the_first_line_that_is_none_of_ours_are_shown(handed_in):
    def layer_norm(x, gamma, beta):
        return get_lab("layer_norm").exercises[0].reference(x, gamma, beta) + 1e-6

    mine, right = re.findall(r"(?:your|right) y: (.*)", repr(check(layer_norm)))
    assert mine != right

    verdict, line = handed_in("adam", "m_hat = m / (1 - 0.9**step)", "m_hat = m / (1 - 0.999**step)")
    finding = verdict.findings[0]
    assert (finding.kind, finding.line) == ("wrong factor", line)
    assert finding.remedy == "it becomes right with `0.9` in place of `0.999`"


@pytest.fixture
def handed_in(tmp_path):
    """Write a lab's solution with another text in one place, and check it; return the verdict and the line changed."""

    def write(name, old, new):
        text = get_lab(name).solution
        assert text.count(old) == 1
        path = tmp_path / f"{name}.py"
        path.write_text(text.replace(old, new), encoding="utf-8")
        return check_file(path), text[: text.index(old)].count("\n") + 1

    return write


def test_the_suspect_line_is_shown_and_a_transpose_of_three_axes_explained(handed_in):
    verdict, line = handed_in("adam", "m_hat = m / (1 - 0.9**step)", "m_hat = np.cos(m) * np.sin(v) / step")
    assert verdict.kind == "unknown"
    assert f"the right value in line {line} makes all of it right" in repr(verdict)

    def attention(q, k, v, mask):
        return q @ k.T @ v

    assert "`.T` turns all axes around; np.swapaxes(a, -1, -2) turns the last two" in repr(check(attention))


def test_a_function_that_no_lab_asks_for_is_refused():
    with pytest.raises(ConfigError, match="no lab asks for a function sofdmax"):
        check(eval("lambda x: x", {}).__class__(compile("0", "", "eval"), {}, "sofdmax"))
    with pytest.raises(ConfigError, match="is no function"):
        check(3)
    with pytest.raises(ConfigError, match="there is no lab 'softmx'"):
        get_lab("softmx")
    with pytest.raises(DataError, match="there is no file"):
        check_file("nowhere.py")
