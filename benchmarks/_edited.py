"""Small edits of source files, and the computations by which they show, for `edits.py`."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Edit(NamedTuple):
    """One edit of a file.

    kind       what was done: constant, operator, dropped term, comparison, swapped arguments, default
    function   the qualified name of the function that it is in, "" for a line of the module or a class
    text       the file with the edit
    """

    kind: str
    line: int
    function: str
    text: str


NOT_COMPUTED = ("check_", "register_", "__repr__", "specs")
"""How functions begin that compute no numbers."""
_OTHER = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_BEYOND = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


def edits_of(text: str, count: int, seed: int) -> Iterator[Edit]:
    """Yield edits of a file in random order, first one of each function and kind."""
    tree = ast.parse(text)
    sites = [(kind, node.lineno, function, path) for kind, node, function, path in _sites(tree, "", ())]
    rng = random.Random(seed)
    rng.shuffle(sites)
    seen: dict[tuple[str, str], int] = {}

    def nth(site: tuple[Any, ...]) -> int:
        key = site[2], site[0]
        seen[key] = seen.get(key, 0) + 1
        return seen[key]

    for kind, line, function, path in sorted(sites, key=nth)[:count]:
        edited = copy.deepcopy(tree)
        _CHANGES[kind](edited, path)
        yield Edit(kind, line, function, ast.unparse(ast.fix_missing_locations(edited)) + "\n")


Path = tuple[tuple[str, int | None], ...]
"""The way to a node: names of fields, and the number in a list."""


def _sites(node: ast.AST, function: str, path: Path) -> Iterator[tuple[str, Any, str, Path]]:
    """Yield what can be edited below a node."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "exc", "msg", "bases", "type_comment"):
            continue
        for number, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST):
                continue
            own, inside = function, (*path, (field, number))
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                if child.name.startswith(NOT_COMPUTED):
                    continue
                own = f"{function}.{child.name}".lstrip(".")
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            yield from ((kind, child, own, inside) for kind in _kinds(child, field))
            yield from _sites(child, own, inside)


def _kinds(node: ast.AST, field: str) -> Iterator[str]:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "default" if field in ("defaults", "kw_defaults") else "constant"
    if isinstance(node, ast.BinOp) and type(node.op) in _OTHER:
        yield "operator"
        yield "dropped term"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _BEYOND:
        yield "comparison"
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        yield "swapped arguments"


def _at(tree: Any, path: Path) -> Any:
    for field, number in path:
        tree = getattr(tree, field) if number is None else getattr(tree, field)[number]
    return tree


def _put(tree: Any, path: Path, node: ast.AST) -> None:
    *way, (field, number) = path
    parent = _at(tree, tuple(way))
    if number is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[number] = node


def _constant(tree: Any, path: Path) -> None:
    node = _at(tree, path)
    node.value = node.value + 1 if isinstance(node.value, int) else node.value * 1.5 or 0.5


def _operator(tree: Any, path: Path) -> None:
    node = _at(tree, path)
    node.op = _OTHER[type(node.op)]()


def _comparison(tree: Any, path: Path) -> None:
    node = _at(tree, path)
    node.ops = [_BEYOND[type(node.ops[0])]()]


def _swapped(tree: Any, path: Path) -> None:
    node = _at(tree, path)
    node.args[:2] = node.args[1::-1]


_CHANGES: dict[str, Callable[[Any, Path], None]] = {
    "constant": _constant,
    "default": _constant,
    "operator": _operator,
    "dropped term": lambda tree, path: _put(tree, path, _at(tree, path).left),
    "comparison": _comparison,
    "swapped arguments": _swapped,
}


# --- in memory -------------------------------------------------------------------------------------------------------


def put_into_memory(edit: Edit, module: Any, *, in_place: bool) -> bool:
    """Make an edit of a function in a module that is imported; tell whether it can be made there.

    in_place   give the function other code; otherwise, put another function in its place
    """
    import inspect
    import types

    if not edit.function or edit.kind == "default":
        return False
    code = next(_codes(compile(edit.text, module.__file__, "exec"), edit.function), None)
    *owners, name = edit.function.split(".")
    owner = module
    for part in owners:
        owner = getattr(owner, part, None)
    found = vars(owner).get(name) if owner is not None else None
    function = inspect.unwrap(found) if callable(found) else None
    if (
        code is None
        or not isinstance(function, types.FunctionType)
        or code.co_freevars != function.__code__.co_freevars
    ):
        return False
    if in_place:
        function.__code__ = code
        return True
    if function is not found:  # a decorated one would lose its decorator
        return False
    other = types.FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    other.__kwdefaults__, other.__qualname__ = function.__kwdefaults__, function.__qualname__
    setattr(owner, name, other)
    return True


def _codes(code: Any, function: str) -> Iterator[Any]:
    for constant in code.co_consts:
        if hasattr(constant, "co_qualname"):
            if constant.co_qualname == function:
                yield constant
            yield from _codes(constant, function)


# --- what is computed ------------------------------------------------------------------------------------------------

SIZES = {"vocab": 11, "width": 16, "heads": 2, "layers": 2, "context": 12, "feed_forward": 24}


def panel(engine: str, jitter: float = 0.0) -> dict[str, Callable[[], Any]]:
    """Return computations by name, each of one vector: three steps of training, and a text written with a cache.

    jitter   moves all parameters by about such a share: how far results move shows what rounding may do to them
    """
    import numpy as np

    import glassformer as gf
    from glassformer import dispatch, ops, tree
    from glassformer.training import Recipe

    rng = np.random.default_rng(0)
    tokens, targets = rng.integers(1, 11, (2, 4, 6))
    mask = np.arange(6) < np.array([6, 4, 6, 5])[:, None]
    decoder, encoder = gf.DecoderConfig, gf.EncoderConfig
    llama = {"norm": "rms", "activation": "silu", "gated": True, "positions": "rotary", "kv_heads": 1}
    batch, masked = gf.Batch(tokens, targets), gf.Batch(tokens, targets, mask=mask)
    labels = gf.Batch(tokens, np.array([0, 2, 1, 0]), mask=mask)
    source = gf.Batch(tokens, targets, source=targets[:, :4], source_mask=mask[:, 2:])

    def start(model: Any) -> Any:
        def moved(p: Any) -> Any:
            bumps = np.cos(1 + np.arange(p.size)).reshape(p.shape)
            return ((p + 0.2 * bumps) * (1 + jitter * bumps[::-1])).astype(p.dtype)

        return tree.tree_map(moved, model.init(0))

    def flat(result: Any) -> Any:
        leaves = tree.flatten(result)
        return np.concatenate([np.ravel(np.asarray(leaves[name], np.float64)) for name in sorted(leaves)])

    def trained(config: Any, batch: Any, optimizer: str, **settings: Any) -> Callable[[], Any]:
        how = {name: settings.pop(name) for name in ("attention_tile",) if name in settings}

        def steps() -> Any:
            model = gf.build(config, **how)
            recipe = Recipe(optimizer=optimizer, steps=3, batch=4, weight_decay=None, **settings)
            trainer = dispatch.current().trainer(model, recipe)
            state = trainer.first(start(model))
            figures = []
            for number in range(3):
                now = trainer.batch(Same(batch), number)
                state, said = trainer.step(state, now, 0.05, keep=lambda *_: None)
                figures.append([float(x) for x in said][:2])
            return np.concatenate([np.ravel(figures), flat(trainer.take(state).params)])

        return steps

    def written(config: Any, *, weights: str | None = None, **settings: Any) -> Callable[[], Any]:
        def write() -> Any:
            model = gf.build(config)
            text = gf.TrainedModel(model, start(model), Ids())
            text = text.kept_as(weights) if weights else text
            text.end_ids = ()
            found = text.generate("1 2 3 4", max_new_tokens=5, log_probabilities=2, **settings)
            best = [p for _, p in sorted(found.top[-1])] if getattr(found, "top", None) else []
            return np.array([*found.ids, *np.ravel(found.log_probabilities), *best], np.float64)

        return write

    sampled = {"temperature": 0.8, "top_p": 0.9, "top_k": 8, "seed": 3}
    # A bias of keys moves nothing: Adam would divide rounding by rounding.
    free = {**SIZES, "attention_bias": False}
    gpt = decoder(**free)
    every = {
        "gpt, adamw": trained(gpt, batch, "adamw"),
        "llama, lion": trained(decoder(**SIZES, **llama), masked, "lion"),
        "post-norm, ALiBi, dropout, sgd": trained(
            decoder(**SIZES, norm_position="post", positions="alibi", dropout=0.2), batch, "sgd", momentum=0.9
        ),
        "tiles, relative, sgd": trained(
            decoder(**free, positions="relative", activation="gelu_tanh"), masked, "sgd", attention_tile=3
        ),
        "muon": trained(decoder(**{**free, "layers": 1}), batch, "muon"),
        "window, sgd": trained(
            decoder(**SIZES, window=3, stride=2, activation="relu", tied_head=False), batch, "sgd", clip=0.5
        ),
        "parallel, adam": trained(decoder(**free, block="parallel", positions="sinusoidal"), batch, "adam"),
        "classes, cls": trained(encoder(**SIZES, classes=3, pooling="cls"), labels, "sgd"),
        "classes, mean": trained(
            encoder(**free, classes=3, activation="silu", padding_id=0, segments=2), labels, "adamw"
        ),
        "pairs, smoothed": trained(
            gf.EncoderDecoderConfig(**free, positions="sinusoidal", embedding_scale=True),
            source,
            "adamw",
            label_smoothing=0.1,
        ),
        "written": written(gpt, temperature=0.0),
        "sampled": written(decoder(**SIZES, **llama), **sampled),
        "written from blocks": written(decoder(**{**SIZES, "width": 32}, **llama), weights="int8", temperature=0.0),
    }
    if engine == "jax":
        return {name: every[name] for name in every if name not in ("written from blocks", "classes, mean")}
    flats = {
        "log-softmax": lambda: flat(ops.log_softmax_backward(rows, ops.log_softmax(rows)[1])),
    }
    rows = np.cos(1.0 + np.arange(10, dtype=np.float32)).reshape(2, 5)
    return {**every, **flats}


class Same:
    """Data with one batch."""

    def __init__(self, batch: Any) -> None:
        self.all = batch

    def batch(self, step: int, size: int, seed: int, rows: Any = slice(None)) -> Any:
        return type(self.all)(*(None if part is None else part[rows] for part in self.all))


class Ids:
    """A tokenizer of texts that are ids in figures."""

    kind, size = "ids", 11

    def __init__(self) -> None:
        self.specials: dict[str, int] = {}

    def encode(self, text: str) -> Any:
        import numpy as np

        return np.array([int(word) for word in text.split()])

    def decode(self, ids: Any) -> str:
        return " ".join(str(int(i)) for i in ids)
