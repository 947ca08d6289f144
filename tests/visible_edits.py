"""Edit one function of a copy of the package so that it shows, and see what two engines make of it.

`look` runs in a process of its own, forked by `test_edits`, that imports nothing of Glassformer but the copy.
"""

import ast
import gc
import os
import pickle
import sys
from pathlib import Path

CHANGE = '''

def _visibly(result):
    """Make every number half as large again."""
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(_visibly, result))
    if isinstance(result, (tuple, list)):
        return type(result)(map(_visibly, result))
    if isinstance(result, dict):
        return {name: _visibly(part) for name, part in result.items()}
    is_real = type(result).__module__ == "numpy" and result.dtype.kind == "f"
    return result * result.dtype.type(1.5) if is_real else result


def _visibly_whole(result):
    """The same, for a function whose numbers are integers."""
    return result + result.dtype.type(1) if result.dtype.kind == "u" else result * 0
'''
WHOLE_NUMBERS = ("fold_key", "relative_buckets")


def functions(folder: Path) -> list[tuple[str, str]]:
    """All ops, and all methods that compute, of the files of `folder`: (file, qualified name)."""
    found = []
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and _is_dispatched(node):
                found.append((path.name, node.name))
            for method in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(method, ast.FunctionDef) and _computes(method) and not _is_abstract(node):
                    found.append((path.name, f"{node.name}.{method.name}"))
    return found


def _is_dispatched(node: ast.FunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "dispatched" for mark in node.decorator_list)


def _computes(node: ast.FunctionDef) -> bool:
    return node.name in ("forward", "backward") or (_is_dispatched(node) and node.name != "write")


def _is_abstract(node: ast.ClassDef) -> bool:
    return node.name in ("Layer", "Positions")


def edited(text: str, name: str) -> str:
    """Return a file in which whatever a function returns is visibly changed."""
    tree = ast.parse(text)
    *owner, own = name.split(".")
    body = next(node.body for node in tree.body if getattr(node, "name", None) == owner[0]) if owner else tree.body
    function = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == own)
    lines = text.split("\n")
    change = "_visibly_whole" if own in WHOLE_NUMBERS else "_visibly"
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    for node in sorted(returns, key=lambda node: -node.lineno):
        last, first = node.value.end_lineno - 1, node.value.lineno - 1
        # Columns are counted in bytes of UTF-8.
        end, start = node.value.end_col_offset, node.value.col_offset
        lines[last] = (lines[last].encode()[:end] + b"))" + lines[last].encode()[end:]).decode()
        lines[first] = (lines[first].encode()[:start] + f"{change}((".encode() + lines[first].encode()[start:]).decode()
    return "\n".join(lines) + CHANGE


def look(folder: Path, said: Path, before: dict | None) -> None:
    """Write what both engines compute with the package in `folder`; the cpu only what is not as it was `before`."""
    gc.freeze()  # what was imported before the fork stays to the end: nobody need look through it
    os.environ.pop("GLASSFORMER_ENGINE", None)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    import glassformer

    assert folder in Path(glassformer.__file__).parents
    found = {}
    with glassformer.use_engine("numpy"):
        found["numpy"] = {name: compute() for name, compute in panel().items()}
    shown = [name for name, have in found["numpy"].items() if before is None or differ(have, before[name])]
    with glassformer.use_engine("cpu"):
        found["cpu"] = {name: compute() for name, compute in panel().items() if name in shown}
    said.write_bytes(pickle.dumps(found))


def differ(have, want) -> bool:
    """Tell whether numbers are visibly others."""
    return have.shape != want.shape or bool(abs(have - want).max(initial=0) > 1e-3 * max(1, abs(want).max(initial=0)))


def panel():
    """Computations that use every op and every layer, by name: each gives one vector."""
    import numpy as np

    import glassformer as gf
    from glassformer import ops
    from glassformer.core import tree
    from glassformer.generation.storage import stored
    from glassformer.training import clip, make_optimizer

    sizes = {"vocab": 11, "width": 8, "heads": 2, "layers": 2, "context": 8, "feed_forward": 12}
    rng = np.random.default_rng(0)
    tokens, targets = rng.integers(0, 11, (2, 2, 6))
    key = ops.new_key(3)

    def flat(result):
        leaves = tree.flatten(result)
        return np.concatenate([np.ravel(np.asarray(leaves[name], np.float64)) for name in sorted(leaves)])

    def learned(config, batch, key=None, **how):
        model = gf.build(config, **how)
        params = tree.tree_map(lambda p: p + np.float32(0.3) * _bumps(p.shape), model.init(0))
        return lambda: flat(model.loss_and_grads(params, batch, key=key))

    def written(weights):
        llama = {"activation": "silu", "gated": True, "norm": "rms", "positions": "rotary"}
        # A last norm would hide that what it reads is larger.
        config = gf.DecoderConfig(**{**sizes, "width": 32}, **llama, final_norm=False)
        model = gf.build(config)
        params = stored(tree.tree_map(lambda p: p + np.float32(0.3) * _bumps(p.shape), model.init(0)), weights)

        def logits():
            cache = model.new_cache()
            read = [model.read(params, tokens[:1, :3], cache)]
            read += [model.read(params, tokens[:1, place : place + 1], cache) for place in (3, 4)]
            return flat(read)

        return logits

    def moved(name):
        def step():
            optimizer = make_optimizer(name, weight_decay=0.1)
            params = {"w": _bumps((3, 4)), "b": _bumps((4,))}
            grads, _ = clip({"w": 3 * _bumps((3, 4)), "b": _bumps((4,))}, 1.0)
            params, state = optimizer.update(params, grads, optimizer.init(params), lr=0.1)
            return flat((params, state))

        return step

    def _bumps(shape):
        return np.cos(1 + np.arange(int(np.prod(shape)))).reshape(shape).astype(np.float32)

    decoder, batch = gf.DecoderConfig, gf.Batch(tokens, targets)
    labels, source = gf.Batch(tokens, np.array([0, 2])), gf.Batch(tokens, targets, source=tokens[:, :4])
    seq2seq = gf.EncoderDecoderConfig(**sizes, positions="sinusoidal", activation="relu")
    return {
        "decoder": learned(decoder(**sizes), batch),
        "llama": learned(
            decoder(**sizes, norm="rms", activation="silu", gated=True, positions="rotary", kv_heads=1), batch
        ),
        "post-norm": learned(decoder(**sizes, norm_position="post", positions="alibi", dropout=0.2), batch, key),
        "tiles": learned(decoder(**sizes, positions="relative", activation="gelu_tanh"), batch, attention_tile=2),
        "parallel": learned(decoder(**sizes, block="parallel", norm="none"), batch),
        "feed-forward only": learned(decoder(**sizes, block="feed_forward_only"), batch),
        "no residual": learned(decoder(**sizes, block="no_residual"), batch),
        "classes": learned(gf.EncoderConfig(**sizes, classes=3), labels),
        "a vector before": learned(gf.EncoderConfig(**sizes, classes=3, pooling="cls"), labels),
        "seq2seq": learned(seq2seq, source),
        "written": written("float32"),
        "written from blocks": written("int8"),
        "log-softmax": lambda: flat(ops.log_softmax(_bumps((2, 5)))),
        "log-softmax, back": lambda: flat(ops.log_softmax_backward(_bumps((2, 5)), ops.log_softmax(_bumps((2, 5)))[1])),
        **{f"step of {name}": moved(name) for name in ("adamw", "lion")},
    }
