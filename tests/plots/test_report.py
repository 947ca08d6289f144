"""The page: valid HTML, every picture there and described, no word of it taken for markup."""

import re
from pathlib import Path

import numpy as np
import pytest

from glassformer.errors import DataError
from glassformer.plots import Fold, Picture, Section, Table, prediction_bars, save, write_report
from pages import read_page as read


@pytest.fixture
def picture(tmp_path):
    save(prediction_bars(np.array([0.75, 0.25])), tmp_path / "a bar.png")
    return Picture("a bar.png", "What to look at", 'A "bar" & <more>')


def test_pictures_are_referenced_described_and_sized(tmp_path, picture):
    path = write_report(tmp_path, "Title", [Section("One", "First.\n\nSecond.", [picture]), Section("Two")])
    assert path == tmp_path / "index.html"
    page = read(path)
    (image,) = page.images
    assert image["src"] == "a%20bar.png"
    assert image["alt"] == 'A "bar" & <more>'
    assert int(image["width"]) > int(image["height"]) > 0
    assert page.tags.count("p") == 2
    assert page.ids == ["one", "two"]
    assert {"#one", "#two"} <= set(page.links)


def test_words_are_never_markup(tmp_path, picture):
    bad = "<script>alert('x')</script> & \ud800 \x00"
    section = Section(bad, bad, [picture._replace(caption=bad, alt=bad)], [Table([bad], [[bad]], bad)])
    page = read(write_report(tmp_path, bad, [section, section], intro=bad, summary=[(bad, bad)]))
    assert "script" not in page.tags
    assert page.images[0]["alt"].startswith("<script>alert('x')</script> &")
    assert sum("<script>alert" in word for word in page.words) >= 10


def test_a_page_needs_nothing_from_elsewhere(tmp_path, picture):
    path = write_report(tmp_path, "Title", [Section("One", pictures=[picture])])
    text = path.read_text(encoding="utf-8")
    assert "http:" not in text
    assert "https:" not in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_pictures_can_travel_inside_the_page(tmp_path, picture):
    page = read(write_report(tmp_path, "Title", [Section("One", pictures=[picture])], embed=True))
    assert page.images[0]["src"].startswith("data:image/png;base64,")
    assert page.images[0]["alt"]


def test_numbers_are_written_for_people(tmp_path):
    table = Table(("name", "count", "share"), [("a", 12345, 0.123456), ("b", 1, 1.0)])
    page = read(write_report(tmp_path, "Title", [Section("One", tables=[table])], summary=[("steps", 2000)]))
    assert {"12,345", "0.12", "1.00", "2,000"} <= set(page.words)


def test_the_numbers_of_a_column_have_the_same_decimals(tmp_path):
    rows = [(1, 216.31, 0.5, -0.00001), (2, 0.1043, 0.25, 0.5), (12345, 3.0, 1.0, float("nan"))]
    table = Table(("layer", "size", "share", "mean"), rows)
    words = read(write_report(tmp_path, "Title", [Section("One", tables=[table])])).words
    assert words[words.index("mean") + 1 :][:12] == [
        *("1", "216.31", "0.50", "0.000"),
        *("2", "0.10", "0.25", "0.500"),
        *("12,345", "3.00", "1.00", "nan"),
    ]


def test_columns_of_written_numbers_are_flush_right_where_asked(tmp_path):
    table = Table(("task", ">right"), [("a", "99.1 %"), ("b", "")])
    text = write_report(tmp_path, "Title", [Section("One", tables=[table])]).read_text(encoding="utf-8")
    assert '<th scope="col" class="number">right</th>' in text
    assert '<td class="number">99.1 %</td>' in text
    assert '<th scope="col">task</th>' in text
    # It may scroll, so it can be reached by the keyboard, and has a name.
    assert '<div class="scroll" role="region" aria-label="Table: task, right" tabindex="0">' in text


def test_cells_keep_their_line_breaks(tmp_path):
    path = write_report(tmp_path, "Title", [Section("One", tables=[Table(["said"], [["a\n  b"]])])])
    assert "a\n  b" in read(path).words
    assert "white-space: pre;" in path.read_text(encoding="utf-8")


def test_long_cells_are_broken_and_short_ones_are_not(tmp_path):
    path = write_report(tmp_path, "Title", [Section("One", tables=[Table(["said"], [["a" * 25], ["a" * 24]])])])
    text = path.read_text(encoding="utf-8")
    assert f'<td class="long">{"a" * 25}</td>' in text
    assert f"<td>{'a' * 24}</td>" in text


def test_parts_are_folded_away_behind_a_line(tmp_path, picture):
    folds = [Fold("Layer 1 <b>", [picture]), Fold("Layer 2", [picture], [Table(["a"], [[1]])], is_open=True)]
    path = write_report(tmp_path, "Title", [Section("One", folds=folds)])
    page = read(path)
    assert page.tags.count("details") == 2
    assert len(page.images) == 2
    assert {"Layer 1 <b>", "Layer 2"} <= set(page.words)
    assert path.read_text(encoding="utf-8").count("<details open>") == 1


def test_samples_keep_their_lines_and_spaces(tmp_path):
    sample = "for x in y:\n    print(x)\n\n\nend"
    page = read(write_report(tmp_path, "Title", [Section("One", samples=[sample])]))
    assert sample in page.words
    assert page.tags.count("pre") == 1


def test_headings_alike_get_anchors_of_their_own(tmp_path):
    page = read(write_report(tmp_path, "Title", [Section("Same"), Section("Same"), Section("???"), Section("???")]))
    assert page.ids == ["same", "same-2", "section", "section-2"]


def test_missing_and_foreign_files_are_refused(tmp_path, picture):
    with pytest.raises(DataError, match="which cannot be read"):
        write_report(tmp_path, "Title", [Section("One", pictures=[Picture("none.png", "", "")])])
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(DataError, match="is not a PNG file"):
        write_report(tmp_path, "Title", [Section("One", pictures=[Picture("text.png", "", "")])])
    assert not (tmp_path / "index.html").exists()


def test_the_examples_of_the_documentation_run_as_printed(tmp_path, monkeypatch, numpy_engine, unseen_figures):
    monkeypatch.chdir(tmp_path)
    words = (Path(__file__).parents[2] / "docs" / "figures.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", words, flags=re.DOTALL):
        exec(block, names)
    for name in ("attention.svg", "pictures/mine/index.html", "pictures/mine/prediction-dark.png", "report/index.html"):
        assert (tmp_path / name).is_file()
