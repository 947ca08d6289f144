"""Weights of other people's models, by a table of names: `gf.from_arrays` shows one.

A * stands for the number of a block on both sides. Nothing is left to chance: what is missing, what is left over and
what does not fit is named.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config import TransformerConfig
from ..core.arrays import Array, Tree
from ..core.errors import WeightsError, did_you_mean, first_line, some
from ..core.tree import flatten, rebuilt
from ..models import build
from .family import Foreign, Names, general_name, numbered_name
from .state_dict import read_state_dict
from .tensors import FLOATS, PICKLES, Tensors, read_header


def params_from(
    config: TransformerConfig,
    arrays: Mapping[str, Any],
    table: Names,
    *,
    ignored: Sequence[str] = (),
    dtype: Any = np.float32,
) -> Tree:
    """Return the parameters of a model from arrays of another program.

    table     our dotted names to theirs
    ignored   patterns of names that hold nothing the model needs, such as masks: "blocks.*.attn.mask"
    """
    specs = flatten(build(config).specs())
    chosen = {ours: entry for ours in specs if (entry := _entry(table, arrays, ours)) is not None}
    _check_names(specs, chosen, arrays, table, ignored)
    leaves = {}
    for ours, foreign in chosen.items():
        shape, theirs = tuple(specs[ours].shape), arrays[foreign.name]
        array = foreign.read(theirs, shape)
        if array.shape != shape:
            was = "" if array.shape == np.shape(theirs) else f", which becomes {array.shape}"
            raise WeightsError(
                f"{foreign.name} has shape {np.shape(theirs)}{was}, but {ours} has shape {shape}",
                hint='it is transposed: use Foreign(name, "a b -> b a")'
                if array.shape == shape[::-1]
                else "say in a Foreign how its axes are to be ordered, or change the sizes in the config",
            )
        if array.dtype.kind not in "fiu":
            raise WeightsError(f"{foreign.name} holds {array.dtype}, not numbers", hint="convert it first")
        leaves[ours] = np.array(array, dtype=dtype, order="C")
    return rebuilt(build(config).specs(), leaves)


def read_arrays(path: str | Path) -> dict[str, Array]:
    """Return all arrays of floating-point numbers of a safetensors or .npz file, or of a state dict of PyTorch.

    No pickle is run: see `state_dict`.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"there is no file {path}", hint="name a .safetensors, .npz or .pt file")
    if path.suffix in PICKLES:
        return read_state_dict(path)
    if path.suffix == ".npz":
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except Exception as error:  # a damaged archive ends in nearly any of Python's errors
            fact = f"{path} cannot be read: {first_line(error)}"
            raise WeightsError(fact, hint="get it again, or write it with numpy.savez") from error
        return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
    tensors = Tensors(read_header(path))
    return {name: tensors.read(name) for name, stored in tensors.stored.items() if stored.dtype in FLOATS}


def _entry(table: Names, arrays: Mapping[str, Any], ours: str) -> Foreign | None:
    """Return where one of our parameters comes from, None where the table does not say."""
    entry = table.get(ours, table.get(general_name(ours)))
    foreign = Foreign(entry) if isinstance(entry, str) else entry
    if foreign is None:
        return None
    name, twin = (numbered_name(name, ours) for name in (foreign.name, foreign.twin))
    return replace(foreign, name=twin if name not in arrays and twin in arrays else name)


def _check_names(
    specs: Mapping[str, Any],
    chosen: Mapping[str, Foreign],
    arrays: Mapping[str, Any],
    table: Names,
    ignored: Sequence[str],
) -> None:
    known = {*specs, *map(general_name, specs)}
    used = {foreign.name for foreign in chosen.values()}
    patterns = [re.compile(".*".join(map(re.escape, pattern.split("*")))) for pattern in ignored]
    left = sorted(n for n in arrays if n not in used and not any(pattern.fullmatch(n) for pattern in patterns))
    for ours in table:
        if ours not in known:
            fact = f"the table names {ours!r}, which this model does not have"
            raise WeightsError(fact, hint=did_you_mean(ours, known))
    if specs.keys() - chosen.keys():
        raise WeightsError(
            f"the table does not say where {some(sorted(specs.keys() - chosen.keys()))} come from",
            hint="add them; what the other model does not have, the config can leave out (attention_bias=False, …)",
        )
    for ours, foreign in chosen.items():
        if foreign.name not in arrays:
            fact = f"there is no array {foreign.name!r} for {ours}"
            raise WeightsError(fact, hint=did_you_mean(foreign.name, arrays))
    if left:
        hint = "add them to the table, or name them in ignored if nothing needs them"
        raise WeightsError(f"{some(left)} would be left over", hint=hint)
