"""Pairs of texts: tables and gettext catalogs, what is left out is counted, what is malformed is refused."""

import struct
import time

import pytest

from glassformer.core.errors import DataError
from glassformer.data import build_task
from glassformer.data.pairs import Pair, read_catalog

PO = r"""
msgid ""
msgstr ""
"Content-Type: text/plain; charset=utf-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

msgid "Open"
msgstr "Öffnen"

msgctxt "door"
msgid "Close"
msgstr "Schließen"

msgid "A \"quoted\"\tline\n"
"and another"
msgstr "Eine \"zitierte\"\tZeile\n"
"und noch eine"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#, fuzzy
msgid "Guess"
msgstr "Rat"

msgid "Untranslated"
msgstr ""

#, fuzzy
#~ msgid "Old"
#~ msgstr "Alt"

msgid "Last"
msgstr "Zuletzt"
"""
PAIRS = [
    Pair("Open", "Öffnen"),
    Pair("Close", "Schließen"),
    Pair('A "quoted"\tline\nand another', 'Eine "zitierte"\tZeile\nund noch eine'),
    Pair("%d file", "%d Datei"),
    Pair("%d files", "%d Dateien"),
    Pair("Last", "Zuletzt"),
]


def write_mo(po, mo):
    from babel.messages.mofile import write_mo as write
    from babel.messages.pofile import read_po

    with po.open("rb") as source, mo.open("wb") as target:
        write(target, read_po(source))


def targets(task):
    rows = task.train.rows.targets.tolist() + task.held_out.rows.targets.tolist()
    return sorted(task.decode_answer([i for i in row if i >= 0]) for row in rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "one\teins\r\n\n two \t zwei\n\tdrei\nvier\t\n"),
        ("a.data", "one\teins\ntwo\tzwei\n"),
        ("a.csv", 'source,target\n"one","eins"\ntwo,zwei\n'),
        ("a.csv", "prompt;n;answer\none;1;eins\ntwo;2;zwei\n"),
        ("a.jsonl", '{"source": "one", "target": "eins"}\n{"source": "two", "target": "zwei"}\n'),
        ("a.jsonl", '{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "eins"}]}\n'
                    '{"messages": [{"from": "human", "value": "two"}, {"from": "gpt", "value": "zwei"}]}\n'),
    ],
)  # fmt: skip
def test_a_table_holds_a_pair_in_each_row(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert targets(build_task("pairs", data=str(tmp_path / name))) == ["eins", "zwei"]


def test_spellings_of_a_source_stay_on_one_side(tmp_path):
    rows = [f"{word}\tx{i}{n}" for i in range(20) for n, word in enumerate((f"word {i}", f"Word  {i}", f"WORD {i}"))]
    (tmp_path / "a.tsv").write_text("\n".join(rows))
    task = build_task("pairs", data=tmp_path / "a.tsv")
    assert (len(task.train), len(task.held_out)) == (54, 6)


def test_catalogs_give_their_translated_messages_compiled_or_not(tmp_path):
    path = tmp_path / "de.po"
    path.write_text(PO, encoding="utf-8")
    assert read_catalog(path) == PAIRS
    (tmp_path / "de.po").write_text(PO, encoding="utf-8")
    write_mo(tmp_path / "de.po", tmp_path / "de.mo")
    assert sorted(read_catalog(tmp_path / "de.mo")) == sorted(PAIRS)


@pytest.mark.parametrize("charset", ["undefined", "klingon", "rot13"])
def test_a_charset_that_cannot_be_read_is_refused_in_one_sentence(tmp_path, charset):
    (tmp_path / "de.po").write_text(PO.replace("charset=utf-8", f"charset={charset}"))
    with pytest.raises(DataError, match=rf"charset is '{charset}'"):
        read_catalog(tmp_path / "de.po")


def test_catalogs_are_read_in_the_charset_they_name_as_babel_reads_them(tmp_path):
    latin = PO.replace("charset=utf-8", "charset=iso-8859-1")
    (tmp_path / "de.po").write_text(latin, encoding="iso-8859-1")
    assert read_catalog(tmp_path / "de.po") == PAIRS
    write_mo(tmp_path / "de.po", tmp_path / "de.mo")
    assert sorted(read_catalog(tmp_path / "de.mo")) == sorted(PAIRS)

    (tmp_path / "de.po").write_text(PO.replace("charset=utf-8\\n", "charset=utf-8\\nPO-Revision-Date: soon\\n"))
    assert read_catalog(tmp_path / "de.po") == PAIRS

    from babel.messages.pofile import read_po

    (tmp_path / "de.po").write_text(PO, encoding="utf-8")
    with (tmp_path / "de.po").open("rb") as file:
        messages = [message for message in read_po(file) if message.id and not message.fuzzy and message.string]
    theirs = [text for m in messages for text in (m.id if isinstance(m.id, tuple) else (m.id,))]
    assert theirs == [pair.source for pair in PAIRS]


def test_one_message_of_many_lines_takes_no_longer_than_as_many_messages(tmp_path):
    """Twenty thousand lines: adding each to a text that is copied again would copy 20 GB."""
    count, line = 20_000, '"' + 100 * "word " + '"\n'
    whole, apart = tmp_path / "whole.po", tmp_path / "apart.po"
    whole.write_text(f'msgid "long"\nmsgstr {count * line}')
    apart.write_text("".join(f'msgid "{n}"\nmsgstr {line}' for n in range(count)))
    seconds = []
    for path in (whole, apart):
        began = time.process_time()
        pairs = read_catalog(path)
        seconds.append(time.process_time() - began)
        assert sum(len(pair.target) for pair in pairs) == count * 500
    assert seconds[0] < 2 * seconds[1]


def test_a_language_without_a_singular_answers_the_plural(tmp_path):
    path = tmp_path / "ja.po"
    path.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\nPlural-Forms: nplurals=1; plural=0;\\n"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d ファイル"\n',
        encoding="utf-8",
    )
    assert read_catalog(path) == [Pair("%d files", "%d ファイル")]


def test_a_folder_is_read_with_all_its_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "de.po").write_text(PO, encoding="utf-8")
    (tmp_path / "a.tsv").write_text("one\teins\n")
    (tmp_path / "notes.txt").write_text("no pairs here")
    assert targets(build_task("pairs", data=tmp_path)) == sorted(["eins", *(pair.target for pair in PAIRS)])


HEADER = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.po", b'msgid "open\nmsgstr "x"\n', r"a\.po, line 1 is malformed"),
        ("a.po", HEADER + b'nonsense "x"\n', r"a\.po, line 4 is malformed"),
        ("a.po", b'"x"\n', "line 1 is malformed"),
        ("a.po", b'msgstr "x"\n', "line 1 is malformed"),
        ("a.po", b'msgid "a"\nmsgstr "b \\q"\n', "line 2 is malformed"),
        ("a.po", b'msgid "a"\nmsgid "b"\nmsgstr "c"\n', "line 2 is malformed"),
        ("a.po", b'msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n', "line 3 is malformed"),
        ("a.po", b'msgid "a"\nmsgstr[0] "c"\n', "line 2 is malformed"),
        ("a.po", HEADER + b'msgid "a"\n', "has no translation"),
        ("a.po", HEADER + b'msgid "a"\nmsgstr "\xff"\n', "is not utf-8, as it says: byte 0xff"),
        ("a.po", HEADER, "leaves 0 different pairs"),
        ("a.mo", b"not a catalog at all, though long enough", "no compiled message catalog"),
        ("a.mo", b"\xde\x12\x04\x95\x00", "no compiled message catalog"),
        ("a.mo", b"", "no compiled message catalog"),
        ("a.mo", b"\xde\x12\x04\x95" + bytes(4) + b"\xff\x00\x00\x00" * 3, "points outside itself"),
        ("a.mo", b"\xde\x12\x04\x95" + struct.pack("<4I", 0, 2, 20, 20) + struct.pack("<2I", 36, 0) * 2, "overlap"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        build_task("pairs", data=tmp_path / name)


def test_missing_paths_and_folders_without_pairs_are_refused(tmp_path):
    with pytest.raises(DataError, match="no file or folder"):
        build_task("pairs", data=tmp_path / "missing.tsv")
    with pytest.raises(DataError, match=r"ends in \.csv, .*\.mo, .*\.po, .*\.tsv"):
        build_task("pairs", data=tmp_path)
    with pytest.raises(DataError, match="needs a file or folder"):
        build_task("pairs")


def test_long_and_repeated_pairs_are_left_out_and_counted(tmp_path):
    path = tmp_path / "a.tsv"
    lines = [f"word {i}\tWort {i}" for i in range(20)] + ["word 3\tanderes", "word 4\tnoch eins", "x" * 1001 + "\tlang"]
    path.write_text("\n".join(lines))
    task = build_task("pairs", data=path)
    assert len(task.train) + len(task.held_out) == 20
    assert task.notes[3] == (
        "left out: 2 repeated sources, the first target of each stays; 1 pair of more than 1,000 characters"
    )
    row = task.train.rows.targets[0]
    assert task.decode_answer(row[row >= 0]).startswith("Wort")
    with pytest.raises(DataError, match=r"leaves 0 different pairs(.|\n)*than 3 characters(.|\n)*raise longest"):
        build_task("pairs", data=path, longest=3)
