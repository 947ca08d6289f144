"""A task of one's own: what a function yields becomes data, settings and a summary; what does not fit is refused."""

import inspect

import numpy as np
import pytest

import glassformer as gf
from glassformer.config import CONFIGS
from glassformer.core import registry
from glassformer.core.errors import ConfigError, DataError
from glassformer.data import TASKS, Task, build_task, files_of, import_file
from glassformer.data.task import RECIPE
from glassformer.ops.loss import IGNORE
from glassformer.text import CharTokenizer, WordTokenizer


def doubling(*, seed=0, longest=5):
    """write every letter twice

    More about it.
    """
    rng = np.random.default_rng(seed)
    for _ in range(900):
        word = "".join(rng.choice(list("abcd"), size=rng.integers(1, longest + 1)))
        yield word + "=", "".join(2 * letter for letter in word)


def test_a_decorated_function_is_a_task_by_its_name_with_its_arguments_as_settings():
    built = gf.task(doubling)
    assert list(inspect.signature(TASKS["doubling"]).parameters) == ["seed", "longest"]
    task = build_task("doubling", seed=3, longest=4)
    assert isinstance(task, Task)
    assert task.name == "doubling"
    assert task.summary == "write every letter twice"
    assert task.recipe.keys() == RECIPE.keys()
    assert len(built(longest=2).train) < len(task.train)
    CONFIGS[task.architecture](**task.settings)
    with pytest.raises(ConfigError, match="'doubling' has no option 'longst'"):
        build_task("doubling", longst=4)


def test_the_answer_follows_the_question_and_ends():
    task = gf.task(doubling)()
    rows = task.train.rows
    for tokens, targets in zip(rows.tokens[:50], rows.targets[:50], strict=True):
        word = task.tokenizer.decode(tokens).partition("=")[0]
        assert task.tokenizer.decode(targets[targets != IGNORE]) == "".join(2 * x for x in word) + "<eos>"
    assert task.tokenizer.decode(task.encode_input("abc=").tokens[0]) == "abc="
    end = task.tokenizer.specials["<eos>"]
    assert task.decode_answer([*task.tokenizer.encode("aabb"), end, 2]) == "aabb"
    with pytest.raises(DataError, match="there is no text"):
        task.encode_input("")


def test_the_three_parts_share_no_question_for_any_seed():
    build = gf.task(doubling)

    def asked(data):
        return {task.tokenizer.decode(row).partition("=")[0] for row in data.rows.tokens}

    task = build(seed=1)
    train, validation, held_out = map(asked, (task.train, task.validation, task.held_out))
    assert not train & validation
    assert not train & held_out
    assert not validation & held_out
    assert len(train) == len(task.train)
    assert any("repeated questions left out" in note for note in task.notes)
    assert not train & asked(build(seed=2).held_out)


def test_an_encoder_tells_classes_apart():
    @gf.task(architecture="encoder", settings={"layers": 1}, recipe={"steps": 7})
    def first(*, seed=0):
        """tell the first letter"""
        for number in range(300):
            yield f"{number:03}", "low" if number < 150 else "high"

    task = build_task("first", seed=5)
    assert task.architecture == "encoder"
    assert task.recipe["steps"] == 7
    assert (task.settings["layers"], task.settings["classes"]) == (1, 2)
    assert [task.decode_answer([number]) for number in (0, 1)] == ["high", "low"]
    for tokens, answer in zip(task.held_out.rows.tokens, task.held_out.rows.targets, strict=True):
        assert task.decode_answer([answer]) == ("low" if int(task.tokenizer.decode(tokens)) < 150 else "high")


def test_an_encoder_decoder_writes_another_text():
    @gf.task(architecture="encoder-decoder")
    def backward():
        """write backward"""
        for number in range(300):
            yield str(number), str(number)[::-1]

    task = build_task("backward", seed=1)  # a seed is always accepted
    rows, bos = task.held_out.rows, task.tokenizer.specials["<bos>"]
    for source, mask, tokens, targets in zip(rows.source, rows.source_mask, rows.tokens, rows.targets, strict=True):
        assert tokens[0] == bos
        assert task.decode_answer(targets[targets != IGNORE]) == task.tokenizer.decode(source[mask])[::-1]
    assert task.encode_input("12").tokens.tolist() == [[bos]]
    gf.build(CONFIGS[task.architecture](**task.settings))


def test_a_tokenizer_of_ones_choice_is_used_if_it_has_what_is_needed():
    known = WordTokenizer([str(number) for number in range(200)], specials=("<eos>",))

    @gf.task(tokenizer=known)
    def next_number():
        for number in range(199):
            yield str(number), str(number + 1)

    assert build_task("next_number").tokenizer is known

    @gf.task(tokenizer=CharTokenizer("ab"))
    def endless():
        for number in range(99):
            yield "a" * number + "b", "b"

    with pytest.raises(ConfigError, match=r"no special token '<eos>'(.|\n)*'decoder' needs <eos>"):
        build_task("endless")


def test_a_function_may_return_a_whole_task():
    @gf.task
    def counted(*, seed=0):
        """count to four"""
        return build_task("counting", seed=seed, last=4)

    task = build_task("counted")
    assert task.name == "counted"
    assert task.train.batch(0, 1, 0).tokens.tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: 3, "returned 3"),
        (lambda: "ab", "returned 'ab'"),
        (lambda: ["abc"], "yielded 'abc'"),
        (lambda: [("a", 1)], r"yielded \('a', 1\)"),
        (lambda: [("", "a")], r"yielded \('', 'a'\)"),
        (lambda: [("a", "b")], "1 different questions, too few"),
        (lambda: 1 / 0, r"ZeroDivisionError: division by zero \(test_python_files.py, line \d+\)"),
    ],
)
def test_what_is_no_data_is_refused(made, message):
    made.__name__ = "strange"
    gf.task(made)
    with pytest.raises(DataError, match=message):
        build_task("strange")


def test_what_is_no_task_is_refused():
    with pytest.raises(ConfigError, match="3 is no function"):
        gf.task(3)
    with pytest.raises(ConfigError, match="'size' of the task 'f' has no default"):

        @gf.task
        def f(size): ...

    with pytest.raises(ConfigError, match=r"the task 'g' takes \*\*others"):

        @gf.task
        def g(**others): ...

    with pytest.raises(ConfigError, match="'sort' is the name of a built-in task"):

        @gf.task
        def sort(): ...

    with pytest.raises(ConfigError, match="did you mean 'decoder'"):
        gf.task(architecture="decodr")(doubling)
    with pytest.raises(ConfigError, match="did you mean 'steps'"):
        gf.task(recipe={"step": 3})(doubling)
    assert "f" not in TASKS


TASK = """
import glassformer as gf

@gf.task
def letters(*, count=40):
    for number in range(count):
        yield f"{number}=", "x"
"""
ACTIVATION = """
import glassformer as gf
gf.register_activation("halved", lambda x: (x / 2, x), lambda dy, x: dy / 2)
"""


def test_a_file_is_read_once_and_again_when_it_changed_or_others_took_its_names(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(TASK)
    file = import_file(path)
    assert file.tasks == ("letters",)
    assert registry.origin("task", "letters") == path.resolve()
    first = TASKS["letters"]
    assert import_file(path) == file
    assert TASKS["letters"] is first
    other = tmp_path / "other.py"
    other.write_text(TASK)
    import_file(other)
    assert TASKS["letters"] is not first
    assert file.tasks == ()
    assert file.loaded is None
    assert import_file(path).tasks == ("letters",)
    assert file.loaded == file.sha256
    path.write_text(TASK.replace("40", "50"))
    assert file.loaded == file.sha256  # which does not look at the disk
    assert import_file(path).sha256 != file.sha256


def test_the_files_of_parts_are_named_once(tmp_path):
    path, other = tmp_path / "mine.py", tmp_path / "other.py"
    path.write_text(TASK)
    other.write_text(ACTIVATION)
    mine, theirs = import_file(path), import_file(other)
    chosen = [("task", "letters"), ("activation", "halved"), ("norm", "layer"), ("block", None), ("task", "letters")]
    assert files_of(chosen) == (mine, theirs)
    registry.register("activation", "halved", ())  # by a program
    assert files_of(chosen) == (mine,)


def test_a_file_may_import_its_neighbors_and_have_dataclasses(tmp_path):
    (tmp_path / "neighbor_of_mine.py").write_text("HALF = 0.5\n")
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport neighbor_of_mine\n"
        "@dataclass(frozen=True)\nclass Settings:\n    half: float = neighbor_of_mine.HALF\n" + ACTIVATION
    )
    import_file(path)
    assert registry.own("activation")["halved"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1\ny = = 2\n", r"SyntaxError: invalid syntax \(wrong.py, line 2\)"),
        ("x = 1\n\ny = z\n", r"NameError: name 'z' is not defined \(wrong.py, line 3\)"),
        ("x = 1\n", "registers nothing"),
        ("import glassformer as gf\n@gf.task\ndef sort(): ...\n", r"'sort' is the name of a built-in task \(wrong.py"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "wrong.py"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        import_file(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"missing.py cannot be read: No such file(.|\n)*hint: pass a Python file"):
        import_file(tmp_path / "missing.py")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        import_file(tmp_path)
