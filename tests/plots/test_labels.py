"""Labels that matplotlib can draw without a warning, whatever the tokens are."""

import numpy as np
import pytest

from glassformer.plots import attention_heads, prediction_bars, save
from glassformer.plots.labels import visible


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("a", "a"),
        (" the", "␣the"),
        ("\n", "↵"),
        ("\t", "⇥"),
        ("", "∅"),
        ("\x00", "\\u0000"),
        ("\u200b", "\\u200b"),
        ("\ud800", "\\ud800"),
        ("\N{COMBINING ACUTE ACCENT}", "◌\N{COMBINING ACUTE ACCENT}"),
        ("März", "März"),
        ("a long word that goes on", "a long word t…"),
        ("   ", "␣␣␣"),
        ("class 1 ", "class 1␣"),
    ],
)
def test_labels_are_one_short_visible_line(label, shown):
    assert visible(label) == shown


def test_any_token_is_drawn_as_it_is_without_a_warning(tmp_path):
    assert visible("$x$") == r"\$x\$"
    assert prediction_bars(np.ones(1), lambda i: "$x$").get_label().endswith("$x$ 100 %.")

    strange = ["$", "$x$", "月", "\x07", "\u202e", "\ud83d", "عام", "\\frac{1}", "_^{}", "<script>", "😀", "é"]
    count = len(strange)
    figure = attention_heads(np.full((1, count, count), 1 / count), strange, title="100 % of $5$ & <b>")
    save(figure, tmp_path / "strange.png")
    save(prediction_bars(np.full(count, 1 / count), lambda i: strange[i], top=count), tmp_path / "bars.png")
