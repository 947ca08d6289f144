"""SmolLM2-135M-Instruct out of its GGUF file: the logits, tokens and prompts of `transformers`, and a right answer."""

import warnings
from functools import cache

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from glassformer.generation import generate_steps
from glassformer.generation.sampling import Sampling
from glassformer.models import PRESETS
from glassformer.text.chat import encode_chat, render_chat
from glassformer.weights.gguf import open_gguf
from glassformer.weights.gguf_file import read_header
from oracles import require
from published_models import pulled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
TEXTS = [
    "Hello, world! The quick brown fox jumps over the lazy dog.",
    "def main():\n\tfor i in range(n):\n        print(f'{i:>4}')\n\n\n",
    "naïve café — Größe, 日本語, текст, العربية 😀👩‍👩‍👧‍👦",
    "   spaces   and\r\n line ends \n\n",
    "It's we'll they've DON'T",
    "<|im_start|>user\nhi<|im_end|>",
    "",
]


@cache
def ours():
    return open_gguf(pulled("smollm2"))


_read = cache(gguf.GGUFReader)


@cache
def theirs(kind):
    """What `transformers` makes of the same file: AutoModelForCausalLM or AutoTokenizer."""
    transformers, path = require("transformers"), pulled("smollm2")
    dtype = {} if kind == "AutoTokenizer" else {"dtype": require("torch").float32}
    require("accelerate")  # transformers needs it to read GGUF
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr(gguf, "GGUFReader", _read)  # it would read the file four times
        patch.setattr(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map))  # and make this one for each module
        return getattr(transformers, kind).from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True, **dtype
        )


@cache
def published_tokenizer():
    """The steps of the tokenizer.json that SmolLM2 was published with, on the file's vocabulary."""
    settings = read_header(pulled("smollm2")).settings
    tokens, merges = settings["tokenizer.ggml.tokens"], settings["tokenizer.ggml.merges"]
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_the_config_is_that_of_the_preset_and_logits_equal_those_of_transformers():
    known = {name: value for name, value in PRESETS["smollm2-135m"].items() if name not in ("architecture", "init_std")}
    assert {name: getattr(ours().config, name) for name in known} == known
    assert ours().end_ids == (2, 0)
    assert ours().start_id is None

    torch = require("torch")
    model = theirs("AutoModelForCausalLM").eval()
    tokens = encode_chat(ours().tokenizer, QUESTION)[None]
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    logits, _ = ours().model.forward(ours().params, tokens)
    assert logits.shape == (1, tokens.shape[1], 49152)
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
    np.testing.assert_array_equal(logits.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_cut_as_by_transformers(text):
    tokenizer = theirs("AutoTokenizer")
    ids = ours().tokenizer.encode(text, parse_special=True)
    assert ids.tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ours().tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", [*TEXTS[:5], "In 2024: 3.14159, 1,000,000 + 42 = ½ ² ٣٤٥ x1y22"])
def test_text_with_digits_is_cut_as_by_the_published_tokenizer(text):
    # What transformers builds from the file keeps digits together, which SmolLM2 was not trained with.
    assert ours().tokenizer.encode(text).tolist() == published_tokenizer().encode(text).ids


def test_a_conversation_becomes_the_prompt_of_transformers():
    tokenizer = theirs("AutoTokenizer")
    told = [
        {"role": "system", "content": "Be brief."},
        *QUESTION,
        {"role": "assistant", "content": "Paris."},
        *QUESTION,
    ]
    for messages in (QUESTION, told):
        expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert render_chat(ours().chat_template, messages, specials=ours().tokenizer.roles) == expected
        ids = tokenizer(expected, add_special_tokens=False)["input_ids"]
        assert encode_chat(ours().tokenizer, messages).tolist() == ids


def test_it_knows_the_capital_of_france():
    prompt = encode_chat(ours().tokenizer, QUESTION)
    steps = generate_steps(
        ours().model,
        ours().params,
        [prompt],
        max_new_tokens=12,
        sampling=Sampling(temperature=0),
        stop_ids=ours().end_ids,
    )
    answer = ours().tokenizer.decode([int(step.ids[0]) for step in steps], skip_specials=True)
    assert "Paris" in answer
