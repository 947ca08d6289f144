"""Search over one's own texts: passages, their index, and what is found."""

import json

import numpy as np
import pytest

import glassformer as gf
from glassformer.api import passages
from glassformer.api.passages import read_index, read_passages
from glassformer.core.errors import ConfigError, DataError
from glassformer.text import ByteTokenizer, WordPieceTokenizer
from glassformer.weights.sentence import embed, similarities
from runs import command

pytestmark = pytest.mark.usefixtures("numpy_engine")

NOTES = "# Pizza\n\nflour and water\nand salt\n\n\ntomatoes. " + "long words " * 12 + "\n\n" + "x" * 150 + "\n"


def encoder(seed):
    built = gf.build("bert-base", vocab=256, width=8, heads=2, layers=1, context=64, feed_forward=8)
    return gf.TrainedModel(built, built.init(seed), ByteTokenizer())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An encoder of bytes with a context of 64, in a folder."""
    return gf.load(gf.save(encoder(0), tmp_path_factory.mktemp("model") / "saved"))


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "food.md").write_text(NOTES, encoding="utf-8")
    (folder / "umlauts.txt").write_text("Über den Äpfeln", encoding="utf-8")
    (folder / "empty.md").write_text("")
    (folder / "picture.png").write_bytes(b"\xff\x00" * 100)
    return folder


def test_paragraphs_are_cut_to_the_context_and_nothing_is_lost(model, notes):
    found, said = read_passages(notes, model)
    assert found[0] == ("# Pizza\nflour and water\nand salt", str(notes / "food.md"), 1)
    assert (found[1].text[:9], found[1].line) == ("tomatoes.", 7)
    assert found[-1] == ("Über den Äpfeln", str(notes / "umlauts.txt"), 1)
    assert all(0 < len(one.text.encode()) <= 64 for one in found)
    assert "".join("".join(one.text for one in found[:-1]).split()) == "".join(NOTES.split())
    assert said == (f"2 texts of more than 64 tokens cut into {len(found) - 2} passages",)


def test_tables_lines_and_lists_have_a_passage_for_each_text(model, tmp_path):
    (tmp_path / "a.csv").write_text('id,text\n1,"two\nlines"\n2,\n3,three\n')
    found, said = read_passages(tmp_path / "a.csv", model)
    assert [(one.text, one.line) for one in found] == [("two\nlines", 2), ("three", 5)]
    assert said == ("1 row without text left out",)
    (tmp_path / "a.txt").write_text("one\n\nthree\n")
    assert [(one.text, one.line) for one in read_passages(str(tmp_path / "a.txt"), model)[0]] == [
        ("one", 1),
        ("three", 3),
    ]
    assert [one.text for one in read_passages(["a", "b"], model)[0]] == ["a", "b"]
    assert [one.text for one in read_passages([{"body": "a"}], model, "body")[0]] == ["a"]


def test_the_nearest_passages_are_found(model, notes, tmp_path):
    index = gf.index(model, notes, tmp_path / "notes.npz")
    question = "flour?"
    texts = [one.text for one in index.passages]
    cosines = similarities(embed(model, [question, *texts]))[0, 1:]
    hits = gf.search(tmp_path / "notes.npz", question, top=3)
    assert [hit.text for hit in hits] == [texts[i] for i in np.argsort(-cosines, kind="stable")[:3]]
    assert [hit.cosine for hit in hits] == pytest.approx(sorted(cosines, reverse=True)[:3], abs=1e-6)
    assert gf.search(index, "Über den Äpfeln", model=model)[0][2:] == (str(notes / "umlauts.txt"), 1)


@pytest.mark.parametrize(
    ("question", "doubt"),
    [
        ("how do I close a file?", ""),
        ("close a Datei", ""),
        ("Wie schließe ich a file?", "its vocabulary lacks 3 of the 5 words of the question"),
        ("Passwort", "its vocabulary lacks 1 of the 1 word of the question"),
        ("как закрыть a file", "10 of the 15 letters of the question are not Latin"),
        ("123", ""),
    ],
)
def test_a_question_in_another_language_than_the_model_knows_is_doubted(question, doubt, caplog):
    """It is a model of the catalog that says which language it was trained on; of others nothing is known."""
    words = WordPieceTokenizer.train(["how do i close a file quickly " * 9, "wschliechpaortdäßü"], size=90)
    built = gf.build("bert-base", vocab=words.size, width=8, heads=2, layers=1, context=64, feed_forward=8)
    minilm = gf.TrainedModel(built, built.init(0), words, source="minilm")
    gf.search(gf.index(minilm, ["a file", "close"]), question, model=minilm)
    begin, end = (
        "minilm was trained on English texts, and ",
        ": the passages that are found may have little to do with it",
    )
    assert caplog.messages == ([f"{begin}{doubt}{end}"] if doubt else [])
    caplog.clear()
    unknown = gf.TrainedModel(built, built.init(0), words, source="mine")
    gf.search(gf.index(unknown, ["a file", "close"]), question, model=unknown)
    assert caplog.messages == []


def test_only_new_passages_are_embedded_again(model, notes, tmp_path, monkeypatch):
    gf.index(model, notes, tmp_path / "notes.npz")
    (notes / "more.md").write_text("a new thought")
    asked = []
    monkeypatch.setattr(
        passages, "embed", lambda model, texts, **more: asked.append(texts) or embed(model, texts, **more)
    )
    again = gf.index(model, notes, tmp_path / "notes.npz")
    assert asked == [again.passages[0].text, ["a new thought"]], "the first one tells whether it is the same model"
    alone = gf.index(model, notes)
    assert again.passages == alone.passages
    np.testing.assert_allclose(again.vectors, alone.vectors, atol=1e-6)
    other = gf.index(encoder(1), notes, tmp_path / "notes.npz")
    assert np.abs(other.vectors - again.vectors).max() > 0.01, "vectors of another model are not kept"


def test_an_index_of_another_model_is_refused(model, tmp_path):
    index = gf.index(model, ["a", "b"], tmp_path / "a.npz")
    with pytest.raises(ConfigError, match="was made with another model"):
        gf.search(index, "a", model=encoder(1))
    built = gf.build("tiny-decoder", vocab=256)
    decoder = gf.TrainedModel(built, built.init(0), ByteTokenizer())
    with pytest.raises(ConfigError, match="another model than this model: this is a decoder"):
        gf.search(index, "a", model=decoder)
    with pytest.raises(ConfigError, match="top is 0"):
        gf.search(index, "a", top=0, model=model)
    with pytest.raises(DataError, match="is no text"):
        gf.search(index, 5, model=model)


def damaged(content):
    middle = len(content) // 2
    yield b""
    yield b"text"
    yield content[:middle]
    yield content[:middle] + bytes(byte ^ 255 for byte in content[middle : middle + 8]) + content[middle + 8 :]


def test_a_damaged_index_is_refused(model, tmp_path):
    path = tmp_path / "a.npz"
    gf.index(model, ["a", "b"], path)
    for content in damaged(path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(DataError, match="is no index that can be read"):
            read_index(path)
    np.savez(path, vectors=np.zeros((3, 8)), about=np.frombuffer(b'{"passages": []}', np.uint8))
    with pytest.raises(DataError, match="is no index that can be read"):
        gf.index(model, ["a"], path)
    with pytest.raises(DataError, match="there is no index"):
        gf.search(tmp_path / "none.npz", "a")


def test_the_shell_searches_in_two_commands(model, notes, tmp_path):
    made = command("embed", model.source, "--file", notes, "--index", tmp_path / "notes.npz")
    assert (made.code, made.out) == (0, "")
    assert "2 texts of more than 64 tokens cut" in made.err
    found = command("search", tmp_path / "notes.npz", "Über den Äpfeln", "--top", 2)
    header, first, _ = found.out.splitlines()
    assert header == "cosine\tplace\tpassage"
    assert first == f"1.000\t{notes / 'umlauts.txt'}:1\tÜber den Äpfeln"
    hits = json.loads(command("search", tmp_path / "notes.npz", "Über den Äpfeln", "--json").out)["hits"]
    assert hits[0]["file"] == str(notes / "umlauts.txt")


def test_vectors_are_written_into_files(model, tmp_path):
    (tmp_path / "a.csv").write_text("text\nflour\nwater\nsalt\n")
    options = ("--npy", tmp_path / "a.npy", "--csv", tmp_path / "out.csv")
    result = command("embed", model.source, "--file", tmp_path / "a.csv", *options)
    assert (result.code, result.out) == (0, "")
    vectors = embed(model, ["flour", "water", "salt"])
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), vectors, atol=1e-6)
    rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert rows[0] == ["file", "line", "text", *map(str, range(8))]
    np.testing.assert_allclose([[float(cell) for cell in row[3:]] for row in rows[1:]], vectors, atol=1e-6)
    near = json.loads(command("embed", model.source, "a", "b", "c", "--nearest", 1, "--json").out)
    assert "cosine" not in near
    assert [len(row["nearest"]) for row in near["embeddings"]] == [1, 1, 1]
    for wrong, fact in (
        (("--npy", "a.txt"), "does not end in .npy"),
        (("--index", "a.npy"), "does not end in .npz"),
        (("--csv", tmp_path / "a.xlsx"), "ends in .csv"),
        (("--text", "no"), "has no column 'no'"),
    ):
        refused = command("embed", model.source, "--file", tmp_path / "a.csv", *wrong)
        assert refused.code in (1, 2)
        assert fact in refused.err
