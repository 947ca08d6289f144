"""Text from files: read in pieces of any size without a difference, and refused with the reason."""

import os
import sys
import types

import pytest

from glassformer.core.errors import DataError
from glassformer.data.corpus import pydoc_topics, read_text, stdlib_source, stream_text, text_files


def test_every_python_carries_prose_and_source():
    text = pydoc_topics()
    assert len(text) > 100_000
    assert "assert" in text
    text = stdlib_source()
    assert len(text) > 1_000_000
    assert "class OrderedDict" in text


@pytest.mark.parametrize("layout", [{}, {"topics": []}, {"topics": {}}, {"topics": {"a": 1}}])
def test_an_unknown_layout_of_the_prose_is_refused(monkeypatch, layout):
    module = types.ModuleType("pydoc_data.topics")
    vars(module).update(layout)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", module)
    monkeypatch.setattr("pydoc_data.topics", module, raising=False)
    with pytest.raises(DataError, match="layout"):
        pydoc_topics()


def test_missing_prose_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    with pytest.raises(DataError, match="carries no pydoc_data"):
        pydoc_topics()


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_pieces_of_any_size_join_to_the_same_text(tmp_path, chunk):
    text = "grüße 日本語 🙂\r\nline\rlast\n"
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert "".join(stream_text(path, chunk=chunk)) == "grüße 日本語 🙂\nline\nlast\n"


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.md").write_text("first")
    (tmp_path / "sub" / "c.PY").write_text("third")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "picture.png").write_bytes(b"\xff\xfe")
    (tmp_path / ".hidden" / "d.txt").write_text("never")
    assert [path.name for path in text_files(tmp_path)] == ["a.md", "b.txt", "empty.txt", "c.PY"]
    assert read_text(tmp_path) == "first\nsecond\nthird"


@pytest.mark.parametrize("chunk", [1, 4, 1000])
@pytest.mark.parametrize(("data", "offset"), [(b"abc\xffdef", 3), ("é日".encode() + b"\x80", 5), (b"ok \xc3", 3)])
def test_another_encoding_is_refused_with_its_first_wrong_byte(tmp_path, data, offset, chunk):
    path = tmp_path / "latin.txt"
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"latin\.txt, line 1, offset {offset}: not UTF-8: byte 0x{data[offset]:02x}"):
        list(stream_text(path, chunk=chunk))


def test_a_wrong_byte_behind_the_first_piece_has_its_place_in_the_file(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * 3000 + b"\xe9" + b"y")
    with pytest.raises(DataError, match="offset 3,000"):
        list(stream_text(path, chunk=1024))


def test_missing_empty_and_textless_paths_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no file or folder"):
        read_text(tmp_path / "nowhere.txt")
    with pytest.raises(DataError, match="holds no file that ends in"):
        read_text(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"empty\.txt holds no text"):
        read_text(tmp_path / "empty.txt")
    with pytest.raises(DataError, match="holds no text"):
        read_text(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="pipes in the manner of POSIX")
def test_an_empty_path_pipes_and_devices_are_refused():
    with pytest.raises(DataError, match="path of the data is empty"):
        text_files("")
    reader, writer = os.pipe()
    for path in (os.devnull, f"/dev/fd/{reader}"):
        with pytest.raises(DataError, match="pipe or a device"):
            text_files(path)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("path", [0, True, None, ["notes.txt"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(DataError, match="which is no path"):
        text_files(path)
