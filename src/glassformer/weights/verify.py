"""Is it the same model? Every layer beside the reference implementation, `transformers`."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..config import EncoderConfig, EncoderDecoderConfig
from ..errors import ConfigError, WeightsError
from ..text import PublishedTokenizer
from ..trained_model import TrainedModel
from .export import export_folder, family_for, with_config
from .family import Family

LIMIT = 1e-4
"""The largest difference that passes, as a share of the largest number of the layer."""
TEXT = "The quick brown fox jumps over the lazy dog, and then it rests for a while."
MOST_TOKENS = 32


@dataclass(frozen=True)
class Row:
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
    """What every layer made of the same tokens, from the embedding to the output."""

    tokens: int
    rows: tuple[Row, ...]

    @property
    def first_departure(self) -> str | None:
        """The first layer that departs from the reference; None if all agree."""
        return next((row.layer for row in self.rows if not row.agrees), None)


def verify(loaded: TrainedModel, folder: str | Path | None = None) -> Verification:
    """Compare a model with the reference implementation of the same weights, in float32.

    folder    where the reference reads them; without one, it reads what `export_folder` writes
    """
    family, config = family_for(loaded.config, loaded.family)
    loaded = with_config(loaded, config)
    if folder is None:
        with tempfile.TemporaryDirectory() as place:
            # The tokenizer is not what is compared, and takes long to write.
            export_folder(replace(loaded, tokenizer=None, chat_template=None), Path(place) / "model")
            return _compared(loaded, family, Path(place) / "model")
    return _compared(loaded, family, Path(folder))


def sample_tokens(loaded: TrainedModel) -> Array:
    """Return what both read, (1, T): a sentence where there is a tokenizer, else ids spread over the vocabulary."""
    length = min(MOST_TOKENS, loaded.config.context)
    if isinstance(loaded.tokenizer, PublishedTokenizer):
        ids = loaded.tokenizer.encode(TEXT, specials=isinstance(loaded.config, EncoderConfig))[:length]
        if len(ids) and int(ids.max()) < loaded.config.vocab:
            return ids[None]
    # The first ids are often padding, which the reference treats in its own way.
    first = min(4, loaded.config.vocab - 1)
    return np.random.default_rng(0).integers(first, loaded.config.vocab, (1, length))


def _compared(loaded: TrainedModel, family: Family, folder: Path) -> Verification:
    tokens = sample_tokens(loaded)
    expected = _reference(loaded, family, folder, tokens)
    found = _ours(loaded, tokens)
    rows = []
    for layer, theirs in expected.items():
        ours = np.asarray(found[layer], dtype=np.float64)
        largest = float(np.max(np.abs(theirs)))
        difference = float(np.max(np.abs(ours - theirs))) / max(largest, 1e-30)
        rows.append(Row(layer, largest, difference if np.isfinite(difference) else float("inf")))
    return Verification(tokens.shape[-1], tuple(rows))


def _ours(loaded: TrainedModel, tokens: Array) -> dict[str, Array]:
    if isinstance(loaded.config, EncoderDecoderConfig):
        logits, saved = loaded.model.forward(loaded.params, tokens, tokens)
        found = _stack_rows("encoder.", saved["source_embedding"], saved["encoder"])
        return {**found, **_stack_rows("decoder.", saved["embedding"], saved["decoder"]), "logits": logits}
    logits, saved = loaded.model.forward(loaded.params, tokens)
    return {**_stack_rows("", saved["embedding"], saved), _last(loaded): logits}


def _stack_rows(prefix: str, embedded: Tree, saved: Tree) -> dict[str, Array]:
    blocks = {f"{prefix}blocks.{i}": block["output"] for i, block in enumerate(saved["blocks"])}
    return {f"{prefix}embedding": embedded["output"], **blocks}


def _last(loaded: TrainedModel) -> str:
    """Return what the output is called: an encoder without a head ends with vectors."""
    return "vectors" if isinstance(loaded.config, EncoderConfig) and loaded.config.head == "none" else "logits"


def _reference(loaded: TrainedModel, family: Family, folder: Path, tokens: Array) -> dict[str, Array]:
    """Return what the reference computes, layer by layer."""
    torch, transformers = _libraries()
    name = family.class_of(loaded.config)
    with _quiet(transformers):
        model = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    base = model.eval().base_model
    seen: dict[str, Array] = {}
    # Where the reference keeps its blocks, below its base model: what stands before their number.
    table = [(ours, str(theirs)) for ours, theirs in family.table.items() if "*" in ours]
    stacks = {ours.partition("blocks.")[0]: theirs.partition(".*")[0] for ours, theirs in table}
    for prefix, path in stacks.items():
        blocks = base.get_submodule(path)
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
    def keep(module: Any, args: Any, found: Any) -> None:
        """Keep what a block gives, or the first thing that it is given."""
        found = (args[0] if args else found["hidden_states"]) if isinstance(found, dict) else found
        seen[layer] = (found[0] if isinstance(found, tuple) else found).detach().numpy().copy()

    return keep


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep the reference from drawing progress bars and reporting tensors that it does not use either."""
    talk = transformers.utils.logging
    before, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        talk.set_verbosity(before)
        if bars:
            talk.enable_progress_bar()


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        fact = f"the reference to compare with needs {error.name}, which is not installed"
        raise ConfigError(fact, hint="install both: pip install torch transformers") from None
    if int(transformers.__version__.split(".")[0]) < 4:
        raise WeightsError(f"transformers {transformers.__version__} is too old", hint="update it")
    return torch, transformers
