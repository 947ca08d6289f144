"""Tasks: every one builds, fits its model's config, answers typed input, and holds out what it never trains on."""

import json
from pathlib import Path

import numpy as np
import pytest

from glassformer.config import CONFIGS
from glassformer.core.errors import ConfigError, DataError, TokenError
from glassformer.core.registry import SUMMARIES
from glassformer.data import TASKS, build_task
from glassformer.data.corpus import write_tokens
from glassformer.data.examples import Examples, Windows
from glassformer.data.task import RECIPE, recipe, until
from glassformer.ops.loss import IGNORE

WORDS = [a + b + c for a in "bcdfgl" for b in "aeiou" for c in "nrst"]
SMALL = {  # options that make a task quick to build
    "dates": {"train": 600, "held_out_each": 3},
    "copy": {"train": 500, "held_out": 100},
    "reverse": {"train": 500, "held_out": 100},
    **{
        name: {"train": 400, "validation": 50, "held_out": 50}
        for name in ("induction", "parity", "brackets", "regression")
    },
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file for each task that needs one."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "names.txt").write_text("\n".join(WORDS + WORDS[:30]))
    (folder / "pairs.tsv").write_text("\n".join(f"{word}\t{word[::-1]}" for word in WORDS))
    (folder / "labels.csv").write_text("text,label\n" + "\n".join(f"{word},{ord(word[0]) % 2}" for word in WORDS))
    return {"lines": folder / "names.txt", "pairs": folder / "pairs.tsv", "classify": folder / "labels.csv"}


@pytest.fixture(scope="module")
def tasks(files):
    return {name: build_task(name, data=files.get(name), **SMALL.get(name, {})) for name in TASKS}


def questions(data: Examples) -> set[tuple]:
    """What each example asks: its source, its tokens if it is to be classified, or the tokens before the answer."""
    rows = data.rows
    if rows.source is not None:
        return {tuple(row[real].tolist()) for row, real in zip(rows.source, rows.source_mask, strict=True)}
    if rows.targets.ndim == 1:
        return {tuple(row) for row in rows.tokens.tolist()}
    asked = (rows.targets != IGNORE).argmax(axis=1)
    return {tuple(row[: first + 1].tolist()) for row, first in zip(rows.tokens, asked, strict=True)}


def whole(data: Examples) -> set[tuple]:
    return {tuple(row[real].tolist()) for row, real in zip(data.rows.targets, data.rows.mask, strict=True)}


def test_every_task_has_a_summary():
    assert SUMMARIES.keys() == TASKS.keys()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_fits_the_config_of_its_model(tasks, name):
    task = tasks[name]
    config = CONFIGS[task.architecture](**task.settings)
    assert task.name == name
    assert task.summary == SUMMARIES[name]
    assert task.recipe.keys() == RECIPE.keys()
    assert config.vocab == (task.tokenizer.size if task.architecture == "decoder" else task.answer_tokenizer.size)
    for data in (task.train, task.held_out):
        for batch in data.batches(500):
            assert batch.tokens.shape[1] <= config.context
            assert 0 <= batch.tokens.min() <= batch.tokens.max() < config.vocab
            assert batch.targets.max() < (task.settings.get("classes") or config.vocab)
            if batch.source is not None:
                assert batch.source.shape[1] <= config.context
                assert batch.source.max() < config.source_vocab
    json.dumps([task.settings, task.recipe, task.notes, task.prompts])  # a run folder stores them


@pytest.mark.parametrize("name", TASKS)
def test_a_prompt_becomes_a_batch_of_one(tasks, name):
    task = tasks[name]
    assert task.prompts
    for prompt in task.prompts:
        batch = task.encode_input(prompt)
        assert len(batch.tokens) == 1
        assert batch.tokens.shape[1] >= 1
        assert (batch.source is not None) == (task.architecture == "encoder-decoder")


@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("text", "lines", "counting")])
def test_nothing_held_out_occurs_in_training(tasks, name):
    task = tasks[name]
    assert not questions(task.train) & questions(task.held_out)


@pytest.mark.parametrize("name", ["copy", "reverse", "sort"])
def test_a_hash_keeps_the_sides_apart_for_all_seeds_at_once(name):
    options = SMALL.get(name, {})
    one, two = build_task(name, seed=1, **options), build_task(name, seed=2, **options)
    assert not questions(one.train) & questions(two.held_out)


@pytest.mark.parametrize("name", TASKS)
def test_the_same_seed_builds_the_same_data(files, name):
    one, two = (build_task(name, seed=3, data=files.get(name), **SMALL.get(name, {})) for _ in range(2))
    for a, b in [(one.train, two.train), (one.held_out, two.held_out)]:
        for x, y in zip(a.batch(5, 6, 0), b.batch(5, 6, 0), strict=True):
            assert (x is None and y is None) or np.array_equal(x, y)


@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("text", "counting", "classify")])
def test_another_seed_builds_other_data(files, name):
    one, two = (build_task(name, seed=s, data=files.get(name), **SMALL.get(name, {})) for s in (3, 4))
    assert any(not np.array_equal(a.rows.targets, b.rows.targets)
               for a, b in [(one.train, two.train), (one.held_out, two.held_out)])  # fmt: skip
    with pytest.raises(ConfigError, match="seed is -1"):
        build_task(name, seed=-1, data=files.get(name))


def test_unknown_tasks_options_and_recipes_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'majority'"):
        build_task("majorty")
    with pytest.raises(ConfigError, match="'sort' has no option 'data'"):
        build_task("sort", data="x")
    with pytest.raises(ConfigError, match="did you mean 'seed'"):
        build_task("sort", seeds=1)
    with pytest.raises(ConfigError, match="did you mean 'steps'"):
        recipe(step=3)
    assert until(np.array([4, 5, 0, 6]), 0) == [4, 5]
    assert until([4, 5], 0) == [4, 5]


def test_majority_counts_and_gives_ties_to_the_smallest(tasks):
    task = tasks["majority"]
    assert (len(task.train), len(task.held_out)) == (1600, 400)
    for data in (task.train, task.held_out):
        for tokens, answer in zip(data.rows.tokens.tolist(), data.rows.targets.tolist(), strict=True):
            assert answer == max(range(3), key=lambda token: (tokens.count(token), -token))
    assert task.encode_input("0 1 1 2 2 0 1 1").tokens.tolist() == [[0, 1, 1, 2, 2, 0, 1, 1]]
    assert task.decode_answer([2]) == "2"
    with pytest.raises(ConfigError, match="6,561"):
        build_task("majority", train=6500, held_out=100)


def test_counting_is_one_sequence_and_says_that_nothing_is_held_out(tasks):
    task = tasks["counting"]
    batch = task.train.batch(0, 1, 0)
    assert batch.tokens.tolist() == [[1, 2, 3, 4, 5]]
    assert batch.targets.tolist() == [[2, 3, 4, 5, 6]]
    assert batch.mask is None
    assert task.settings["vocab"] == 20
    assert "nothing is held out" in task.notes[0]
    assert task.encode_input("1").tokens.tolist() == [[1]]
    assert task.decode_answer([2, 3]) == "2 3"


@pytest.mark.parametrize(("name", "answer"), [("copy", "abcj"), ("reverse", "jcba")])
def test_strings_are_answered_after_the_equals_sign(tasks, name, answer):
    task = tasks[name]
    assert task.tokenizer.decode(task.encode_input(" abcj ").tokens[0]) == "abcj="
    eos = task.tokenizer.specials["<eos>"]
    assert task.decode_answer([*task.tokenizer.encode(answer), eos, 3]) == answer
    for tokens, targets in zip(task.train.rows.tokens[:50], task.train.rows.targets[:50], strict=True):
        question, _, _ = task.tokenizer.decode(tokens).partition("=")
        expected = question if name == "copy" else question[::-1]
        assert task.tokenizer.decode(targets[targets != IGNORE]) == expected + "<eos>"
    with pytest.raises(DataError, match="11 letters"):
        task.encode_input("a" * 11)
    with pytest.raises(TokenError, match="'z'"):
        task.encode_input("xyz"[2])


def test_sort_asks_for_the_digits_in_order(tasks):
    task = tasks["sort"]
    assert len(task.held_out) == 5000
    assert len(task.train) + len(questions(task.held_out)) == 3**6
    for tokens, targets in zip(task.held_out.rows.tokens[:100], task.held_out.rows.targets[:100], strict=True):
        assert targets[:5].tolist() == [IGNORE] * 5
        assert targets[5:].tolist() == sorted(tokens[:6].tolist())
    assert task.encode_input("210210").tokens.tolist() == [[2, 1, 0, 2, 1, 0]]
    with pytest.raises(DataError, match="5 digits"):
        task.encode_input("01201")


def test_text_holds_out_its_last_tenth(tmp_path):
    content = "".join(chr(97 + i % 26) for i in range(1000))
    (tmp_path / "t.txt").write_text(content)
    task = build_task("text", data=tmp_path / "t.txt", context=16)
    assert isinstance(task.train, Windows)
    assert task.tokenizer.decode(task.train.tokens) == content[:900]
    assert task.tokenizer.decode(task.held_out.tokens) == content[900:]
    assert max(batch.targets.max() for batch in task.held_out.batches(3)) < 26
    assert sum((batch.targets != IGNORE).sum() for batch in task.held_out.batches(3)) == 99
    mapped = write_tokens(tmp_path / "t.txt", tmp_path / "t.bin")
    from_tokens = build_task("text", data=tmp_path / "t.bin", context=16)
    assert isinstance(from_tokens.train.tokens, np.memmap)
    assert np.array_equal(from_tokens.train.tokens, task.train.tokens)
    assert from_tokens.tokenizer == mapped.tokenizer == task.tokenizer
    assert build_task("text", data=tmp_path / "t.txt", tokenizer="bytes").settings["vocab"] == 256


def test_a_file_with_the_name_of_a_carried_text_does_not_replace_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pydoc").write_text("ab" * 100)
    write_tokens(tmp_path / "pydoc", tmp_path / "stdlib")
    (tmp_path / "stdlib.json").rename(tmp_path / "pydoc.json")  # as if it were a token file
    assert build_task("text").settings["vocab"] > 50
    assert build_task("text", data="pydoc").settings["vocab"] > 50
    (tmp_path / "pydoc.json").unlink()
    for path in ("./pydoc", tmp_path / "pydoc", Path("pydoc")):
        assert build_task("text", data=path).settings["vocab"] == 2


def test_text_that_cannot_serve_is_refused(tmp_path):
    (tmp_path / "short.txt").write_text("abc")
    with pytest.raises(DataError, match="too short"):
        build_task("text", data=tmp_path / "short.txt")
    with pytest.raises(DataError, match="no file or folder"):
        build_task("text", data=tmp_path / "missing.txt")
    with pytest.raises(ConfigError, match="did you mean 'chars'"):
        build_task("text", tokenizer="char")
    with pytest.raises(DataError, match="there is no text"):
        build_task("text").encode_input("")


def test_lines_run_from_bos_to_eos_and_repeated_ones_stay_in_training(tasks):
    task = tasks["lines"]
    bos, eos = task.tokenizer.specials["<bos>"], task.tokenizer.specials["<eos>"]
    rows = task.train.rows
    assert (rows.tokens[:, 0] == bos).all()
    assert ((rows.targets == eos).sum(axis=1) == 1).all()
    assert task.train.count == sum(rows.mask.sum(axis=1)) == 4 * len(task.train)  # three letters and the end
    assert task.encode_input("").tokens.tolist() == [[bos]]
    assert task.decode_answer([*task.tokenizer.encode("ban"), eos]) == "ban"

    train, validation, held_out = whole(task.train), whole(task.validation), whole(task.held_out)
    assert not train & validation
    assert not train & held_out
    assert not validation & held_out
    assert len(train | validation | held_out) == len(WORDS)
    assert any("repeated lines of validation" in note for note in task.notes)


def test_lines_that_cannot_serve_are_refused(tmp_path):
    with pytest.raises(DataError, match="needs a file"):
        build_task("lines")
    (tmp_path / "one.txt").write_text("same\n" * 10)
    with pytest.raises(DataError, match="10 lines, of which 1 differ"):
        build_task("lines", data=tmp_path / "one.txt")
    (tmp_path / "two.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match="2 examples cannot be split"):
        build_task("lines", data=tmp_path / "two.txt")
    (tmp_path / "long.txt").write_text("abcdef\n" * 5)
    with pytest.raises(DataError, match="no line of at most 3"):
        build_task("lines", data=tmp_path / "long.txt", longest=3)
