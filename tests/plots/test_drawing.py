"""Sketches become pictures: in both themes, in other formats, with someone told about each."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from glassformer.errors import ConfigError, DataError
from glassformer.plots import (
    Fold,
    Picture,
    Section,
    Sketch,
    draw_sections,
    prediction_bars,
    save,
    write_page,
    write_report,
)
from glassformer.plots.drawing import files_of
from pages import read_page


def bars():
    return prediction_bars(np.array([0.75, 0.25]))


SECTIONS = [
    Section("One", pictures=[Sketch("first", bars, "What to look at")]),
    Section("Two", folds=[Fold("more", [Sketch("second", bars)])]),
]


def test_both_themes_are_drawn_and_the_page_offers_both(tmp_path):
    drawn = draw_sections(tmp_path, SECTIONS)
    assert files_of(drawn) == ["first.png", "first-dark.png", "second.png", "second-dark.png"]
    for name, page in (("first.png", (255, 255, 255)), ("first-dark.png", (0x1D, 0x22, 0x2B))):
        with Image.open(tmp_path / name) as image:
            assert image.convert("RGB").getpixel((0, 0)) == page
    page = read_page(write_report(tmp_path, "Title", drawn))
    assert [image["src"] for image in page.images] == ["first.png", "second.png"]
    assert [image["src"] for image in page.dark] == ["first-dark.png", "second-dark.png"]
    assert all(image == opened for image, opened in page.opens.items()), "a click opens what is shown"
    for theme, shown in (("light", "first.png"), ("dark", "first-dark.png")):
        page = read_page(write_report(tmp_path, "Title", drawn, theme=theme))
        assert next(iter(page.opens.items())) == (shown, shown)
        assert page.dark == []
    page = read_page(write_report(tmp_path, "Title", drawn, embed=True))
    assert (len(page.images), len(page.dark), set(page.opens.values())) == (2, 2, {None})


def test_a_page_is_one_file_that_holds_its_pictures(tmp_path):
    path = write_page(tmp_path / "pages" / "mine.html", "Title", SECTIONS[:1], intro="Why")
    page = read_page(path)
    assert [file.name for file in path.parent.iterdir()] == ["mine.html"]
    assert {"Title", "Why", "What to look at"} <= set(page.words)
    assert all(image["src"].startswith("data:image/png;base64,") for image in [*page.images, *page.dark])
    assert (len(page.images), len(page.dark)) == (1, 1)


def test_one_theme_alone_makes_one_file_and_a_page_of_that_theme(tmp_path):
    drawn = draw_sections(tmp_path, SECTIONS, theme="dark")
    assert files_of(drawn) == ["first.png", "second.png"]
    with Image.open(tmp_path / "first.png") as image:
        assert image.convert("RGB").getpixel((0, 0)) == (0x1D, 0x22, 0x2B)
    text = write_report(tmp_path, "Title", drawn, theme="dark").read_text(encoding="utf-8")
    assert "color-scheme: dark;" in text
    assert "prefers-color-scheme" not in text
    assert "#ffffff" not in text  # no white paper around dark pictures


@pytest.mark.parametrize("copies", ["svg", "pdf"])
def test_copies_for_slides_stand_beside_and_are_linked(tmp_path, copies):
    drawn = draw_sections(tmp_path, SECTIONS[:1], copies=copies)
    assert files_of(drawn) == ["first.png", "first-dark.png", f"first.{copies}", f"first-dark.{copies}"]
    page = read_page(write_report(tmp_path, "Title", drawn))
    assert {f"first.{copies}", f"first-dark.{copies}"} <= set(page.links)


def test_progress_is_told_before_each_picture_and_at_the_end(tmp_path):
    told = []
    draw_sections(tmp_path, SECTIONS, progress=lambda *now: told.append(now))
    assert told == [(0, 2, "first"), (1, 2, "second"), (2, 2, "")]


def test_pictures_that_exist_stay_as_they_are(tmp_path):
    save(bars(), tmp_path / "mine.png")
    picture = Picture("mine.png", "", "mine")
    assert draw_sections(tmp_path, [Section("One", pictures=[picture])])[0].pictures == [picture]


def test_what_is_not_drawn_or_not_a_format_is_refused(tmp_path):
    with pytest.raises(DataError, match="the picture 'first' is not drawn yet"):
        write_report(tmp_path, "Title", SECTIONS)
    with pytest.raises(ConfigError, match="figures are not written as 'jpg'"):
        draw_sections(tmp_path, SECTIONS, copies="jpg")
    with pytest.raises(ConfigError, match="there is no theme 'sepia'"):
        draw_sections(tmp_path, SECTIONS, theme="sepia")
    assert not list(tmp_path.iterdir())


def test_svg_files_are_xml_with_their_description(tmp_path):
    figure = bars()
    path = save(figure, tmp_path / "bars.svg")
    text = path.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "bars of the 2 likeliest" in text
    assert save(bars(), tmp_path / "again.svg").read_bytes() == path.read_bytes()


def test_pdf_files_are_whole_and_the_same_each_time(tmp_path):
    path = save(bars(), tmp_path / "bars.pdf")
    content = path.read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    assert save(bars(), tmp_path / "again.pdf").read_bytes() == content


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"bars\.jpg does not end in the name of a format"):
        save(bars(), tmp_path / "bars.jpg")
