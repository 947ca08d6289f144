"""Studies of what models learn: positions, induction, grokking, superposition."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.generation import Sampling, generate_steps
from glassformer.proofs import prove_case
from glassformer.proofs.model_cases import own_cases
from glassformer.studies import Rows, studies
from glassformer.studies.finding import findings
from glassformer.studies.grokking import explained
from glassformer.studies.positions import EQUALS, PLUS, START, CoupledPositions, register_coupled, sequences
from glassformer.studies.superposition import loss_and_grads

TINY = {
    "positions": {
        "operation": "reverse", "scheme": "coupled", "longest": 2, "tested": 5, "width": 8,
        "batch": 4, "lr": 0.01, "steps": 2,
    },
    "induction": {"layers": 2, "steps": 2, "looks": 1},
    "grokking": {
        "modulus": 7, "fraction": 0.5, "weight_decay": 1.0, "batch": 8, "lr": 0.01, "steps": 2, "width": 8,
        "norm": "none", "schedule": "constant",
    },
    "superposition": {"sparsity": 0.9, "importance": 0.9, "steps": 3},
}  # fmt: skip
OTHERS = {"positions": {"scheme": "rotary"}, "induction": {"layers": 1}}


@pytest.fixture
def coupled():
    register_coupled()
    return gf.build(gf.DecoderConfig(vocab=20, width=8, heads=2, layers=1, context=12, positions="coupled"))


@pytest.mark.parametrize("name", TINY)
def test_a_study_measures_finds_and_draws(name):
    study, point = studies()[name], TINY[name]
    points = [point, {**point, **OTHERS.get(name, {})}] if name in OTHERS else [point]
    rows = Rows({**one, "seed": 0, "diverged": False, **study.measure(one, 0)} for one in points)
    assert all(isinstance(sentence, str) and sentence.endswith(".") for sentence in findings(study, rows, list(point)))
    assert all(figure.get_label() for figure in study.figures(rows).values())
    assert set(study.columns) <= set(rows.columns)
    assert study.question.endswith("?")
    assert len(study.points(quick=True)) <= len(study.points())


def test_digits_of_equal_worth_share_a_place_and_coupled_ones_are_the_same_under_jax():
    tokens = np.array([START + 3, 5, 2, PLUS, 4, 7, EQUALS, 9, 9])
    assert CoupledPositions(12).places(tokens).tolist() == [3, 4, 5, 3, 4, 5, 3, 4, 5]
    word = np.array([[START, 5, 2, EQUALS, 2, 5], [START + 1, 5, EQUALS, 5, 0, 0]])
    places = CoupledPositions(12, mirrored=True).places(word)
    assert places.tolist() == [[0, 1, 2, 3, 2, 1], [1, 2, 3, 2, 1, 0]]
    longer = np.append(word, [[1], [1]], axis=1)
    assert np.array_equal(CoupledPositions(12).places(longer)[:, :-1], CoupledPositions(12).places(word))

    jax = pytest.importorskip("jax")
    tokens = sequences("addition", np.array([1, 3]), np.random.default_rng(0), (0, 9)).rows.tokens
    places = CoupledPositions(20).places
    assert np.array_equal(jax.jit(places)(tokens), places(tokens))


def test_gradients_of_coupled_positions_are_exact(coupled):
    (case,) = [case for case in own_cases() if case.name == "decoder (positions coupled)"]
    assert prove_case(case).ok
    # Two tokens of one place send both their gradients to its vector.
    params = coupled.init(0, np.float64)
    batch = sequences("copy", np.array([2, 1]), np.random.default_rng(0), (0, 8)).rows
    _, grads = coupled.loss_and_grads(params, batch)
    table = params["embedding"]["positions"]["table"]
    used = np.unique(coupled.stack.positions.places(batch.tokens))
    for row in used[:2]:
        moved = [float(coupled.loss(_with(params, _moved(table, row, step)), batch)) for step in (1e-6, -1e-6)]
        assert grads["embedding"]["positions"]["table"][row, 0] == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-5)
    assert not np.delete(grads["embedding"]["positions"]["table"], used, axis=0).any()


def _moved(table, row, step):
    moved = table.copy()
    moved[row, 0] += step
    return moved


def _with(params, table):
    return {**params, "embedding": {**params["embedding"], "positions": {"table": table}}}


def test_coupled_positions_write_what_they_would_predict_and_encoders_refuse_them(coupled):
    params, prompts = coupled.init(3), [[START, 5, 2, EQUALS], [START + 2, 1, EQUALS]]
    steps = generate_steps(coupled, params, prompts, max_new_tokens=3, sampling=Sampling(temperature=0))
    written = [step.ids.tolist() for step in steps]
    assert len(written) == 3
    for row, prompt in enumerate(prompts):
        tokens = np.array([[*prompt, *(ids[row] for ids in written[:2])]])
        assert coupled.forward(params, tokens)[0][0, -1].argmax() == written[2][row]
    with pytest.raises(ConfigError, match=r"'coupled' follow from all tokens(.|\n)*cache=False"):
        coupled.read(params, np.array([[START]]), coupled.new_cache())

    config = gf.EncoderConfig(vocab=20, width=8, heads=2, layers=1, context=12, positions="coupled", classes=2)
    with pytest.raises(ConfigError, match="'coupled' follow from the tokens that a decoder reads, but this is an enc"):
        gf.build(config).init(0)


@pytest.mark.parametrize("operation", ["copy", "reverse", "addition"])
def test_sequences_answer_their_questions(operation):
    rows = sequences(operation, np.array([1, 4, 4]), np.random.default_rng(1), (0, 5)).rows
    for tokens, targets, mask in zip(rows.tokens, rows.targets, rows.mask, strict=True):
        ids = [*tokens[mask].tolist(), int(targets[mask][-1])]
        question, answer = ids[1 : ids.index(EQUALS)], ids[ids.index(EQUALS) + 1 :]
        if operation == "addition":
            numbers = question[: question.index(PLUS)], question[question.index(PLUS) + 1 :], answer
            a, b, total = (sum(digit * 10**place for place, digit in enumerate(number)) for number in numbers)
            assert a + b == total
        else:
            assert answer == (question[::-1] if operation == "reverse" else question)
        assert targets[mask][-len(answer) :].tolist() == answer


def test_cosines_explain_exactly_their_share_of_the_logits():
    a, b, c = np.ogrid[:11, :11, :11]
    wave = np.cos(2 * np.pi * 3 * (a + b - c) / 11)
    other = np.cos(2 * np.pi * 4 * (a - b - c) / 11)
    assert explained(wave + np.arange(11)[:, None, None], [3]) == pytest.approx(1)
    assert explained(wave + other, [3, 4]) == pytest.approx(0.5)


def test_gradients_of_the_toy_model_are_exact():
    rng = np.random.default_rng(0)
    params, x, weights = (
        {"w": rng.normal(size=(2, 5)), "b": rng.normal(size=5)},
        rng.random((4, 5)),
        0.9 ** np.arange(5),
    )
    _, grads = loss_and_grads(params, x, weights)
    for name, array in params.items():
        for at in np.ndindex(array.shape):
            step = np.zeros_like(array)
            step[at] = 1e-6
            moved = [loss_and_grads({**params, name: array + way * step}, x, weights)[0] for way in (1, -1)]
            assert grads[name][at] == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-5, abs=1e-9)
