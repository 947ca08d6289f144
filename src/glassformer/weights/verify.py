"""Is it the same model? Every layer beside the reference implementation, `transformers`."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config import EncoderConfig, EncoderDecoderConfig
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..text import PublishedTokenizer
from .export import export_folder, family_for, with_config
from .family import Family
from .loaded_model import LoadedModel

LIMIT = 1e-4
"""The largest difference that passes, as a share of the largest number of the layer."""
TEXT = "The quick brown fox jumps over the lazy dog, and then it rests for a while."
MOST_TOKENS = 32


@dataclass(frozen=True)
class LayerDifference:
    """One layer: the largest number of the reference, and the largest difference to ours as a share of it."""

    layer: str
    largest: float
    difference: float

    @property
    def agrees(self) -> bool:
        """Whether the layer is the same up to rounding."""
        return self.difference <= LIMIT


@dataclass(frozen=True)
class Verification:
    """The differences of every layer on the same tokens, from the embedding to the output."""

    tokens: int
    rows: tuple[LayerDifference, ...]

    @property
    def first_departure(self) -> str | None:
        """The first layer that departs from the reference; None if all agree."""
        return next((row.layer for row in self.rows if not row.agrees), None)


def verify(loaded: LoadedModel, folder: str | Path | None = None) -> Verification:
    """Compare a model with the reference implementation of the same weights, in float32.

    folder    where the reference reads them; without one, it reads what `export_folder` writes
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            # The tokenizer is not what is compared, and takes long to write.
            export_folder(replace(loaded, tokenizer=None, chat_template=None), Path(temporary) / "model")
            return verify(loaded, Path(temporary) / "model")
    family, config = family_for(loaded.config, loaded.family)
    loaded = with_config(loaded, config)
    tokens = sample_tokens(loaded)
    expected = _reference(loaded, family, Path(folder), tokens)
    ours = _ours(loaded, tokens)
    rows = []
    for layer, theirs in expected.items():
        largest = float(np.max(np.abs(theirs)))
        difference = float(np.max(np.abs(np.asarray(ours[layer], dtype=np.float64) - theirs))) / max(largest, 1e-30)
        rows.append(LayerDifference(layer, largest, difference if np.isfinite(difference) else float("inf")))
    return Verification(tokens.shape[-1], tuple(rows))


def sample_tokens(loaded: LoadedModel) -> Array:
    """Return what both read, (1, T): a sentence where there is a tokenizer, else ids spread over the vocabulary."""
    length = min(MOST_TOKENS, loaded.config.context)
    if isinstance(loaded.tokenizer, PublishedTokenizer):
        ids = loaded.tokenizer.encode(TEXT, specials=isinstance(loaded.config, EncoderConfig))[:length]
        if len(ids) and int(ids.max()) < loaded.config.vocab:
            return ids[None]
    # The first ids are often padding, which the reference treats in its own way.
    first = min(4, loaded.config.vocab - 1)
    return np.random.default_rng(0).integers(first, loaded.config.vocab, (1, length))


def _ours(loaded: LoadedModel, tokens: Array) -> dict[str, Array]:
    """Return what our model computes, layer by layer."""
    pair = isinstance(loaded.config, EncoderDecoderConfig)
    output, saved = loaded.model.forward(loaded.params, *([tokens, tokens] if pair else [tokens]))
    stacks = {"": (saved["embedding"], saved)}
    if pair:
        stacks = {"encoder.": (saved["source_embedding"], saved["encoder"])}
        stacks["decoder."] = (saved["embedding"], saved["decoder"])
    values = {_last(loaded): output}
    for prefix, (embedding, stack) in stacks.items():
        values[f"{prefix}embedding"] = embedding["output"]
        values |= {f"{prefix}blocks.{i}": block["output"] for i, block in enumerate(stack["blocks"])}
    return values


def _last(loaded: LoadedModel) -> str:
    """Return what the output is called: an encoder without a head ends with vectors."""
    return "vectors" if isinstance(loaded.config, EncoderConfig) and loaded.config.head == "none" else "logits"


def _reference(loaded: LoadedModel, family: Family, folder: Path, tokens: Array) -> dict[str, Array]:
    """Return what the reference computes, layer by layer."""
    try:
        import torch
        import transformers
    except ImportError as error:
        fact = f"the reference to compare with needs {error.name}, which is not installed"
        raise ConfigError(fact, hint="install both: pip install torch transformers") from None
    # It would draw progress bars, and report tensors that it does not use either.
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    published = getattr(transformers, family.class_of(loaded.config))
    model = published.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    seen: dict[str, Array] = {}
    # Where the reference keeps its blocks, below its base model: what stands before their number.
    table = [(ours, str(theirs)) for ours, theirs in family.table.items() if "*" in ours]
    stacks = {ours.partition("blocks.")[0]: theirs.partition(".*")[0] for ours, theirs in table}
    for prefix, path in stacks.items():
        blocks = model.base_model.get_submodule(path)
        # What the first block reads is the embedding.
        blocks[0].register_forward_pre_hook(_keep(seen, f"{prefix}embedding"), with_kwargs=True)
        for number, block in enumerate(blocks):
            block.register_forward_hook(_keep(seen, f"{prefix}blocks.{number}"))
    ids = torch.from_numpy(np.ascontiguousarray(tokens))
    with torch.no_grad():
        output = model(input_ids=ids, decoder_input_ids=ids) if "decoder." in stacks else model(input_ids=ids)
    last = _last(loaded)
    seen[last] = (output.logits if last == "logits" else output.last_hidden_state).numpy()
    return seen


def _keep(seen: dict[str, Array], layer: str) -> Any:
    def keep(module: Any, args: Any, value: Any) -> None:
        """Keep what a block gives, or the first thing that it is given."""
        value = (args[0] if args else value["hidden_states"]) if isinstance(value, dict) else value
        seen[layer] = (value[0] if isinstance(value, tuple) else value).detach().numpy().copy()

    return keep
