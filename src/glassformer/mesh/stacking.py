"""Two layouts of a model's blocks: a list of them, or one whose arrays have the layers as their first axis.

    blocks.0.attention.query.w (D, H·C), blocks.1.attention.query.w, …   the list, as models and checkpoints have it
    blocks.attention.query.w (L, D, H·C)                                 stacked, as one compiled loop reads it

Both functions change every list of blocks in a tree, wherever it stands: parameters of all architectures, and what
optimizers and averages keep of them.
"""

from typing import Any

from ..arrays import Tree, namespace
from ..errors import ShapeError
from ..tree import flatten, tree_map

BLOCKS = "blocks"


def stack_blocks(tree: Tree) -> Tree:
    """Return the tree with every list of blocks as one block of stacked arrays; what is stacked already stays."""
    return _changed(tree, list, _stacked)


def unstack_blocks(tree: Tree) -> Tree:
    """Return the tree with every stacked block as a list of blocks; what is a list already stays."""
    return _changed(tree, dict, _unstacked)


def names_in_list(name: str, layers: int) -> list[str]:
    """Return the names, in a list of blocks, of what one stacked array holds.

    "blocks.attention.query.w" → "blocks.0.attention.query.w", "blocks.1.attention.query.w", …
    """
    steps = name.split(".")
    place = steps.index(BLOCKS) + 1
    return [".".join([*steps[:place], str(layer), *steps[place:]]) for layer in range(layers)]


def _changed(tree: Tree, container: type, change: Any) -> Tree:
    if isinstance(tree, dict):
        return {
            name: change(part) if name == BLOCKS and isinstance(part, container) else _changed(part, container, change)
            for name, part in tree.items()
        }
    return tree


def _stacked(blocks: list[Tree]) -> Tree:
    first = _shapes(blocks[0]) if blocks else {}
    for number, block in enumerate(blocks):
        shapes = _shapes(block)
        for name in sorted(first.keys() | shapes.keys()):
            if first.get(name) != shapes.get(name):
                here, there = (s.get(name, "missing") for s in (first, shapes))
                raise ShapeError(
                    f"blocks cannot be stacked: {name} is {here} in block 0 and {there} in block {number}",
                    hint="only blocks of the same kind can; keep them as a list",
                )
    return tree_map(lambda *arrays: namespace(arrays[0]).stack(arrays), *blocks) if blocks else []


def _unstacked(block: Tree) -> Tree:
    if block and all(name.isdigit() for name in block):
        return block  # some blocks of a list, such as those with adapters
    lengths = {name: array.shape[0] if array.shape else 0 for name, array in flatten(block).items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(
            f"the arrays of stacked blocks differ in their number of layers: {lengths}",
            hint="the first axis of every array must be the layers",
        )
    layers = next(iter(lengths.values()), 0)
    return [tree_map(lambda array, at=layer: array[at], block) for layer in range(layers)]


def _shapes(block: Tree) -> dict[str, tuple[Any, ...]]:
    return {name: (*array.shape, str(array.dtype)) for name, array in flatten(block).items()}
