"""Lines of arithmetic that are read and computed: what is written is what is computed."""

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from glassformer.interpret import Formula, Link, Operand

ROW = np.arange(6)
MATH = "{http://www.w3.org/1998/Math/MathML}"


def product(values=(1.0, -2.0, 3.0, 0.5, 0.25, -4.0)):
    return Formula(
        "y[n,j]",
        "sum(x * w, k) + b",
        {
            "x": Operand("x[n,k]", np.array(values), "stream", (1, ROW)),
            "w": Operand("w[k,j]", np.array([2.0, 1.0, 0.5, 4.0, 8.0, 0.25]), "matrix", (ROW, 3)),
            "b": Operand("b[j]", -0.5, "shift", (3,)),
        },
        "y = x w + b",
        (Link("tokens", (1,)),),
    )


def test_a_sum_is_read_filled_and_computed():
    made = product()
    assert made.text == "y[n,j] = Σ_k x[n,k] · w[k,j] + b[j]"
    assert made.filled == "4 = 1 · 2 + (−2) · 1 + 0.5 · 4 + … + 3 more + (−0.5)"
    assert made.number() == 4.0
    assert made.combine == "sum"


def test_formulas_are_typeset_in_the_names_of_the_code():
    made = product()
    tree = ElementTree.fromstring(made.mathml)
    assert "".join(tree.itertext()) == "yn,j=∑kxn,k·wk,j+bj"
    assert [len(one) for one in tree.iter(f"{MATH}msub")] == [2] * 4
    filled = ElementTree.fromstring(made.filled_mathml)
    assert "".join(filled.itertext()) == "4=1·2+(−2)·1+0.5·4+…+3 more+(−0.5)"
    small = Formula("y<z", "a / sqrt(b / c)", {name: Operand(name, 1e-7) for name in "abc"})
    assert [one.tag.removeprefix(MATH) for one in ElementTree.fromstring(small.mathml).iter() if len(one) == 2] == [
        "mfrac"
    ]
    assert "<mn>1</mn><mo>·</mo><msup><mn>10</mn><mn>−7</mn></msup>" in small.filled_mathml


def test_terms_name_what_they_are_made_of():
    made = product()
    terms = made.terms()
    assert [term.value for term in terms] == [2.0, -2.0, 1.5, 2.0, 2.0, -1.0, -0.5]
    assert terms[2].label == "k = 2"
    assert [(part.links[0].name, part.links[0].index, part.value) for part in terms[2].parts] == [
        ("stream", (1, 2), 3.0),
        ("matrix", (2, 3), 0.5),
    ]
    assert terms[-1].label == "b[j]"
    assert (made.size, made.total(), made.largest()) == (7, 4.0, 2.0)
    assert [term.value for term in made.terms(most=2)] == [2.0, -2.0]


def test_links_are_all_entries_that_were_read():
    links = list(product().links())
    assert len(links) == 14
    assert links[0] == Link("stream", (1, 0))
    assert links[-2:] == [Link("shift", (3,)), Link("tokens", (1,))]
    assert product().link_count() == 14


@pytest.mark.parametrize(
    ("expression", "number", "text", "combine"),
    [
        ("a * b", 6.0, "a · b", "product"),
        ("a - (b - c)", 0.0, "a − (b − c)", "sum"),
        ("(a + b) * c", 5.0, "(a + b) · c", "product"),
        ("a / (b * c)", 2 / 3, "a / (b · c)", "sum"),
        ("-a", -2.0, "−a", "sum"),
        ("b**2 + a**3", 17.0, "b² + a³", "sum"),
        ("sqrt(a + a)", 2.0, "√(a + a)", "sum"),
        ("exp(c) / sum(exp(row), i)", math.e / (math.e + math.e**3), "exp(c) / (Σ_i exp(r[i]))", "expression"),
        ("mean(row, i)", 2.0, "mean_i(r[i])", "expression"),
        ("max(row, i) * a", 6.0, "max_i(r[i]) · a", "expression"),
        ("larger(-a, 0)", 0.0, "max(−a, 0)", "sum"),
        ("positive(a)", 1.0, "[a > 0]", "sum"),
        ("Phi(c - c)", 0.5, "Φ(c − c)", "sum"),
        ("sigma(c - c)", 0.5, "σ(c − c)", "sum"),
        ("2 * pi", 2 * math.pi, "2 · π", "product"),
        ("sum(row * (a + b), i)", 20.0, "Σ_i r[i] · (a + b)", "sum"),
    ],
)
def test_the_language(expression, number, text, combine):
    operands = {name: Operand(name, value) for name, value in (("a", 2.0), ("b", 3.0), ("c", 1.0))}
    made = Formula("y", expression, {**operands, "row": Operand("r[i]", np.array([1.0, 3.0]))})
    assert made.number() == pytest.approx(number, rel=1e-15)
    assert made.text == f"y = {text}"
    assert made.combine == combine
    assert made.filled.startswith(f"{number + 0.0:.4g} = ".replace("-", "−"))


def test_a_formula_may_stand_in_another_and_a_sum_of_nothing_is_zero():
    inner = product()
    outer = Formula(
        "z",
        "s * x",
        {"s": Operand("s", inner.number(), inner=lambda place: inner), "x": Operand("x", 2.0, "other", ())},
    )
    assert outer.number() == 8.0
    assert outer.filled == "8 = 4 · 2"
    assert Link("matrix", (0, 3)) in outer.links()
    assert outer.link_count() == 15
    assert (inner.scale(), outer.scale()) == (4.0, 8.0)

    empty = np.array([], dtype=int)
    made = Formula("y", "sum(x, n)", {"x": Operand("x[n]", np.array([]), "stream", (empty,))})
    assert made.number() == 0.0
    assert made.filled == "0 = 0"
    assert (made.terms(), made.largest()) == ([], 0.0)
