"""Documents: what is written is read back, and what is damaged is refused with a reason and a remedy."""

import hashlib
import json
import zlib

import numpy as np
import pytest

from glassformer.core.documents import (
    as_read,
    check_document,
    crc32,
    digest,
    explaining_damage,
    read_json,
    write_document,
)
from glassformer.core.errors import CheckpointError, DataError, WeightsError

CONTENT = {"steps": 3, "names": ("ä", "b"), "of": {2: 0.1}}


def test_a_document_is_read_as_it_was_written_with_the_checksum_of_all_files_so_far(tmp_path):
    path = tmp_path / "a.json"
    write_document(path, CONTENT)
    content = read_json(path)
    assert check_document(path, content)
    assert content == as_read(CONTENT) == {"steps": 3, "names": ["ä", "b"], "of": {"2": 0.1}}
    assert not check_document(path, content)  # there is none any more

    stored = json.dumps(json.loads(json.dumps(CONTENT)), sort_keys=True).encode()
    assert digest(CONTENT) == hashlib.sha256(stored).hexdigest()
    assert crc32(CONTENT) == zlib.crc32(stored)
    array = np.arange(6, dtype="<f4").reshape(2, 3).T
    assert digest(["a", [3]], array, b"x") == hashlib.sha256(b'["a", [3]]' + array.tobytes() + b"x").hexdigest()


def test_white_space_and_order_do_not_count_and_an_edit_does(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"sha256": digest({"a": 1, "b": 2}), "b": 2, "a": 1}))
    assert check_document(path, read_json(path))
    path = tmp_path / "a.json"
    write_document(path, {"a": 1}, field="checksum", checksum=crc32({"a": 2}))
    with pytest.raises(WeightsError, match=r"a\.json is damaged, or was edited: its checksum does not match"):
        check_document(path, read_json(path), WeightsError, field="checksum", checksum=crc32)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is damaged: Expecting value"),
        ("[1]", "is damaged: it holds no JSON object"),
        ('{"a": 1, "a": 2}', "is damaged: the key 'a' stands there twice"),
        ("[" * 100_000, "is damaged: it is nested too deeply"),
        ('{"a": "' + "x" * 100 + '"}', "is larger than 99 bytes"),
    ],
)
def test_what_is_no_document_is_named(tmp_path, text, reason):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"a\.json") as caught:
        read_json(path, most=99 if "larger" in reason else None)
    assert reason in str(caught.value)


def test_what_cannot_be_read_is_no_damage(tmp_path):
    with pytest.raises(DataError, match=r"a\.json cannot be read: No such file(.|\n)*write it again"):
        read_json(tmp_path / "a.json", DataError, "write it again")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("task"), "it has no 'task'"),
        (TypeError("int is not iterable"), "a field is of another kind than it should be"),
        (OSError(2, "No such file or directory"), "No such file or directory"),
    ],
)
def test_content_that_makes_no_sense_is_damage_with_a_remedy(error, reason):
    with pytest.raises(CheckpointError) as caught, explaining_damage("x.json"):
        raise error
    assert str(caught.value) == f"x.json is damaged: {reason}\n\nhint: restore it from a copy"


def test_errors_that_name_their_file_stay_as_they_are():
    with pytest.raises(DataError, match="the data is gone"), explaining_damage("x.json"):
        raise DataError("the data is gone", hint="bring it back")
