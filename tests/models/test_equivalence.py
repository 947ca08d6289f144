"""What must not matter does not: padding, batching, tiles, what comes later, and the seed of a dropout that is off."""

from dataclasses import replace

import numpy as np
import pytest

from compare import assert_close, assert_same
from glassformer.core.tree import flatten, tree_map
from glassformer.models import build
from glassformer.models.decoder import Decoder
from glassformer.models.model import Batch
from glassformer.ops import IGNORE
from glassformer.proofs.gradient import relative_error
from glassformer.proofs.model_cases import POSITIONS, SIZES, SOURCE, SOURCE_MASK, TOKENS
from proof_cases import MODEL_CASES

CASES = {case.name: case for case in MODEL_CASES}
# Whole models with masks, one per kind of computation that padding or batching could disturb.
CHOSEN = [
    *(f"{kind} (positions), {name}" for kind in ("encoder", "decoder", "encoder-decoder") for name in POSITIONS),
    "encoder (cls)",
    "encoder (first)",
    "encoder (tokens), tied",
    "encoder (BERT)",
    "decoder (norms), post",
    "decoder (attention), grouped queries",
    "decoder (attention), stride",
    "decoder (attention), tiled, window, ALiBi",
    "decoder (Llama)",
    "encoder-decoder (attention), tiled, relative",
    "encoder-decoder (T5)",
    "encoder-decoder (original)",
]


def cut(case, row):
    """One example of the batch without its padding and without a batch axis."""
    batch = tree_map(lambda x: x[row], case.batch)
    length = int(batch.mask.sum()) if batch.mask is not None else batch.tokens.shape[-1]
    parts = {"tokens": batch.tokens[:length], "mask": None}
    if batch.targets.ndim:
        parts["targets"] = batch.targets[:length]
    if batch.segments is not None:
        parts["segments"] = batch.segments[:length]
    if batch.source is not None:
        parts |= {"source": batch.source[batch.source_mask], "source_mask": None}
    return batch._replace(**parts)


def counted(batch):
    return np.sum(batch.targets != IGNORE)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_padded_batch_is_the_mean_of_its_unpadded_sequences(name):
    case = CASES[name]
    # Targets of padding are ignored, as a data pipeline would have it.
    batch = case.batch
    if batch.targets.ndim > 1:
        batch = batch._replace(targets=np.where(batch.mask, batch.targets, IGNORE))
        case = replace(case, batch=batch)
    loss, grads = case.model.loss_and_grads(case.params, batch)
    singles = [cut(case, row) for row in range(len(batch.tokens))]
    results = [case.model.loss_and_grads(case.params, single) for single in singles]
    shares = [counted(single) / counted(batch) for single in singles]
    assert_close(loss, sum(share * one for share, (one, _) in zip(shares, results, strict=True)))
    mean = tree_map(
        lambda *parts: sum(s * g for s, g in zip(shares, parts, strict=True)), *(grad for _, grad in results)
    )
    assert_same(grads, mean)


@pytest.mark.parametrize("name", CHOSEN)
def test_what_stands_under_the_padding_does_not_matter_and_batched_is_single(name):
    case = CASES[name]
    batch = case.batch
    if batch.targets.ndim > 1:
        batch = batch._replace(targets=np.where(batch.mask, batch.targets, IGNORE))
    other = batch._replace(tokens=np.where(batch.mask, batch.tokens, 5))
    if batch.source is not None:
        other = other._replace(source=np.where(batch.source_mask, batch.source, 1))
    loss, _ = case.model.loss_and_grads(case.params, batch)
    other_loss, _ = case.model.loss_and_grads(case.params, other)
    assert_close(loss, other_loss, 1e-14)

    y, _ = case.forward()
    for row in range(len(y)):
        single, _ = replace(case, batch=tree_map(lambda x, row=row: x[row], case.batch)).forward()
        of_one, _ = replace(case, batch=tree_map(lambda x, row=row: x[row : row + 1], case.batch)).forward()
        assert single.shape == y[row].shape
        assert_close(single, y[row])
        assert_close(of_one[0], y[row])


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("tile", [2, 3])
def test_tiled_is_dense(name, tile):
    case = CASES[name]
    config = case.model.config
    dense = replace(case, model=build(config, dropout=0.2))
    tiled = replace(case, model=build(config, attention_tile=tile, dropout=0.2))
    for key in (None, 7):
        loss, grads = dense.model.loss_and_grads(case.params, case.batch, key=key)
        tiled_loss, tiled_grads = tiled.model.loss_and_grads(case.params, case.batch, key=key)
        assert_close(tiled_loss, loss)
        assert_same(tiled_grads, grads)


@pytest.mark.parametrize("name", [name for name in CHOSEN if not name.startswith("encoder (")])
def test_a_later_token_never_changes_earlier_logits(name):
    case = CASES[name]
    before, _ = case.forward()
    for place in range(1, TOKENS.shape[-1]):
        tokens = TOKENS.copy()
        tokens[:, place] = (tokens[:, place] + 1) % SIZES["vocab"]
        after, _ = replace(case, batch=case.batch._replace(tokens=tokens)).forward()
        np.testing.assert_array_equal(after[:, :place], before[:, :place])
        assert np.abs(after[:, place:] - before[:, place:]).max() > 1e-6


def test_every_token_of_an_encoder_sees_every_other():
    case = CASES["encoder (vectors)"]
    batch = case.batch._replace(mask=None)
    before, _ = replace(case, batch=batch).forward()
    for place in range(TOKENS.shape[-1]):
        tokens = TOKENS.copy()
        tokens[0, place] = (tokens[0, place] + 1) % SIZES["vocab"]
        after, _ = replace(case, batch=batch._replace(tokens=tokens)).forward()
        assert (np.abs(after[0] - before[0]).max(axis=-1) > 1e-9).all()
        np.testing.assert_array_equal(after[1], before[1])


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_a_sequence_padded_on_the_left_says_the_same_at_its_own_positions(positions):
    case = CASES[f"decoder (positions), {positions}"]
    plain, _ = case.model.forward(case.params, TOKENS[0])
    padded = np.concatenate([[0, 0, 0], TOKENS[0]])
    mask = np.arange(8) >= 3
    places = np.maximum(np.arange(8) - 3, 0)
    shifted, _ = case.model.forward(case.params, padded, mask=mask, positions=places)
    assert_close(shifted[3:], plain)
    several, _ = case.model.forward(case.params, padded[None], mask=mask[None], positions=places[None])
    assert_close(several[0, 3:], plain)


@pytest.mark.parametrize("positions", ["alibi", "relative", "rotary"])
def test_relative_schemes_ignore_a_shift_by_padding_on_the_left(positions):
    names = {"alibi": "ALiBi"}
    case = CASES[f"decoder (positions), {names.get(positions, positions)}"]
    plain, _ = case.model.forward(case.params, TOKENS[0])
    shifted, _ = case.model.forward(case.params, np.concatenate([[0, 0], TOKENS[0]]), mask=np.arange(7) >= 2)
    assert_close(shifted[2:], plain)


def test_source_padding_is_hidden_from_both_stacks_and_the_encoder_is_what_the_decoder_looks_at():
    case = CASES["encoder-decoder"]
    _, saved = case.forward()
    for record in saved["encoder"]["blocks"]:
        assert not record["attention"].weights[1, :, :, ~SOURCE_MASK[1]].any()
    for record in saved["decoder"]["blocks"]:
        assert not record["cross_attention"].weights[1, :, :, ~SOURCE_MASK[1]].any()

    case = CASES["encoder-decoder (positions), rotary"]
    memory, _, _ = case.model.encode(case.params, SOURCE, mask=SOURCE_MASK)
    _, saved = case.forward()
    assert_close(saved["decoder"]["blocks"][0]["cross_attention"].key.x, memory)
    assert_close(saved["decoder"]["blocks"][1]["cross_attention"].value.x, memory)


def test_the_same_key_repeats_dropout_and_no_two_places_share_a_mask():
    case = CASES["decoder (dropout), dropout"]
    model, params = case.model, case.params
    still = Decoder(model.config.replace(dropout=0.0))
    np.testing.assert_array_equal(model.forward(params, TOKENS)[0], still.forward(params, TOKENS)[0])
    first, _ = model.forward(params, TOKENS, key=1)
    np.testing.assert_array_equal(first, model.forward(params, TOKENS, key=1)[0])
    assert np.abs(first - model.forward(params, TOKENS, key=2)[0]).max() > 1e-3

    config = CASES["encoder-decoder (dropout)"].model.config.replace(dropout=0.5, layers=2)
    case = CASES["encoder-decoder (dropout)"]
    model = type(case.model)(config)
    _, saved = model.predict(case.params, case.batch._replace(source=TOKENS, source_mask=None), key=3)
    masks = {name: x for name, x in flatten(saved).items() if x.dtype == bool}
    assert len(masks) == 2 + 2 * 3 + 2 * 5  # embeddings, then per block: weights and outputs of each sublayer
    seen = [x.tobytes() for x in masks.values()]
    assert len(set(seen)) == len(seen)


def test_an_ignored_target_changes_nothing_and_a_shared_table_collects_three_gradients():
    case = CASES["decoder"]
    tokens, targets = TOKENS[:1], np.array([[4, 1, IGNORE, IGNORE, IGNORE]])
    long = case.model.loss_and_grads(case.params, Batch(tokens, targets))
    short = case.model.loss_and_grads(case.params, Batch(tokens[:, :2], targets[:, :2]))
    assert_close(long[0], short[0])
    assert_same(long[1], short[1])

    case = CASES["encoder-decoder (embeddings), tied and shared"]
    apart = type(case.model)(case.model.config.replace(tied_head=False, shared_embedding=False))
    table = case.params["embedding"]["tokens"]["table"]
    source = {**case.params["source_embedding"], "tokens": {"table": table}}
    params = {**case.params, "source_embedding": source, "head": {"w": table.T}}
    loss, grads = case.model.loss_and_grads(case.params, case.batch)
    apart_loss, parts = apart.loss_and_grads(params, case.batch)
    total = parts["embedding"]["tokens"]["table"] + parts["source_embedding"]["tokens"]["table"] + parts["head"]["w"].T
    assert_close(loss, apart_loss)
    assert_close(grads["embedding"]["tokens"]["table"], total)


LIMIT = 1e-11


def comparable(case):
    """Whether the twin can say it, and PyTorch gives a number."""
    shape = case.batch.tokens.shape
    if not case.has_loss or len(shape) != 2 or shape[0] == 0 or (case.batch.targets < 0).all():
        return False
    # The record of tiled attention holds a key, not the mask that the twin would need.
    return "key" not in case.settings or case.model.execution.tile is None


TWINS = [case for case in MODEL_CASES if comparable(case)]


@pytest.mark.parametrize("case", TWINS, ids=lambda case: case.name)
def test_the_model_equals_its_twin(torch, case):
    from torch_twin import twin_loss_and_grads

    loss, grads = case.model.loss_and_grads(case.params, case.batch, **case.settings)
    twin_loss, twin_grads, twin_logits = twin_loss_and_grads(case)
    assert relative_error(case.forward()[0], twin_logits) <= LIMIT
    assert relative_error(loss, np.asarray(twin_loss)) <= LIMIT
    grads = flatten(grads)
    assert grads.keys() == twin_grads.keys()
    for name, grad in grads.items():
        found = relative_error(grad, twin_grads[name])
        assert found <= LIMIT, f"{name}: error {found:.3g}"


def test_every_family_is_compared():
    names = {case.name for case in TWINS}
    families = {
        "decoder (GPT-2)",
        "decoder (Llama)",
        "encoder (BERT)",
        "encoder-decoder (original)",
        "encoder-decoder (T5)",
    }
    assert families | {"decoder (positions), rotary, interleaved", "encoder (BERT), dropout"} <= names
    assert len(names) > 80
