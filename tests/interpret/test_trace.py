"""A trace shows what the forward pass did, without padding."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import Batch, Decoder, Encoder, EncoderConfig, build
from glassformer.core.errors import ConfigError, LengthError
from glassformer.interpret import Labels, full_and_causal, token_labels, trace, trace_each
from glassformer.text.symbols import ByteTokenizer, CharTokenizer


def test_the_attention_of_a_decoder_is_what_the_record_holds(decoder):
    model, params, batch = decoder
    logits, saved = model.predict(params, batch)
    seen = trace(model, params, batch)
    assert seen.kinds == ("decoder",)
    for layer, block in enumerate(saved["blocks"]):
        assert_close(seen.attention["decoder"][layer], block["attention"].weights[0])
    assert_close(seen.logits, logits[0])
    assert_close(seen.probabilities.sum(axis=-1), np.ones(5))
    assert seen.targets.tolist() == batch.targets[0].tolist()


def test_padding_is_removed(decoder):
    model, params, batch = decoder
    padded = trace(model, params, batch, example=1)
    alone = trace(model, params, Batch(batch.tokens[1, :3]))
    assert padded.attention["decoder"].shape == (2, 2, 3, 3)
    assert_close(padded.attention["decoder"], alone.attention["decoder"])
    assert_close(padded.residual["decoder"], alone.residual["decoder"])
    assert_close(padded.logits, alone.logits)


def test_every_example_of_a_batch_is_traced_as_if_alone(encoder_decoder):
    model, params, batch = encoder_decoder
    for number, seen in enumerate(trace_each(model, params, batch)):
        alone = trace(model, params, batch, example=number)
        for kind in ("encoder", "decoder", "cross"):
            assert_close(seen.attention[kind], alone.attention[kind])
            assert_close(seen.attention[kind].sum(axis=-1), np.ones(seen.attention[kind].shape[:-1]))


def test_an_encoder_decoder_has_three_kinds_of_attention(encoder_decoder):
    model, params, batch = encoder_decoder
    seen = trace(model, params, batch, example=1, labels=Labels(lambda i: f"t{i}", lambda i: f"s{i}"))
    assert seen.attention["encoder"].shape == (1, 2, 2, 2)
    assert seen.attention["decoder"].shape == (2, 2, 3, 3)
    assert seen.attention["cross"].shape == (2, 2, 3, 2)
    assert seen.query_labels("cross") == [f"t{i}" for i in batch.tokens[1, :3]]
    assert seen.key_labels("cross") == [f"s{i}" for i in batch.source[1, :2]]
    assert seen.allowed["decoder"].tolist() == np.tri(3, dtype=bool).tolist()
    assert seen.allowed["cross"].all()


def test_a_learned_vector_before_the_sequence_is_part_of_it(encoder):
    model, params, batch = encoder
    seen = trace(model, params, batch, example=1)
    assert seen.labels["encoder"] == ["[CLS]", *map(str, batch.tokens[1, :3])]
    assert seen.attention["encoder"].shape == (2, 2, 4, 4)
    assert_close(seen.residual["encoder"][0, 0], params["cls"])
    assert seen.logits.shape == (3,)
    assert int(seen.targets) == 2


def test_the_residual_starts_with_the_embedding_and_ends_with_the_last_block(decoder):
    model, params, batch = decoder
    _, saved = model.predict(params, batch)
    residual = trace(model, params, batch).residual["decoder"]
    assert_close(residual[0], saved["embedding"]["output"][0])
    assert_close(residual[-1], saved["blocks"][-1]["output"][0])


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative"])
@pytest.mark.parametrize("tile", [None, 2])
def test_causal_attention_from_the_scores_is_the_models_own(decoder, positions, tile):
    _, _, batch = decoder
    model = build(decoder[0].config, positions=positions, attention_tile=tile)
    seen = trace(model, model.init(0, np.float64), batch)
    full, causal = full_and_causal(seen)
    assert_close(causal, seen.attention["decoder"])
    assert_close(full.sum(axis=-1), np.ones(full.shape[:-1]))
    assert (full > 0).all()


def test_windows_show_in_what_is_allowed(decoder):
    model = Decoder(decoder[0].config.replace(window=2))
    seen = trace(model, model.init(0), decoder[2])
    assert seen.allowed["decoder"].sum(axis=-1).tolist() == [1, 2, 2, 2, 2]
    assert (seen.attention["decoder"][:, :, ~seen.allowed["decoder"]] == 0).all()


def test_an_encoder_without_a_head_has_no_logits(encoder):
    model = Encoder(EncoderConfig(vocab=5, width=8, heads=2, layers=1, context=8, head="none"))
    seen = trace(model, model.init(0), Batch(np.array([1, 2, 3])))
    assert seen.logits is None
    assert seen.probabilities is None


def test_half_precision_is_widened(decoder):
    model, _, batch = decoder
    seen = trace(model, model.init(0, np.float16), batch)
    assert seen.attention["decoder"].dtype == np.float32


def test_jax_arrays_become_numpy_arrays(decoder, jax):
    from glassformer.core import tree

    model, params, batch = decoder
    seen = trace(model, tree.like(params, jax.numpy), batch)
    assert isinstance(seen.attention["decoder"], np.ndarray)
    assert_close(seen.attention["decoder"], trace(model, params, batch).attention["decoder"], 1e-5)


def test_wrong_requests_are_refused(decoder, encoder_decoder):
    model, params, batch = decoder
    with pytest.raises(LengthError, match="no example 2 in a batch of 2"):
        trace(model, params, batch, example=2)
    with pytest.raises(ConfigError, match="no 'encoder' attention"):
        trace(model, params, batch).query_labels("encoder")
    with pytest.raises(ConfigError, match="between two sequences"):
        full_and_causal(trace(*encoder_decoder), "cross")


def test_labels_come_from_a_tokenizer():
    label = token_labels(CharTokenizer("ab", specials=("<bos>",)))
    assert [label(i) for i in range(3)] == ["<bos>", "a", "b"]
    # A byte that is only part of a character has no text of its own.
    assert token_labels(ByteTokenizer())(0xC3) == f"#{0xC3}"
