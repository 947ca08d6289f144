"""Cards of numbers: every formula computes the number it is about, and every gradient agrees with the complex step."""

import doctest
import json
import re
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer import ops
from glassformer.core.errors import ConfigError, LengthError
from glassformer.core.tree import flatten, rebuilt, tree_map
from glassformer.interpret import Cards, Link, Logit, Sum, evaluate, gradients, scale, transform, watch, zero
from glassformer.interpret.graph import OPS

pytestmark = pytest.mark.usefixtures("numpy_engine")

SIZES = {"width": 8, "heads": 2, "layers": 2, "context": 8, "vocab": 7}
MODELS = {
    "decoder": gf.DecoderConfig(**SIZES),
    "decoder, Llama": gf.DecoderConfig(
        **SIZES, positions="rotary", norm="rms", gated=True, activation="silu", kv_heads=1, attention_bias=False
    ),
    "decoder, interleaved": gf.DecoderConfig(
        **SIZES, positions="rotary", rotary_pairing="interleaved", activation="gelu_tanh", block="parallel"
    ),
    "decoder, post": gf.DecoderConfig(
        **SIZES, norm_position="post", tied_head=False, head_bias=True, activation="relu", embedding_scale=True
    ),
    "decoder, attention only": gf.DecoderConfig(**SIZES, norm="none", block="attention_only", window=2),
    "decoder, feed-forward only": gf.DecoderConfig(**SIZES, block="feed_forward_only"),
    "decoder, no residual": gf.DecoderConfig(**SIZES, block="no_residual"),
    "encoder": gf.EncoderConfig(**SIZES, classes=3, pooling="cls", positions="sinusoidal"),
    "encoder, BERT": gf.EncoderConfig(
        **SIZES, head="tokens", pooling="first", norm_position="post", embedding_norm=True, segments=2
    ),
    "encoder, mean": gf.EncoderConfig(**SIZES, classes=3, pooling="mean", positions="alibi", norm_bias=False),
    "encoder-decoder": gf.EncoderDecoderConfig(**SIZES, source_vocab=9, encoder_layers=1),
    "encoder-decoder, T5": gf.EncoderDecoderConfig(
        **SIZES, positions="relative", norm="rms", activation="gelu", gated=True, shared_embedding=True,
        head_scale=True, tied_head=True, attention_bias=False, feed_forward_bias=False, scale_scores=False,
    ),
}  # fmt: skip
MASKED = np.array([[True] * 5, [True] * 3 + [False] * 2])


def watched(config, *, seed=0):
    """A run of a model with every parameter drawn, so that no bias is zero; one target is ignored."""
    rng = np.random.default_rng(seed)
    model = gf.build(config)
    params = {key: x + 0.1 * rng.standard_normal(x.shape) for key, x in flatten(model.init(0, np.float64)).items()}
    tokens = rng.integers(0, 7, (2, 6))
    classes = config.architecture == "encoder" and config.head == "classes"
    targets = tokens[:, 0] % 3 if classes else np.where(MASKED, tokens[:, 1:], gf.ops.IGNORE)
    batch = gf.Batch(tokens[:, :-1], targets, MASKED)
    if config.architecture == "encoder-decoder":
        batch = batch._replace(source=tokens[:, 1:5], source_mask=np.array([[True] * 4, [True] * 2 + [False] * 2]))
    if getattr(config, "segments", 0):
        batch = batch._replace(segments=tokens[:, :-1] % 2)
    return watch(model, rebuilt(model.specs(), params), batch)


@pytest.fixture(scope="module")
def made():
    """The cards of each model."""
    return {name: Cards(watched(config)) for name, config in MODELS.items()}


def drawn(cards, name, rng):
    return tuple(int(rng.integers(size)) for size in cards.array(name).shape)


def error(found):
    """How far a formula is from the number, by the number or the largest of the terms that cancel in it."""
    return abs(evaluate(found) - found.value) / max(found.made.scale(), 1e-30)


@pytest.mark.parametrize("name", MODELS)
def test_every_name_has_a_card_whose_formula_gives_its_number(name, made, rng):
    cards = made[name]
    for own in cards.names():
        for gradient in (False, True):
            if gradient and not cards.has_gradient(own):
                continue
            found = cards.card(own, drawn(cards, own, rng), gradient=gradient)
            assert found.made is not None, own
            assert found.note == "", own
            assert error(found) <= 1e-12, (own, gradient, found.formula)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_agree_with_the_complex_step(name, made, rng):
    cards = made[name]
    graded = [own for own in cards.names() if cards.has_gradient(own) and own != "loss"]
    for _ in range(6):
        own = graded[rng.integers(len(graded))]
        index = drawn(cards, own, rng)
        found, proof = cards.card(own, index, gradient=True), cards.prove(own, index)
        assert abs(evaluate(found) - proof.step) <= 1e-9 * max(abs(proof.step), found.made.scale()), own
        assert proof.gradient == found.value == cards.card(own, index).gradient


def test_every_op_with_a_gradient_is_known():
    pairs = {name for name in ops.__all__ if f"{name}_backward" in ops.__all__}
    elsewhere = {"attention_tiled", "cross_entropy", "log_softmax"}  # runs keep all weights; the loss has its own file
    assert pairs - set(OPS) - set(ops.ACTIVATIONS) == elsewhere
    assert set(OPS) <= pairs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
def test_tables_of_positions_are_constants_that_read_no_value(positions, dtype):
    model = gf.build(gf.DecoderConfig(vocab=7, width=8, heads=2, layers=1, context=8, positions=positions))
    tokens = np.arange(10).reshape(2, 5) % 7
    cards = Cards(watch(model, model.init(0, dtype), gf.Batch(tokens, tokens)))
    made = [step for step in cards.graph.all() if step.rule == "constant"]
    assert made
    assert all(not step.inputs for step in made)
    assert not any("astype" in reader.op for name in cards.run if cards.has_gradient(name)
                   for reader in cards.card(name, (0,) * cards.run[name].ndim, gradient=True).readers)  # fmt: skip
    assert all("rotation" not in name for name in cards.run)


def test_a_card_reads_as_the_code_does(made):
    found = made["decoder"].card("blocks.0.attention", (0, 4, 2))
    assert found.formula == "y[n,t,j] = Σ_k x[n,t,k] · w[k,j] + b[j]"
    assert (found.op, found.kind, found.made.combine) == ("ops.linear", "value", "sum")
    assert found.axes == ["example", "position", "feature"]
    assert " + … + 5 more + " in found.filled
    assert found.also == ["blocks.0.attention.output"]
    assert found.feeds == ["blocks.0.feed_forward_norm.x"]
    assert len(found.terms) == 9
    assert sum(term.value for term in found.terms) == pytest.approx(found.value, rel=1e-12)
    assert found.terms[3].label == "k = 3"
    x, w = found.terms[3].parts
    assert x.links == (Link("blocks.0.attention.output.x", (0, 4, 3)),)
    assert w.links == (Link("blocks.0.attention.output.w", (3, 2)),)
    assert x.value * w.value == found.terms[3].value
    links = list(found.inputs)
    assert len(links) == 17
    assert all(link.name in made["decoder"].names() for link in links)


FORMULAS = """
decoder | embedding.tokens 1 2 3 | y[n,t,i] = table[ids[n,t],i]
decoder, post | embedding.tokens 1 2 3 | y[n,t,i] = scale · table[ids[n,t],i]
decoder | embedding 1 2 3 | y[n,t,j] = x[n,t,j] + h[t,j]
decoder | blocks.0 1 2 3 | y[n,t,j] = x[n,t,j] + h[n,t,j]
decoder, interleaved | blocks.0 1 2 3 | y[n,t,j] = x[n,t,j] + h[n,t,j]
decoder | final_norm 1 2 3 | y[n,t,j] = (x[n,t,j] − mean[n,t]) · rstd[n,t] · gamma[j] + beta[j]
decoder, Llama | final_norm.rrms 1 2 0 | rrms[n,t] = 1 / √(mean_i(x[n,t,i]²) + eps)
decoder | blocks.1.attention.attend.scores 0 1 3 1 | scores[n,h,t,s] = Σ_c q[n,h,t,c] · k[n,h,s,c] · scale
decoder | blocks.1.attention.attend.weights 0 1 1 3 | weights[n,h,t,s] = 0, for the mask hides the key
decoder | blocks.1.attention.output.x 0 1 3 | x[n,t,i] = y[n,h,t,c] = Σ_s weights[n,h,t,s] · v[n,h,s,c]
decoder, Llama | blocks.0.attention.attend.k 0 0 1 1 | y[n,h,t,a] = x[n,h,t,a] · cos[t,p] − x[n,h,t,b] · sin[t,p]
decoder, Llama | blocks.0.feed_forward.down.x 0 1 1 | y[n,t,f] = gate[n,t,f] · σ(gate[n,t,f]) · up[n,t,f]
decoder | logits 0 1 1 | y[n,t,j] = Σ_k x[n,t,k] · table[j,k]
encoder | blocks.0.attention_norm.x 0 0 1 | y[n,0,j] = first[j]
encoder | classifier.x 0 1 | pooled[n,j] = x[n,0,j]
encoder, mean | classifier.x 1 1 | y[n,j] = Σ_t x[n,t,j] · share[n,t]
encoder-decoder, T5 | encoder.relative 1 2 3 | bias[h,t,s] = table[buckets[t,s],h]
encoder-decoder, T5 | head.logits.x 1 2 3 | y[n,t,j] = x[n,t,j] · factor
decoder | blocks.0.attention.attend.mask 0 0 1 2 | mask[n,h,t,s] = pattern[t,s] · mask[n,s]
"""


@pytest.mark.parametrize("line", FORMULAS.strip().splitlines())
def test_formulas_are_those_of_the_ops(line, made):
    model, place, formula = line.split(" | ")
    name, *index = place.split()
    assert made[model].card(name, tuple(map(int, index))).formula == formula


def test_the_loss_has_a_card_and_so_has_what_it_says_of_a_logit(made):
    found = made["decoder"].card("loss", ())
    assert found.op == "ops.cross_entropy"
    assert len(found.terms) == 8  # two targets are ignored
    assert found.value == made["decoder"].run.loss
    target = int(made["decoder"].run.targets[0, 2])
    found = made["decoder"].card("logits", (0, 2, target), gradient=True)
    assert found.op == "ops.cross_entropy_backward"
    assert found.formula.endswith(" − [v = targets[n,t]]) / count")
    assert found.value < 0
    assert made["decoder"].card("logits", (1, 4, 0), gradient=True).formula.endswith("the position has no target")


def test_a_gradient_says_how_much_each_reader_sends_back(made):
    cards = made["decoder"]
    found = cards.card("embedding", (0, 2, 1), gradient=True)
    past, through = found.readers
    assert past.label == "unchanged through the sum, from blocks.0.feed_forward_norm.x"
    assert through.label == "through blocks.0.attention_norm"
    assert past.made.number() + through.made.number() == pytest.approx(found.value, rel=1e-12)
    assert (found.gradient, found.reason) == (found.value, "the gradient of loss")
    assert past.made.number() == gradients(cards.run)["blocks.0.feed_forward_norm.x"][0, 2, 1]
    token = int(cards.run.batch.tokens[0, 0])
    table = cards.card("embedding.tokens.table", (token, 3), gradient=True)
    assert [reader.op for reader in table.readers] == ["ops.embedding_backward", "ops.linear_backward"]
    shared = made["encoder-decoder, T5"].card("embedding.tokens.table", (3, 3), gradient=True)
    assert len(shared.readers) == 3  # source, target and head
    bias = made["encoder-decoder, T5"].card("encoder.relative", (1, 0, 2), gradient=True)
    assert [reader.op for reader in bias.readers] == ["ops.attention_backward"] * 2


def test_numbers_without_a_name_lead_on_to_those_that_have_one(made):
    cards = made["decoder, Llama"]  # keys before their rotation, and their gradients
    found = cards.card("blocks.0.attention.attend.k", (0, 0, 1, 1))
    assert {link.name for link in found.inputs} == {"blocks.0.attention.key"}
    back = cards.card("blocks.0.attention.key.w", (2, 3), gradient=True)
    named = {(link.name, link.gradient) for link in back.inputs}
    assert named == {("blocks.0.attention_norm", False), ("blocks.0.attention.key", True)}
    assert {link["name"] for link in back.to_dict()["inputs"]} == {name for name, _ in named}


@pytest.mark.parametrize("name", MODELS)
def test_every_card_leads_on_to_others(name, made, rng):
    cards = made[name]
    known = set(cards.names())
    for own in cards.names():
        found = cards.card(own, drawn(cards, own, rng))
        assert set(found.feeds) <= known, own
        links = list(found.inputs)
        assert all(link.name in known for link in links), own
        lone = found.kind != "value" or "0, for" in found.formula or "mask" in own or "relative" in own
        assert links or lone, own


def test_a_card_shows_the_lines_that_computed_it(made):
    found = made["decoder"].card("blocks.0", (0, 1, 2)).source
    assert (found["forward"].name, found["forward"].file) == ("add", "ops/arrange.py")
    first = found["forward"].lines[0] - found["forward"].line
    assert found["forward"].text.splitlines()[first].strip().startswith("return x + h")
    assert found["backward"].name == "add_backward"
    found = made["decoder"].card("blocks.0.attention.query.w", (0, 1), gradient=True).source["backward"]
    assert found.text.splitlines()[found.lines[0] - found.line].strip().startswith("dw = ")
    found = made["decoder"].card("logits", (0, 1, 2), gradient=True).source["backward"]
    assert found.lines[0] == found.lines[1]


@pytest.mark.parametrize("name", ["decoder", "encoder, BERT", "encoder-decoder, T5"])
def test_cards_are_plain_data_with_the_largest_terms(name, made, rng):
    cards = made[name]
    for own in cards.names():
        found = cards.card(own, drawn(cards, own, rng))
        plain = json.loads(json.dumps(found.to_dict(most=4), allow_nan=False))
        assert len(plain["terms"]) <= 4
        assert plain["more"] == max(found.made.size - 4, 0)
        if plain["combine"] == "sum":
            total = sum(term["value"] for term in plain["terms"]) + plain["rest"]
            assert total == pytest.approx(plain["value"], rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("name", MODELS)
def test_all_formulas_are_those_of_the_cards_with_their_letters(name, made):
    cards = made[name]
    found = json.loads(json.dumps(cards.formulas()))
    assert found["of"].keys() == {*cards.run}
    for value, own in found["of"].items():
        array = cards.run[value]
        card = cards.card(value, np.unravel_index(np.argmax(np.abs(array)), array.shape))
        assert (own["op"], own["also"], own["feeds"]) == (card.op, card.also, card.feeds)
        assert "<math" in own["math"], value
        assert found["sources"][own["source"]]["text"] == card.source["forward"].text
        assert "hides" not in own["math"], value


def test_what_is_changed_or_given_has_no_formula_or_no_gradient(made):
    run = made["decoder"].run.changed(zero("blocks.0.attention", position=0))
    own = Cards(run).formulas()["of"]["blocks.0.attention"]
    assert (own["math"], own["note"], own["source"]) == ("", "changed: zero", None)

    found = made["encoder-decoder"].card("tokens", (0, 1))
    assert (found.kind, found.gradient, found.reason) == ("input", None, "it is no real number")
    assert found.feeds == ["embedding.tokens"]
    assert made["encoder-decoder"].card("embedding.tokens.table", (0, 1)).kind == "parameter"
    with pytest.raises(ConfigError, match="tokens has no gradient"):
        made["encoder-decoder"].card("tokens", (0, 1), gradient=True)
    run = made["decoder"].run
    without = watch(run.model, run.params, gf.Batch(run.batch.tokens))
    found = Cards(without).card("blocks.0", (0, 1, 2))
    assert found.gradient is None
    assert "the batch has no targets" in found.reason


def test_other_targets_have_gradients_of_their_own(made, rng):
    run = made["decoder, Llama"].run
    for of in (Logit(3, against=1, position=2), Sum("blocks.0", 2.0, position=1)):
        cards = Cards(run, of, gradients(run, of))
        for own in ("logits", "blocks.0", "embedding", "blocks.0.attention.attend.weights", "embedding.tokens.table"):
            index = drawn(cards, own, rng)
            assert error(cards.card(own, index, gradient=True)) <= 1e-12, own
    assert Cards(run, Logit(3, against=1, position=2)).card("logits", (0, 2, 3), gradient=True).value == 1
    assert Cards(run, Sum("blocks.0", 2.0, position=1)).card("blocks.0", (0, 1, 4), gradient=True).value == 2


def test_changed_numbers_say_so_and_all_others_still_compute(made, rng):
    run = made["decoder"].run.changed(
        zero("blocks.0.attention.output.x", head=1), scale("blocks.1.attention_norm.rstd", 1.5)
    )
    cards = Cards(run.changed(transform("blocks.0.attention_norm.rstd", np.square, lambda dy, x: 2 * x * dy)))
    found = cards.card("blocks.1.attention_norm.rstd", (0, 1, 0))
    assert found.op == "changed: scale"
    assert found.note == f"it was {found.value / 1.5:.6g}"
    for own in cards.names():
        for gradient in (False, True):
            if not gradient or cards.has_gradient(own):
                assert error(cards.card(own, drawn(cards, own, rng), gradient=gradient)) <= 1e-12, own


def test_single_precision_has_cards_that_agree_as_far_as_it_goes(made, rng):
    run = made["decoder, Llama"].run
    cards = Cards(watch(run.model, tree_map(lambda x: x.astype(np.float32), run.params), run.batch))
    for own in cards.names():
        found = cards.card(own, drawn(cards, own, rng), gradient=cards.has_gradient(own))
        assert error(found) <= 1e-4
        assert found.note == ""


@pytest.mark.parametrize(
    ("name", "index", "kind", "words"),
    [
        ("blocks.0.atention", (0, 0, 0), ConfigError, "did you mean 'blocks.0.attention'"),
        ("blocks.0", (0, 0), ConfigError, "blocks.0 has 3 axes, the index \\(0, 0\\) has 2"),
        ("blocks.0", (0, 5, 0), LengthError, "blocks.0 has no entry 5 on axis 1"),
        ("blocks.0", (0, 0, -9), LengthError, "it has 8, from 0 to 7"),
        ("blocks.0", (0, 0, 1.5), ConfigError, "no tuple of whole numbers"),
        ("blocks.0", "abc", ConfigError, "no tuple of whole numbers"),
        ("blocks.0", 3, ConfigError, "no tuple of whole numbers"),
        ("embedding.tokens.table", (7, 0), LengthError, "from 0 to 6"),
    ],
)
def test_what_is_not_there_is_refused(name, index, kind, words, made):
    with pytest.raises(kind, match=words):
        made["decoder"].card(name, index)


def test_the_last_entries_are_counted_from_the_end_as_everywhere(made):
    assert made["decoder"].card("blocks.0", (-1, -1, -1)).index == (1, 4, 7)


def test_the_page_about_looking_inside_shows_real_cards():
    page = (Path(__file__).parents[2] / "docs" / "guides" / "looking_inside.md").read_text(encoding="utf-8")
    block, *_ = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (shown,) = re.findall(r"```pycon\n(>>> .*?)```", page, flags=re.DOTALL)
    scope = {"print": lambda *_: None}
    exec(compile(block, "looking_inside.md", "exec"), scope)
    del scope["print"]
    test = doctest.DocTestParser().get_doctest(shown, scope, "looking_inside.md", None, 0)
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert (found.failed, found.attempted) == (0, 7)


def test_matrices_that_lie_turned_over_in_memory_have_the_same_cards(rng):
    run = watched(MODELS["decoder, post"])
    turned = tree_map(lambda x: np.ascontiguousarray(x.T).T, run.params)
    here, there = Cards(run), Cards(watch(run.model, turned, run.batch))
    for name in ("blocks.1.attention.query", "blocks.1.attention.query.w", "logits", "head.w"):
        for gradient in (False, True):
            index = drawn(here, name, rng)
            expected, found = (one.card(name, index, gradient=gradient) for one in (here, there))
            assert found.formula == expected.formula
            assert [(one.name, one.index) for one in found.inputs] == [(one.name, one.index) for one in expected.inputs]
            assert error(found) < 1e-12
