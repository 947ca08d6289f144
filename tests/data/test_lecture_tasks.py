"""The tasks that lectures use and the published data sets: what each asks, and that its three parts share nothing."""

import itertools

import numpy as np
import pytest

from glassformer.config import CONFIGS
from glassformer.core import tree
from glassformer.core.errors import ConfigError, DataError
from glassformer.data import build_task, count_targets
from glassformer.data.tasks.numbers import least_squares
from glassformer.data.tasks.strings import is_balanced
from glassformer.models import build
from glassformer.ops.loss import IGNORE
from published_models import data_file

FEW = {"train": 300, "validation": 30, "held_out": 30}
SMALL = {
    "multiplication": {},
    "modular": {"modulus": 23},
    "induction": FEW,
    "parity": FEW,
    "brackets": FEW,
    "regression": FEW,
}


@pytest.fixture(scope="module")
def tasks():
    return {name: build_task(name, **options) for name, options in SMALL.items()}


def examples(task, data):
    """Each example as (question, answer), both as text."""
    for tokens, targets in zip(data.rows.tokens, data.rows.targets, strict=True):
        first = int((targets != IGNORE).argmax()) + 1
        yield task.tokenizer.decode(tokens[:first]), task.tokenizer.decode(targets[targets != IGNORE])


@pytest.mark.parametrize("name", SMALL)
def test_three_parts_share_no_example(tasks, name):
    parts = [{tuple(row) for row in data.rows.tokens.tolist()}
             for data in (tasks[name].train, tasks[name].validation, tasks[name].held_out)]  # fmt: skip
    for one, two in itertools.combinations(parts, 2):
        assert not one & two


@pytest.mark.parametrize(("name", "compute"), [("addition", int.__add__), ("multiplication", int.__mul__)])
@pytest.mark.parametrize(("digits", "reverse"), [(1, True), (2, False), (4, True), (4, False)])
def test_arithmetic_of_n_digits_is_right_and_keeps_both_orders_together(name, compute, digits, reverse):
    options = {"validation": 9, "held_out": 10, **({"train": 200} if digits > 2 else {})}
    task = build_task(name, digits=digits, reverse=reverse, **options)
    parts = []
    for data in (task.train, task.validation, task.held_out):
        parts.append(set())
        for question, answer in examples(task, data):
            a, b = int(question[:digits]), int(question[digits:])
            assert int(answer[::-1] if reverse else answer) == compute(a, b)
            assert task.decode_answer(task.tokenizer.encode(answer)) == str(compute(a, b))
            parts[-1].add(frozenset([a, b]))
    for one, two in itertools.combinations(parts, 2):
        assert not one & two
    assert len(task.train) == (200 if digits > 2 else len(task.train))
    sign = "+" if name == "addition" else "*"
    assert task.tokenizer.decode(task.encode_input(f" 7 {sign} 3 =").tokens[0]) == f"{7:0{digits}}{3:0{digits}}"
    assert all(task.encode_input(prompt).tokens.shape == (1, 2 * digits) for prompt in task.prompts)


def test_arithmetic_that_cannot_be_is_refused():
    for name in ("addition", "multiplication"):
        with pytest.raises(ConfigError, match=r"digits is 10(.|\n)*from 1 to 9"):
            build_task(name, digits=10)
        with pytest.raises(ConfigError, match=r"digits is '3'"):
            build_task(name, digits="3")
        with pytest.raises(ConfigError, match=r"reverse is 'yes'"):
            build_task(name, reverse="yes")
        with pytest.raises(ConfigError, match=r"1000 held-out pairs(.|\n)*55 different pairs: use 1 to"):
            build_task(name, digits=1, held_out=1000)
        with pytest.raises(ConfigError, match=r"train is 20,000, but only"):
            build_task(name, train=20_000)
    for wrong in ("100+1", "7-3", "", "٣+1"):
        with pytest.raises(DataError, match="no sum"):
            build_task("addition").encode_input(wrong)
    with pytest.raises(DataError, match=r"'100\*1' is no product of two numbers below 100"):
        build_task("multiplication").encode_input("100*1")


@pytest.mark.parametrize(("operation", "compute"), [("+", int.__add__), ("-", int.__sub__), ("*", int.__mul__)])
def test_modular_arithmetic_covers_its_table(operation, compute):
    task = build_task("modular", modulus=13, fraction=0.4, operation=operation)
    parts, rows = [], 0
    for data in (task.train, task.validation, task.held_out):
        parts.append(set())
        for question, answer in examples(task, data):
            a, sign, b, equals = question.split()
            assert (sign, equals) == (operation, "=")
            assert int(answer) == compute(int(a), int(b)) % 13
            parts[-1].add((int(a), int(b)) if operation == "-" else frozenset([int(a), int(b)]))
            rows += 1
    assert rows == 13 * 13
    assert abs(len(task.train) / rows - 0.4) < 0.05
    for one, two in itertools.combinations(parts, 2):
        assert not one & two
    assert task.tokenizer.decode(task.encode_input(f"3{operation}12").tokens[0]) == f"3 {operation} 12 ="
    with pytest.raises(DataError, match="two numbers below 13"):
        task.encode_input(f"13{operation}1")


def test_modular_arithmetic_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="modulus is 1"):
        build_task("modular", modulus=1)
    with pytest.raises(ConfigError, match="operation is '/'"):
        build_task("modular", operation="/")
    for wrong in (0, 1, "half", True):
        with pytest.raises(ConfigError, match="fraction is"):
            build_task("modular", fraction=wrong)
    with pytest.raises(ConfigError, match="leaves a part empty"):
        build_task("modular", modulus=2, fraction=0.9)


def test_induction_repeats_from_the_given_symbol_on(tasks):
    task = tasks["induction"]
    lengths = set()
    for question, answer in examples(task, task.held_out):
        once = question[:-1]
        assert len(set(once)) == len(once)
        assert question[-1] == once[0]
        assert question + answer == (once * 24)[:24]
        lengths.add(len(once))
    assert lengths == set(range(6, 13))
    assert task.tokenizer.decode(task.encode_input("ab ca").tokens[0]) == "abca"
    with pytest.raises(DataError, match="24 symbols"):
        task.encode_input("a" * 24)
    with pytest.raises(ConfigError, match=r"longest is 30(.|\n)*from 2 to 26"):
        build_task("induction", longest=30)


@pytest.mark.parametrize("in_steps", [True, False])
def test_parity_counts_ones(in_steps):
    task = build_task("parity", bits=8, in_steps=in_steps)
    assert len(task.train) + len(task.validation) + len(task.held_out) == 2**8
    for question, answer in examples(task, task.train):
        steps = [question[: place + 1].count("1") % 2 for place in range(8)]
        assert answer == "".join(map(str, steps if in_steps else steps[-1:]))
    assert task.tokenizer.decode(task.encode_input("1010 1010").tokens[0]) == "10101010="
    with pytest.raises(DataError, match="7 bits"):
        task.encode_input("1010101")
    with pytest.raises(ConfigError, match="bits is 65"):
        build_task("parity", bits=65)


@pytest.mark.parametrize("kinds", [1, 2, 4])
def test_brackets_are_balanced_half_of_the_time_and_wrong_by_little(kinds):
    task = build_task("brackets", kinds=kinds, longest=12, **FEW)
    rows, shares = task.train.rows, []
    for tokens, mask, answer in zip(rows.tokens, rows.mask, rows.targets, strict=True):
        text = task.tokenizer.decode(tokens[mask])
        assert task.decode_answer([answer]) == ("balanced" if is_balanced(text) else "wrong")
        assert 2 <= len(text) <= 12
        assert len(text) % 2 == 0
        shares.append(is_balanced(text))
    assert 0.2 < np.mean(shares) < 0.7
    with pytest.raises(DataError, match="13 brackets"):
        task.encode_input("(" * 13)
    with pytest.raises(ConfigError, match=r"kinds is 5(.|\n)*from 1 to 4"):
        build_task("brackets", kinds=5)


@pytest.mark.parametrize(
    ("text", "expected"), [("", True), ("()", True), ("([]{})", True), ("([)]", False), ("(", False), (")(", False)]
)
def test_balance_is_what_a_stack_finds(text, expected):
    assert is_balanced(text) == expected


def test_regression_has_a_line_in_each_sequence(tasks):
    task = tasks["regression"]
    assert task.train.count == 300 * 9
    assert task.held_out.count == 30
    for question, answer in examples(task, task.held_out):
        numbers = [float(word) for word in f"{question} {answer}".split()]
        x, y = np.array(numbers[0::2]), np.array(numbers[1::2])
        residual = np.abs(y - np.polyval(np.polyfit(x, y, 1), x)).max()
        assert residual < 0.101
    assert "least squares" in task.notes[1]
    assert task.tokenizer.decode(task.encode_input("0 0.21, 0.5 0.44, 1").tokens[0]) == "0 0.2 0.5 0.4 1"
    for wrong, message in [("0 1", "2 numbers"), ("0 x 1", "other than numbers"), ("0 3 1", "leaves the range")]:
        with pytest.raises(DataError, match=message):
            task.encode_input(wrong)
    with pytest.raises(ConfigError, match="points is 1"):
        build_task("regression", points=1)


def test_least_squares_continues_a_line():
    x = np.array([-9, -3, 2, 5, 9])
    points = np.stack([np.stack([x, 2 * x + 1], axis=-1), np.stack([x * 0 + 3, x * 0 + 4], axis=-1)])
    assert least_squares(points).tolist() == [19, 4]


def parameters(task) -> int:
    model = build(CONFIGS[task.architecture](**task.settings))
    return tree.count(model.init(np.random.default_rng(0)))


def test_addition_and_sort_have_the_published_sizes():
    assert parameters(build_task("addition")) <= 400_128
    assert [build_task("sort").settings[name] for name in ("layers", "heads", "width")] == [3, 3, 48]


@pytest.mark.data("names.txt")
def test_names_are_split_as_makemore_splits_them_less_the_repeats():
    path = data_file("names.txt")
    task = build_task("lines", data=path, seed=0)
    every = path.read_text().split()
    assert len(every) == 32_033
    assert len(task.train) == 30_033  # all but a thousand to validate on and a thousand to test on
    assert len(task.validation) + len(task.held_out) == 2_000 - 301
    assert task.settings["vocab"] == 26 + 2
    assert task.settings["context"] == 16
    assert parameters(task) <= 200_000
    # Every letter of a name and its end count, as in makemore's loss.
    assert task.train.count == task.train.rows.mask.sum()


@pytest.mark.data("tinyshakespeare.txt")
def test_tinyshakespeare_is_split_as_nanogpt_splits_it():
    task = build_task("text", data=data_file("tinyshakespeare.txt"))
    assert (len(task.train.tokens), len(task.held_out.tokens)) == (1_003_854, 111_540)
    assert task.settings["vocab"] == 65
    assert sum(count_targets(batch) for batch in task.held_out.batches(256)) == 111_539
