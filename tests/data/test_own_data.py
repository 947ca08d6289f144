"""Files as people have them: tables, fifty broken variants, and labels; each is understood and counted, or refused."""

import codecs
import io
import json
import re
import zipfile

import numpy as np
import pytest

from glassformer.core.errors import ConfigError, DataError
from glassformer.data import Lexicon, build_task
from glassformer.data.pairs import read_pairs
from glassformer.data.tables import read_table
from glassformer.text import PublishedTokenizer, WordPieceTokenizer
from glassformer.text.chat import encode_chat
from tokenizer_files import CHATML, chat_bpe

ROWS = [(f'It was {("good", "bad")[i % 2]},\nsaid "{i}"', ("5", "1")[i % 2]) for i in range(40)]
QUOTED = "".join('"{}",{}\n'.format(text.replace('"', '""'), stars) for text, stars in ROWS)
REVIEWS = "review,stars\n" + QUOTED
PAIRS = "".join(f"word {i}\tWort {i}\n" for i in range(40))
CHAT = "".join(
    json.dumps({"messages": [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": f"{i}!"}]}) + "\n"
    for i in range(40)
)
PROSE = "Grüße aus Köln. Der Fuß ist müde, sagte sie, und aß ein Stück Käse.\n\n" * 40
MARKDOWN = {"a.md": PROSE, "sub/b.md": "# Über uns\n\nSchöne Grüße\n", "sub/logo.png": b"\x89PNG\0\xff", "empty.md": ""}
LONG = "x" * 1_000_000
QUESTIONS = "".join(json.dumps({"question": f"{i}+1?", "answer": i + 1, "source": "wiki"}) + "\n" for i in range(30))
LONG_CHAT = "".join(
    json.dumps({"messages": [{"role": "user", "content": f"{i} " * 60}, {"role": "assistant", "content": f"{i}!"}]})
    + "\n"
    for i in range(60)
)


def archive(member):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as contents:
        contents.writestr(member, "")
    return file.getvalue()


def build(task, folder, files, **options):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    alone = len(files) == 1
    return build_task(task, data=str(folder / next(iter(files)) if alone else folder), **options)


def test_conversations_are_written_in_the_template_of_a_model_and_lines_come_from_a_column(tmp_path):
    tokenizer = PublishedTokenizer(chat_bpe().to_str(), roles={"eos": "<|im_end|>"}, chat_template=CHATML)
    task = build("text", tmp_path, {"chat.jsonl": CHAT}, lexicon=Lexicon(tokenizer))
    turns = [{"role": "user", "content": "0?"}, {"role": "assistant", "content": "0!"}]
    first = encode_chat(tokenizer, turns, add_generation_prompt=False)
    assert task.train.tokens[: len(first)].tolist() == first.tolist()
    assert "40 conversations, in the chat template of the model" in task.notes[0]
    with pytest.raises(DataError, match="single conversation"):
        build("text", tmp_path, {"one.jsonl": CHAT.splitlines()[0]}, lexicon=Lexicon(tokenizer))

    names = "id,title\n" + "".join(f"{i},name {i}\n" for i in range(40))
    task = build("lines", tmp_path, {"names.csv": names})
    assert task.notes[0] == f"{tmp_path / 'names.csv'}: 40 lines"
    with pytest.raises(DataError, match="has no column 'x'"):
        build("lines", tmp_path, {"names.csv": names}, text="x")


FIVE = [
    ("classify", {"reviews.csv": REVIEWS}, {}, "40 rows; texts in 'review', labels in 'stars'"),
    ("pairs", {"pairs.tsv": PAIRS + "leer\t\n\tleer\n"}, {}, "left out: 2 pairs without a source or a target"),
    ("pairs", {"chat.jsonl": CHAT}, {}, r"“0\?” → “0!”"),
    ("text", {"chat.jsonl": CHAT}, {}, r"user: 0\? assistant: 0!"),
    ("text", MARKDOWN, {}, r"3 files, .*\nleft out: 1 file without text \(logo\.png\)"),
    ("text", {"long.txt": "All work and no play makes Jack a dull boy. " * 48_000}, {}, "tokenizer: bpe"),
]


@pytest.mark.parametrize(("task", "files", "options", "said"), FIVE)
def test_five_kinds_of_files_are_understood(tmp_path, task, files, options, said):
    assert re.search(said, repr(build(task, tmp_path, files, **options)))


def changed(line, to, of=REVIEWS):
    """Replace one line of a file, counted from 1."""
    lines = of.split("\n")
    return "\n".join([*lines[: line - 1], to, *lines[line:]])


ONE_LINE = "text,label\n" + "".join(f"word {i},{i % 2}\n" for i in range(30))
JSONL = "".join(json.dumps({"text": f"word {i}", "label": i % 2}) + "\n" for i in range(30))

REFUSED = [
    ("classify", "a.csv", "", "a.csv is empty"),
    ("classify", "a.csv", " \n\n", "a.csv is empty"),
    ("classify", "a.csv", "text,label\n", "a.csv has no rows"),
    ("classify", "a.csv", changed(5, 'a,"b', ONE_LINE), "a.csv, line 5: a quote opens here and never closes"),
    ("classify", "a.csv", changed(5, '"a"b,1', ONE_LINE), "a.csv, line 5: text follows a closing quote"),
    ("classify", "a.csv", changed(5, "a,b,1", ONE_LINE), "a.csv, line 5 has 3 fields, but the header has 2"),
    ("classify", "a.csv", changed(5, "alone", ONE_LINE), "a.csv, line 5 has 1 field"),
    ("classify", "a.csv", REVIEWS + "last\n", "a.csv, line 82 has 1 field"),
    ("classify", "a.csv", ONE_LINE.replace("\n", ",a\n").replace("text,label", "a,b"), "none is known for a text"),
    ("classify", "a.csv", "text,n,m\na,1,2\n", "none is known for a label"),
    ("classify", "a.csv", ONE_LINE.replace("text,label", "text,text"), "a.csv, line 1: two columns are called 'text'"),
    ("pairs", "a.csv", ONE_LINE.replace("\n", ",1\n").replace("l,1", "l,id"), "'text', 'label', 'id', and"),
    ("pairs", "a.tsv", "one\teins\n" + "one\tzwei\n" * 9, "leaves 1 different pairs(.|\n)*--source NAME"),
    ("classify", "a.csv", ONE_LINE.encode("utf-16-le"), "a zero byte(.|\n)*iconv -f utf-16le"),
    ("classify", "a.csv", b"t,label\n" + "ß,1\n".encode() * 9 + b"\xe9,1\n", "line 11(.|\n)*1 line of it is not"),
    ("classify", "a.csv", b"%PDF-1.7\n", "a.csv is a PDF, not text"),
    ("classify", "a.xlsx", archive("xl/workbook.xml"), "a.xlsx is an Excel workbook(.|\n)*CSV"),
    ("classify", "a.zip", archive("a.csv"), "a.zip is a zip archive(.|\n)*unpack"),
    ("classify", "a.csv", re.sub(",[01]", ",1", ONE_LINE), "every label is '1'"),
    ("classify", "a.csv", re.sub(",[01]", ",", ONE_LINE), "no row has both a text and a label"),
    ("classify", "a.csv", re.sub(",[01]\n", "\n", ONE_LINE).replace("text,label", "text"), "none is known for a label"),
    ("classify", "a.csv", "text,label\n" + "".join(f"a{i},b{i}\n" for i in range(9)), "'label' has 9 different labels"),
    ("classify", "a.csv", "text,label\n" + "same,1\n" * 9, "every label is '1'"),
    ("classify", "a.csv", "text,label\n" + "a,1\nb,2\n" * 9, "one different text for each label"),
    ("classify", "a.csv", changed(5, "caf\xe9,1", ONE_LINE).encode("latin1"), "a.csv, line 5, .*not UTF-8: byte 0xe9"),
    ("classify", "a.csv", changed(5, "a\0b,1", ONE_LINE), "a.csv, line 5, .*a zero byte"),
    ("classify", "a.csv", b"\x89PNG\r\n\x1a\n\0", "a.csv is a PNG picture"),
    ("classify", "a.jsonl", changed(5, '{"text": "a"', JSONL), "a.jsonl, line 5 is no JSON"),
    ("classify", "a.jsonl", changed(5, '"text"', JSONL), "a.jsonl, line 5 holds 'text' instead of an object"),
    ("classify", "a.jsonl", changed(5, "[1, 2]", JSONL), r"a.jsonl, line 5 holds \[1, 2\] instead of an object"),
    ("classify", "a.jsonl", changed(5, '{"text": {"de": "a"}, "label": 1}', JSONL), "a.jsonl, line 5: 'text' holds"),
    ("classify", "a.jsonl", changed(5, "[" * 100_000, JSONL), "a.jsonl, line 5 is no JSON"),
    ("classify", "a.json", '[{"text": "a", "label": 1},\n {"text": }]', "a.json, line 2: this item of the list"),
    ("classify", "a.json", "[]", "a.json has no rows"),
    ("pairs", "a.tsv", PAIRS + "a\tb\tc\n", "a.tsv, line 41 has 3 fields, but the first line has 2"),
    ("pairs", "a.tsv", PAIRS + "alone\n", "a.tsv, line 41 has 1 field"),
    ("pairs", "a.tsv", PAIRS.replace("\t", " "), "none is known for a source"),
    ("pairs", "a.tsv", "\t\n" * 9 + "a\tb\n", "leaves 1 different pairs"),
    ("pairs", "a.tsv", PAIRS.encode()[:50] + b"\xfc\t\n", r"a.tsv, line \d, .*not UTF-8: byte 0xfc"),
    ("pairs", "a.csv", "en,de,fr\na,b,c\n", "none is known for a source"),
    ("pairs", "a.jsonl", changed(5, '{"messages": [{"role": "user", "content": [{}, "x"]}]}', CHAT), "line 5: a conv"),
    ("pairs", "a.jsonl", changed(5, '{"messages": "hi"}', CHAT), "a.jsonl, line 5: a conversation holds 'hi'"),
    ("pairs", "a.jsonl", changed(5, '{"messages": [{"role": "user"}]}', CHAT), "a.jsonl, line 5: a conversation"),
    ("text", "a.txt", "", "a.txt holds no text"),
    ("text", "a.txt", "ab", "too short"),
    ("text", "a.txt", PROSE.encode("latin1"), "a.txt, line 1, offset 2: not UTF-8: byte 0xfc"),
    ("text", "a.md", PROSE + "\0", "a.md, line 81, .*a zero byte"),
    ("text", "a.jsonl", '{"n": 1, "m": 2}\n', "none is known for a text"),
]  # fmt: skip

COUNTED = [
    ("classify", "a.csv", codecs.BOM_UTF8 + REVIEWS.encode(), "40 rows; texts in 'review'"),
    ("classify", "a.csv", REVIEWS.encode("utf-16"), "40 rows; texts in 'review'"),
    ("classify", "a.csv", REVIEWS.replace("\n", "\r\n"), "40 rows"),
    ("classify", "a.csv", ONE_LINE.replace(",", ";"), "30 rows"),
    ("classify", "a.txt", ONE_LINE.replace(",", "\t"), "30 rows"),
    ("classify", "a.csv", "," + ONE_LINE.replace("\n", "\n0,").removesuffix("0,"), "30 rows; texts in 'text'"),
    ("classify", "a.csv", QUOTED, "40 rows; texts in '1', labels in '2'"),
    ("classify", "a.csv", ONE_LINE + ",1\nno label,\n", "1 row without a text; 1 row without a label"),
    ("classify", "a.csv", ONE_LINE + "WORD  0,0\nword 1,0\n", r"2 repeated texts, .*\(1 had another label\)"),
    ("classify", "a.csv", ONE_LINE + "y " * 300 + ",1\n", "longest .*; 1 cut after 256"),
    ("classify", "a.csv", re.sub("word ", "", ONE_LINE), "“0” → “0”"),
    ("classify", "a.jsonl", JSONL + '{"text": null, "label": 1}\n\n', "1 row without a text"),
    ("classify", "a.json", json.dumps([json.loads(line) for line in JSONL.splitlines()], indent=1), "30 rows"),
    ("pairs", "a.tsv", PAIRS + '"Hi," he said\tEr sagte\n', "41 pairs"),
    ("pairs", "a.tsv", PAIRS + "word 3\tnoch eins\n", "1 repeated source, the first target"),
    ("pairs", "a.tsv", PAIRS + "y" * 1001 + "\tlang\n", "1 pair of more than 1,000 characters"),
    ("pairs", "a.tsv", PAIRS + "".join(f"{i}{LONG}\ti\n" for i in range(6)), "6 of 46 .* longest=1000001 keeps all"),
    ("classify", "a.csv", ONE_LINE.replace("text,label", "wort,art"), "labels in 'art'\nfirst row read as column"),
    ("classify", "a.csv", ONE_LINE.split("\n", 1)[1], "texts in '1', labels in '2'\nfirst row read as data; --header"),
    ("classify", "a.csv", "sep=;\r\n" + ONE_LINE.replace(",", ";"), "30 rows; texts in 'text'"),
    ("classify", "a.csv", ONE_LINE + "NA,1\nx,NULL\ny,NULL\n", "3 cells of 'NULL', 'NA'(.|\n)*; 2 rows without a l"),
    ("classify", "a.csv", re.sub(r"(\d),1", r"\1,X", re.sub(",0", ",x", ONE_LINE)), "told apart: 'x' .*'X'"),
    ("classify", "a.csv", ONE_LINE + "solo,rare\n", r"a single text has the label 'rare' \(line 32\)"),
    ("classify", "a.csv", "text,label\na b,x\nc d,y\ne f,x\n", "3 texts are too few"),
    ("classify", "a.csv", re.sub("(.+),", r'"\1"\t', ONE_LINE), "“word 0” → “0”"),
    ("classify", "a.tsv", re.sub("(.+),", r'"\1"\t', ONE_LINE.replace("text", "wort")), "“\"word 0\"” → “0”"),
    ("lines", "a.csv", ONE_LINE + "NA,1\n", "first row read as column(.|\n)*1 cell of 'NA'(.|\n)*1 row without a text"),
    ("text", "a.csv", ONE_LINE + "NA,1\n", "first row read as column(.|\n)*1 cell of 'NA'(.|\n)*1 row without a text"),
    ("pairs", "a.jsonl", QUESTIONS, "sources in 'question', targets in 'answer'"),
    ("pairs", "a.tsv", "raw\tnew\n" + "".join(f"AB-{i:05}\tab{i:05}\n" for i in range(40)), "40 pairs(.|\n)*as column"),
    ("pairs", "a.tsv", PAIRS, "40 pairs(.|\n)*first row read as data"),
    ("pairs", "a.jsonl", LONG_CHAT, "60 pairs(.|\n)*split: 5[34] to train on"),
    ("pairs", "a.jsonl", CHAT + '{"messages": []}\n', "1 pair without a source or a target"),
    ("text", "a.txt", PROSE.encode("utf-16"), "tokenizer: chars"),
    ("text", "a.jsonl", JSONL + '{"text": " "}\n', "1 row without a text"),
    ("text", "a.csv", REVIEWS, "40 rows, "),
]  # fmt: skip


@pytest.mark.parametrize(("task", "name", "content", "said"), REFUSED)
def test_what_is_broken_is_refused_with_its_place(tmp_path, task, name, content, said):
    with pytest.raises(DataError, match=said):
        build(task, tmp_path, {name: content})


@pytest.mark.parametrize(("task", "name", "content", "said"), COUNTED)
def test_what_is_odd_is_understood_and_counted(tmp_path, task, name, content, said):
    assert re.search(said, repr(build(task, tmp_path, {name: content})))


def test_messages_of_parts_are_read_and_those_that_call_tools_are_not(tmp_path):
    parts = [{"type": "text", "text": "4"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "1?"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": [{}]},
                {"role": "assistant", "content": " 41! "}]  # fmt: skip
    path = write(tmp_path / "a.jsonl", json.dumps({"messages": messages}) + "\n")
    assert read_pairs(path, {"source": None, "target": None})[0] == [("41?", "41!")]
    path = write(tmp_path / "a.csv", "source,target\na,b\n")
    with pytest.raises(DataError, match="'target' is both source and target"):
        read_pairs(path, {"source": "target", "target": "target"})


def test_the_user_decides_on_the_first_row_and_on_missing_cells(tmp_path):
    rows = ONE_LINE.replace("text,label", "wort,art")
    assert "31 rows; texts in '1', labels in '2'" in repr(build("classify", tmp_path, {"a.csv": rows}, header=False))
    assert "29 rows; texts in 'word 0', labels in '0'" in repr(
        build("classify", tmp_path, {"a.csv": rows.split("\n", 1)[1]}, header=True)
    )
    kept = repr(build("classify", tmp_path, {"a.csv": ONE_LINE + "x,NULL\ny,NULL\n"}, keep_missing=True))
    assert "NULL (2)" in kept
    assert "left out" not in kept
    for task in ("text", "lines"):
        options = {"text": "1", "header": False, "keep_missing": True}
        said = repr(build(task, tmp_path, {"a.csv": ONE_LINE + "NA,1\n"}, **options))
        assert "first row read as data" in said
        assert "left out" not in said
    for task in ("text", "lines", "classify"):
        with pytest.raises(ConfigError, match=r"header is set, but .*a.jsonl is no CSV or TSV file"):
            build(task, tmp_path, {"a.jsonl": JSONL}, header=True)


def test_there_are_fifty_variants_and_a_folder_for_each_label_is_a_table(tmp_path):
    assert len(REFUSED) + len(COUNTED) >= 50
    files = {f"{label}/{i}.txt": f"text {label} {i}" for label in ("pos", "neg") for i in range(10)}
    assert "labels: neg (10), pos (10)" in repr(build("classify", tmp_path, files))


def test_columns_may_be_named_and_frames_taken_as_they_are():
    rows = [{"beschreibung": text, "art": stars, "label": "?"} for text, stars in ROWS]
    task = build_task("classify", data=rows, text="beschreibung", label="art")
    assert task.class_labels(type("Config", (), {"classes": 2})) == ("1", "5")

    class Frame:  # what pandas offers
        columns = ("beschreibung", "art", "label")

        def to_dict(self, form):
            return rows if form == "records" else None

    again = build_task("classify", data=Frame(), text="beschreibung", label="art")
    assert np.array_equal(again.train.rows.tokens, task.train.rows.tokens)
    with pytest.raises(DataError, match="no column 'Art2', only"):
        build_task("classify", data=rows, label="Art2")
    with pytest.raises(DataError, match=r"rows\[1\] holds 3 instead of an object"):
        build_task("classify", data=[rows[0], 3])


@pytest.mark.parametrize("tokenizer", ["chars", "bytes", "bpe", "wordpiece"])
@pytest.mark.parametrize("task", ["text", "lines", "pairs", "classify"])
def test_every_tokenizer_serves_every_task(tmp_path, task, tokenizer):
    content = {"text": PROSE, "lines": PAIRS, "pairs": PAIRS, "classify": REVIEWS}[task]
    found = build(task, tmp_path, {"a.tsv" if task == "pairs" else "a.csv" if task == "classify" else "a.txt": content},
                  tokenizer=tokenizer)  # fmt: skip
    assert found.tokenizer.kind == tokenizer
    assert f"tokenizer: {tokenizer}" in repr(found)


def test_wordpiece_learns_what_the_library_learns():
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    text = "low low low low lower lower newest newest newest newest newest newest widest widest widest slow"
    theirs = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer, theirs.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    theirs.train_from_iterator(
        [text], trainers.WordPieceTrainer(vocab_size=24, special_tokens=["[UNK]"], min_frequency=2)
    )
    own = WordPieceTokenizer.train(text, size=24)
    assert own.size == 24
    longer = [{piece for piece in each if len(piece.removeprefix("##")) > 1} - {"[UNK]"}
              for each in (theirs.get_vocab(), own._inner.get_vocab())]  # fmt: skip
    assert {"low", "##est"} < longer[0] <= longer[1]  # the library begins with more single characters
    assert own.decode(own.encode("The lowest")).startswith("[UNK]")
    assert WordPieceTokenizer.from_dict(own.to_dict()) == own
    assert WordPieceTokenizer.train(text, size=24) == own


LABELED = 'id,review,stars\n1,"great, ""truly""\ngreat",5\n2,awful,1\n'


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_quotes_and_newlines_stay_inside_a_field_and_lines_are_those_of_the_file(tmp_path):
    table = read_table(write(tmp_path / "a.csv", LABELED), {"text": None, "label": None})
    assert table.columns == ("id", "review", "stars")
    assert table.texts("review") == ['great, "truly"\ngreat', "awful"]
    assert [row.line for row in table.rows] == [2, 4]


def labeled(count):
    return "text;label\n" + "".join(
        f"this is {'good' if i % 3 else 'bad'} number {i};{i % 3 > 0}\n" for i in range(count)
    )


def test_the_split_is_stratified_and_holds_no_text_on_both_sides(tmp_path):
    repeated = labeled(300) + "THIS is  bad number 0;False\nthis is bad number 3;True\n;True\nno label;\n"
    task = build_task("classify", data=str(write(tmp_path / "a.csv", repeated)))
    assert task.settings["classes"] == 2
    assert (len(task.train), len(task.held_out)) == (270, 30)
    assert task.held_out.rows.targets.tolist().count(0) == 10
    notes = "\n".join(task.notes)
    for words in (
        "304 rows",
        "1 row without a text",
        "1 row without a label",
        "2 repeated texts",
        "1 had another",
    ):
        assert words in notes
    assert task.decode_answer([1]) == "True"


def test_a_broken_row_is_refused_with_its_line_or_kept_with_its_error(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\na,b\nc\n")
    with pytest.raises(DataError, match=r"a\.csv, line 3 has 1 field, but the header has 2"):
        read_table(path, {"text": None, "label": None})
    rows = read_table(path, {"text": None, "label": None}, strict=False).rows
    assert [row.error is None for row in rows] == [True, False]
