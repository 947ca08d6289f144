"""What a verdict says: no wrong line, no mistake called what it is not, and on the first try no solution."""

import re
import textwrap
import warnings
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer.labs import check, check_file, get_lab, list_labs
from glassformer.labs.lab import ORDER
from glassformer.labs.mutants import mutants
from lab_mistakes import MISTAKES
from labs_exam import EXAM, cases, checked

EXAMS = EXAM, EXAM.with_name("labs_exam_2.toml")
UNNAMED = {"causal_mask": 2, "top_p": 2, "softmax": 1, "attention": 1, "layer_norm": 1, "block": 1}
"""How many mistakes of the two exams get another name than theirs."""
HEAD = "import numpy as np\n\n\n"


@pytest.fixture
def judged(desk):
    """Check a file that holds one function."""

    def judge(name, text):
        path = desk / f"{name}.py"
        path.write_text(HEAD + textwrap.dedent(text).strip() + "\n", encoding="utf-8")
        return check_file(path, name)

    return judge


def assert_sound(verdict):
    """Each sentence names two things if it tells them apart, and claims no more than was seen."""
    text = repr(replace(verdict, is_first=False))
    for new, old in re.findall(r"with `(.*)` in place of `(.*)`", text):
        assert new != old, text
    for lost, whole in re.findall(r"without `(.*)` in `(.*)`", text):
        assert lost != whole, text
    assert "more than one" not in text
    assert "site-packages" not in text
    first = repr(replace(verdict, is_first=True))
    assert " in place of " not in first
    assert not re.search(r"becomes right|^    with(out)? `", first, flags=re.MULTILINE)


@pytest.mark.parametrize(("lab", "old", "new"), [one[:3] for one in MISTAKES])
def test_what_is_said_about_a_planted_mistake_is_sound(lab, old, new, desk):
    path = desk / f"{lab}.py"
    words, mark, code = get_lab(lab).solution.partition("LAB = ")
    path.write_text(words + mark + code.replace(old, new, 1), encoding="utf-8")
    assert_sound(check_file(path))


@pytest.mark.parametrize("lab", ORDER)
def test_what_is_said_about_a_students_mistake_is_sound(lab):
    unnamed = 0
    for exam in EXAMS:
        for case in cases("wrong", lab, exam):
            verdict, _ = checked(lab, case["code"])
            assert not verdict.ok
            assert_sound(verdict)
            unnamed += verdict.kind not in case["kinds"]
    assert unnamed <= UNNAMED.get(lab, 0)


def test_a_long_change_is_cut_where_it_differs_and_other_words_are_no_change():
    old = "(a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r + s).sum(axis=-1)"
    texts = [one.words for one in mutants(f"def f(a):\n    return {old}", "f") if "axis=-2" in one.words]
    assert texts
    assert all(text.count("axis=-2") == 1 for text in texts)
    assert not [
        one for one in mutants("def f(a):\n    return a.sum( axis = -1 )", "f") if "with `a.sum(axis=-1)`" in one.words
    ]


def test_a_result_that_is_not_finite_names_the_line_and_the_input(judged):
    verdict = judged("layer_norm", """
        def layer_norm(x, gamma, beta):
            centered = x - x.mean(-1, keepdims=True)
            rstd = np.log(centered.min(-1, keepdims=True) - 1)
            return centered * rstd * gamma + beta
    """)  # fmt: skip
    assert verdict.kind == "not finite", repr(verdict)
    assert (verdict.findings[0].line, "line 6 is the first that makes NaN" in repr(verdict)) == (6, True)
    assert re.search(r"  x = .*\n(.*\n)*  your y: .*nan", verdict.example)


def test_infinity_that_the_file_names_is_no_mistake(judged):
    verdict = judged("attention", """
        def attention(q, k, v, mask):
            scores = np.where(mask, q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -np.inf)
            e = np.exp(scores - scores.max(-1, keepdims=True))
            weights = e / e.sum(-1, keepdims=True)
            return weights @ v / np.sqrt(-1 - 0 * weights.sum())
    """)  # fmt: skip
    assert verdict.findings[0].line == 8


def test_only_finite_mistakes_explain_finite_results(judged):
    # √ of a negative number hides which one it was: the same NaN comes out of any.
    def layer_norm(x, gamma, beta):
        centered = x - x.mean(-1, keepdims=True)
        return gamma * centered / np.sqrt(-(centered**2).mean(-1, keepdims=True) - 1e-5) + beta

    verdict = check(eval("layer_norm", {"layer_norm": layer_norm}))
    assert "comes out" not in repr(verdict)
    assert "line 3 is the first that makes NaN or infinity of finite numbers: y is not finite" in repr(verdict)

    text = get_lab("adam").solution.replace("dw**2", "dw", 1)
    namespace = {}
    exec(text, namespace)
    first, last = check(namespace["adam"]).findings
    assert (first.kind, first.result, last.kind, last.result) == ("wrong factor", "w, v", "not finite", "w")


UNEQUAL = {
    "softmax": ["x - np.max(x)", "x - np.max(np.abs(x), axis=-1, keepdims=True)", "x - x.max((1, 2), keepdims=True)"],
    "attention": [
        "scores - np.max(scores)",
        "scores - np.max(np.where(mask, np.abs(scores), 0), axis=-1, keepdims=True)",
    ],
    "cross_entropy": ["logits - np.max(logits)", "logits - np.max(np.abs(logits), axis=-1, keepdims=True)"],
    "cross_entropy_backward": ["logits - np.max(logits)", "logits - np.max(np.abs(logits), axis=-1, keepdims=True)"],
}


@pytest.mark.parametrize(("lab", "new"), [(lab, new) for lab, many in UNEQUAL.items() for new in many])
def test_the_maximum_of_other_rows_or_of_sizes_is_found_wrong(lab, new, desk):
    source = get_lab(lab).exercises[-1].source
    name = re.search(r"(\w+) - np.max\(\1, axis=-1, keepdims=True\)", source)
    path = desk / f"{lab}.py"
    path.write_text(source.replace(name[0], new), encoding="utf-8")
    verdict = check_file(path)
    assert verdict.kind == "not finite", repr(verdict)
    line = verdict.findings[0].line
    assert re.search("exp|log|sum|@|return", path.read_text().splitlines()[line - 1])
    assert "though it is right for usual inputs" in verdict.findings[0].words
    assert "nan" in verdict.example.lower() or "inf" in verdict.example.lower()


def test_a_line_is_blamed_only_if_its_right_value_mends_the_result(judged):
    right = judged("layer_norm", """
        def layer_norm(x, gamma, beta):
            mean = x.mean(-1, keepdims=True)
            var = np.cos(x).mean(-1, keepdims=True) ** 2 + np.sin(mean) ** 2
            return (x - mean) / np.sqrt(var + 1e-5) * gamma + beta
    """)  # fmt: skip
    assert "the right value in line 6 makes all of it right" in repr(right)
    two = judged("layer_norm", """
        def layer_norm(x, gamma, beta):
            mean = x.mean(-1, keepdims=True)
            var = np.cos(x).mean(-1, keepdims=True) ** 2 + np.sin(mean) ** 2
            out = np.cos(x - mean) / np.sqrt(var + 1e-5) * np.sin(gamma) + beta
            return out * np.cos(out)
    """)  # fmt: skip
    assert two.kind == "unknown"
    assert "line" not in repr(two).partition("The derivation")[0], repr(two)
    assert "no typical mistake gives its numbers" in repr(two)


def test_a_check_from_python_counts_as_a_try_and_a_graded_one_does_not(desk, judged):
    def softmax(x):
        return np.exp(x) / np.exp(x).sum(-2, keepdims=True)

    with pytest.raises(gf.errors.ConfigError, match="have not tried"):
        gf.labs.solution("softmax")
    first, second = gf.labs.check(softmax), gf.labs.check(softmax)
    assert "axis=-1" in gf.labs.solution("softmax")
    assert ("wrong axis" in repr(first), "in place of" in repr(first)) == (True, False)
    assert "it becomes right with `np.exp(x).sum(axis=-1, keepdims=True)` in place of" in repr(second)
    assert [name for name in ("remedy",) if name in first.as_dict()["findings"][0]] == []
    assert second.as_dict()["findings"][0]["remedy"]

    (desk / "class").mkdir()
    (desk / "class" / "softmax.py").write_text(get_lab("softmax").solution)
    assert [row["right"] for row in gf.labs.grade("class")] == [True]
    assert [path.name for path in (desk / "class").iterdir()] == ["softmax.py"]
    judged("softmax", "def softmax(x):\n    return x")
    assert gf.labs.solution("softmax")


def test_a_list_of_labs_shows_no_solution_and_no_warning_of_ours():
    shown = repr(list_labs()) + repr([one.exercises for one in list_labs()])
    assert "Lab('softmax', 'Softmax: weights from scores', chapter='2')" in shown
    assert not re.search(r"np\.|def |return |keepdims", shown)

    def softmax(x):
        warnings.warn("from inside", stacklevel=1)
        return np.exp(x) / np.mean(x[:, :0]) + np.sqrt(-1 - x * x).astype(complex)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(softmax)
    assert not caught
