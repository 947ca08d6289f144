"""Tables of one's own: read as people keep them, with the line of what is broken; labels become a classifier."""

import pytest

from glassformer.core.errors import DataError
from glassformer.data import build_task
from glassformer.data.tables import read_table

REVIEWS = 'id,review,stars\n1,"great, ""truly""\ngreat",5\n2,awful,1\n'


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_quotes_and_newlines_stay_inside_a_field_and_lines_are_those_of_the_file(tmp_path):
    table = read_table(write(tmp_path / "a.csv", REVIEWS), {"text": None, "label": None})
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
