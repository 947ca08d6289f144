"""config.json of a run: every change of it is found, but for where things lie."""

import json
import random

import pytest

from glassformer.core.errors import CheckpointError, ConfigError, GlassformerError
from glassformer.runs.folder import checksum
from glassformer.runs.run import open_run
from runs import command, edit_config, tiny_session


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_session("lines", tmp_path_factory.mktemp("config") / "run", steps=2).run.folder


def test_every_flipped_bit_is_found_or_harmless(folder):
    path, rng = folder / "config.json", random.Random(0)
    whole, meant = path.read_bytes(), open_run(folder)
    try:
        for _ in range(200):
            place, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                found = open_run(folder)
            except CheckpointError:
                continue
            assert found.to_dict() == meant.to_dict()
    finally:
        path.write_bytes(whole)


def test_an_edited_config_is_refused_until_its_checksum_is_removed(folder):
    path = folder / "config.json"
    whole = path.read_text()
    try:
        path.write_text(whole.replace('"steps": 2', '"steps": 3'))
        with pytest.raises(CheckpointError, match=r"config\.json is damaged, or was edited") as caught:
            open_run(folder)
        assert "remove its line sha256" in str(caught.value)
        result = command("eval", folder)
        assert result.code == 1
        edit_config(folder, lambda content: None)
        assert open_run(folder).recipe.steps == 3
    finally:
        path.write_text(whole)


def test_data_may_be_moved_once_the_checksum_is_removed_and_of_older_runs_at_once(folder):
    path = folder / "config.json"
    whole = path.read_text()
    content = json.loads(whole)
    content["task"]["options"]["data"] = "elsewhere.txt"
    try:
        path.write_text(json.dumps(content))
        with pytest.raises(CheckpointError, match="its checksum does not match"):
            open_run(folder)
        edit_config(folder, lambda content: None)
        assert open_run(folder).task_options["data"] == "elsewhere.txt"
        older = {**json.loads(whole), "format": 1}
        older.pop("sha256")
        older["sha256"] = checksum(older)
        older["task"]["options"]["data"] = "elsewhere.txt"
        path.write_text(json.dumps(older))
        assert open_run(folder).task_options["data"] == "elsewhere.txt"
    finally:
        path.write_text(whole)


WRONG = {
    "options of a list": lambda content: content["task"].update(options=[1]),
    "a name of a number": lambda content: content["task"].update(name=3),
    "a task of text": lambda content: content.update(task="sort"),
    "an option of text": lambda content: content["task"]["options"].update(seed="x"),
    "a model of a list": lambda content: content.update(model=[1]),
    "a base of a number": lambda content: content.update(base=5),
    "no tokenizer": lambda content: content.update(tokenizer=None),
    "steps of text": lambda content: content["recipe"].update(steps="x"),
    "own files of numbers": lambda content: content.update(own=[1]),
    "data of a number": lambda content: content["task"]["options"].update(data=3),
    "another format": lambda content: content.update(format=3),
    "cores of text": lambda content: content["record"].update(cores="x"),
    "no cores": lambda content: content["record"].update(cores=0),
    "versions of numbers": lambda content: content["record"].update(versions={"numpy": 2}),
    "a record of text": lambda content: content.update(record="x"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_makes_no_sense_is_refused_in_a_sentence_with_or_without_a_checksum(folder, wrong):
    path = folder / "config.json"
    whole = path.read_text()
    try:
        edit_config(folder, WRONG[wrong])
        with pytest.raises((CheckpointError, ConfigError, GlassformerError)):
            open_run(folder).task()
    finally:
        path.write_text(whole)


def test_a_config_that_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        open_run(tmp_path)
