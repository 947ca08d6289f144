"""The figures behind the checker of labs: mistakes named rightly, right ways never refused, hostile files survived.

    python benchmarks/labs.py mistakes [--count 100]     planted in other right ways than our solutions
    python benchmarks/labs.py right [--shapes 500]       five right ways for each lab, float32 and float64
    python benchmarks/labs.py hostile [--count 1000]     files that misbehave or are broken

The checker changes our solutions by rules of its own; the mistakes here are planted by other rules in other formulas.
"""

import argparse
import ast
import copy
import random
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path

import numpy as np

from _lab_ways import WAYS
from glassformer.labs import check_file, get_lab, list_labs
from glassformer.labs.answers import broken, differs, reference
from glassformer.labs.diary import DIARY
from glassformer.labs.draw import Draw, Example
from glassformer.labs.sandbox import Local
from glassformer.labs.trees import results

HEAD = "import math\nimport numpy as np\n"
PRODUCT = "...ij,...jk->...ik"
REDUCED = {"sum", "mean", "max"}

# --- mistakes ---------------------------------------------------------------------------------------------------------


def is_call(node, *names):
    return isinstance(node, ast.Call) and (getattr(node.func, "attr", None) or getattr(node.func, "id", "")) in names


def plant_sign(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return node
    return None


def plant_lost_term(node):
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    return node.left if is_sum and not isinstance(node.right, ast.Constant) else None


def plant_factor(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.MatMult):
        return ast.BinOp(node, ast.Mult(), ast.Constant(3.0))
    return None


def plant_lost_factor(node):
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)
    return node.left if is_product and not isinstance(node.left, ast.Constant) else None


def axis_of(node):
    """The place of the axis of a reduction: a keyword, or x.sum(-1)."""
    for keyword in node.keywords:
        if keyword.arg == "axis" and not isinstance(keyword.value, ast.Tuple):
            return keyword, "value"
    return None


def plant_axis(node):
    if is_call(node, *REDUCED) and (place := axis_of(node)):
        value = ast.literal_eval(getattr(*place))
        setattr(*place, ast.Constant(0 if value in (-1, 2) else -1))
        return node
    if is_call(node, *REDUCED) and node.args and isinstance(node.args[0], ast.UnaryOp):
        node.args[0] = ast.Constant(-2)
        return node
    return None


def plant_all_axes(node):
    if is_call(node, "sum", "mean"):
        kept = [one for one in node.keywords if one.arg not in ("axis", "keepdims")]
        if len(kept) < len(node.keywords):
            node.keywords = kept
            return node
    return None


def plant_keepdims(node):
    if isinstance(node, ast.Call):
        kept = [one for one in node.keywords if one.arg != "keepdims"]
        if len(kept) < len(node.keywords):
            node.keywords = kept
            return node
    return None


def plant_transpose(node):
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        return node.value
    if is_call(node, "swapaxes"):
        return node.args[0] if getattr(node.func.value, "id", "") == "np" else node.func.value
    if is_call(node, "einsum") and isinstance(node.args[0], ast.Constant) and "->" in node.args[0].value:
        left, _, right = node.args[0].value.partition("->")
        if len(right) >= 2:
            node.args[0] = ast.Constant(f"{left}->{right[:-2]}{right[-1]}{right[-2]}")
            return node
    return None


def plant_mean(node):
    if is_call(node, "sum", "mean") and isinstance(node.func, ast.Attribute):
        node.func.attr = "mean" if node.func.attr == "sum" else "sum"
        return node
    return None


def plant_lost_mask(node):
    return node.args[1] if is_call(node, "where") and len(node.args) == 3 else None


def plant_border(node):
    pairs = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
    if isinstance(node, ast.Compare) and type(node.ops[0]) in pairs:
        node.ops = [pairs[type(node.ops[0])]()]
        return node
    return None


def plant_start(node):
    if is_call(node, "arange", "range") and len(node.args) == 1:
        if is_call(node, "arange"):
            return ast.BinOp(node, ast.Add(), ast.Constant(1))
        node.args.insert(0, ast.Constant(1))
        return node
    return None


def plant_single(node):
    if isinstance(node, ast.Return) and isinstance(node.value, ast.BinOp):
        node.value = ast.Call(ast.Attribute(node.value, "astype"), [ast.parse("np.float32", mode="eval").body], [])
        return node
    return None


def plant_write(node):
    if isinstance(node, ast.FunctionDef) and node.args.args[0].arg not in ("length", "queries"):  # not arrays
        node.body.insert(0, ast.parse(f"{node.args.args[0].arg}[...] *= 1.5").body[0])
        return node
    return None


RULES = {
    "wrong sign": [plant_sign],
    "missing term": [plant_lost_term],
    "wrong factor": [plant_factor, plant_lost_factor, plant_mean],
    "wrong axis": [plant_axis, plant_all_axes, plant_keepdims],
    "transposed": [plant_transpose],
    "mask": [plant_lost_mask],
    "off by one": [plant_border, plant_start],
    "wrong dtype": [plant_single],
    "wrote to input": [plant_write],
}
ALSO = {
    "mask": {"missing function"},
    "wrong axis": {"wrong shape", "not summed"},
    "off by one": {"mask"},
    "wrong factor": {"missing term", "wrong shape"},
    "transposed": {"swapped"},
}
"""Other names that are right as well: a sum over too many axes is a wrong shape, too."""


def planted(source):
    """Yield (kind, rule, source) of every mistake that a rule can plant in a function."""
    tree = ast.parse(textwrap.dedent(source))
    for kind, rules in RULES.items():
        for rule in rules:
            for at in range(len(list(ast.walk(tree)))):
                changed = copy.deepcopy(tree)
                parents = [(p, f, i) for p in ast.walk(changed) for f, i in fields(p)]
                node = list(ast.walk(changed))[at]
                new = rule(node)
                if new is None:
                    continue
                for parent, name, index in parents:
                    value = getattr(parent, name)
                    if (value if index is None else value[index]) is node:
                        put(parent, name, index, new)
                        break
                yield kind, rule.__name__, ast.unparse(ast.fix_missing_locations(changed))


def fields(node):
    for name, value in ast.iter_fields(node):
        yield from ((name, index) for index in range(len(value))) if isinstance(value, list) else [(name, None)]


def put(parent, name, index, new):
    if index is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[index] = new


def is_right(lab, function, shapes, dtypes=(np.float64,), seed=5):
    """Tell whether a function is right on random shapes; None if it raises there."""
    exercise = get_lab(lab).exercises[-1]
    for dtype in dtypes:
        made = [Example(exercise.example, Draw(np.random.default_rng([seed, n])), dtype) for n in range(shapes)]
        for example, outcome in zip(made, next(Local(function).run(lab, [one.args for one in made])), strict=True):
            right = reference(exercise, example.args)
            if broken(exercise, outcome, example, right):
                return False
            found = results(outcome.value, exercise.returns)
            if any(differs(exercise, name, example, found, right) for name in right):
                return False
    return True


def function_of(source, name):
    namespace = {}
    exec(HEAD + source, namespace)
    return namespace[name]


def run_mistakes(count, seed):
    rng = random.Random(seed)
    found = []
    for lab, source in WAYS:
        by_rule = {}
        for kind, rule, text in planted(source):
            by_rule.setdefault(rule, []).append((lab, kind, rule, text))
        found += [rng.choice(same) for same in by_rule.values()]
    found = [one for one in found if not is_right(one[0], function_of(one[3], one[0]), 6)]
    rng.shuffle(found)
    found = found[:count]
    named, times, by_kind = 0, [], Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.py"
        for lab, kind, rule, text in found:
            path.write_text(HEAD + text)
            begin = time.perf_counter()
            verdict = check_file(path, lab)
            times.append(time.perf_counter() - begin)
            assert not verdict.ok, text
            is_named = verdict.kind in {kind} | ALSO.get(kind, set())
            named += is_named
            by_kind[kind, is_named] += 1
            if not is_named:
                print(f"--- {lab}: {rule} ({kind}) was called {verdict.kind!r}\n{text}\n{verdict!r}\n")
    for kind in RULES:
        print(f"{kind:16}{by_kind[kind, True]:4} of {by_kind[kind, True] + by_kind[kind, False]}")
    print(f"named rightly: {named} of {len(found)} ({100 * named / max(1, len(found)):.0f} %)")
    print(f"seconds for a check: median {np.median(times):.2f}, largest {max(times):.2f}")


# --- right ways -------------------------------------------------------------------------------------------------------


class Rewritten(ast.NodeTransformer):
    """Write a formula in another way that means the same."""

    def __init__(self, way):
        self.way = way

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if self.way == "commuted" and isinstance(node.op, ast.Mult):
            return ast.BinOp(node.right, node.op, node.left)
        if self.way == "negated" and isinstance(node.op, ast.Sub):
            return ast.BinOp(node.left, ast.Add(), ast.BinOp(ast.Constant(-1), ast.Mult(), node.right))
        if self.way == "einsum" and isinstance(node.op, ast.MatMult):
            return ast.Call(
                ast.parse("np.einsum", mode="eval").body, [ast.Constant(PRODUCT), node.left, node.right], []
            )
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        if self.way == "methods" and is_call(node, "sum", "mean", "max") and getattr(node.func.value, "id", "") == "np":
            return ast.Call(ast.Attribute(node.args[0], node.func.attr), node.args[1:], node.keywords)
        return node


def rewritten(lab):
    """Return our solution in four other ways that follow from rules."""
    source = get_lab(lab).exercises[-1].context
    return [ast.unparse(ast.fix_missing_locations(Rewritten(way).visit(ast.parse(source)))) for way in REWRITES]


REWRITES = ("commuted", "negated", "einsum", "methods")


def run_right(shapes):
    ways = [(lab, textwrap.dedent(text)) for lab, text in WAYS]
    for lab in list_labs():
        ways += [(lab.name, lab.exercises[-1].context), *((lab.name, text) for text in rewritten(lab.name))]
    alarms = 0
    for lab, text in ways:
        if not is_right(lab, function_of(text, lab), shapes, (np.float64, np.float32)):
            alarms += 1
            print(f"--- {lab} is called wrong:\n{text}\n")
    each = Counter(lab for lab, _ in ways)
    print(f"{len(ways)} right ways of {len(each)} labs (at least {min(each.values())} each), {shapes} random shapes in "
          f"float64 and float32: {alarms} called wrong")  # fmt: skip


# --- hostile files ----------------------------------------------------------------------------------------------------

ACTS = [
    "while True: pass", "import os; os._exit(7)", "import sys; sys.exit('bye')", "raise KeyboardInterrupt", "1 / 0",
    "import os; os.abort()", "return 'a' * (1 << 33)", "return np.ones((1 << 20, 1 << 20))", "import os; os.fork()",
    "import os; os.system('touch {out}')", "import subprocess; subprocess.run(['touch', '{out}'])",
    "open('{out}', 'w').write('x')", "import os; os.kill(os.getppid(), 9)", "import os; os.closerange(0, 99)",
    "import os; [os.write(f, b'x' * 400) for f in range(3, 9) if os.isatty(f) or True]", "import ctypes",
    "import socket; socket.socket()", "import not_there", "print('x' * 10**7); return 1", "return [[1, 2], [3]]",
    "return object()", "return lambda: 1", "return np.array(['a'])", "import gc; gc.get_objects()",
    "import os; os.rename('{home}', '{out}')", "import os; os.remove('{home}')",
    "import shutil; shutil.rmtree('{folder}')",
    "import threading; threading.Thread(target=lambda: 1 / 0).start()", "def f(): return f()\n    f()",
    "import sys; sys.modules['__main__'].pack = None", "import builtins; builtins.isinstance = None", "return -np.inf",
    "np.save('{out}', np.ones(3))", "import os; os.symlink('{folder}', 'in'); open('in/x', 'w')",
    "x = []\n    while True: x.append(bytes(10**7))", "import signal; signal.alarm(1); import time; time.sleep(9)",
    "open('big', 'wb').write(bytes(1 << 23))", "import os; os.setpgid(0, 0); os.execv('/bin/true', ['true'])",
]  # fmt: skip


def hostile(rng, folder, number):
    """Return the text of a file that misbehaves, or of one that is broken."""
    lab = rng.choice(list_labs())
    name = lab.exercises[-1].name
    act = rng.choice(ACTS)
    for mark, path in (("out", folder / "out"), ("home", folder / "keep"), ("folder", folder)):
        act = act.replace(f"{{{mark}}}", str(path))
    kind = number % 4
    if kind == 0:
        return lab, f"import numpy as np\ndef {name}(*args):\n    {act}\n"
    if kind == 1:
        lines = act.replace("return ", "x = ").replace("\n    ", "\n")
        return lab, f"import numpy as np\n{lines}\ndef {name}(*args): return 1\n"
    text = lab.solution
    if kind == 2:  # a piece is missing
        at = rng.randrange(len(text))
        return lab, text[:at] + text[at + rng.randrange(1, 200) :]
    letters = list(text)
    for _ in range(rng.randrange(1, 30)):
        letters[rng.randrange(len(letters))] = chr(rng.choice([rng.randrange(32, 127), rng.randrange(0, 0x3000)]))
    return lab, "".join(letters)


def run_hostile(begin, count):
    kinds, right = Counter(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for number in range(begin, begin + count):
            lab, text = hostile(random.Random(1000 + number), folder, number)
            path = folder / "task.py"
            path.write_text(text, encoding="utf-8", errors="replace")
            (folder / "keep").write_text("kept")
            verdict = check_file(path, lab.name, seconds=3)
            kinds[verdict.kind] += 1
            right += verdict.ok
            assert verdict.ok or verdict.findings or verdict.example or verdict.derivation, text
            assert {*os_names(folder)} <= {"keep", "task.py", DIARY}, f"{text}\nleft {os_names(folder)}"
            assert (folder / "keep").read_text() == "kept"
            assert path.read_bytes() == text.encode("utf-8", "replace"), text
    print(
        f"{count} hostile or broken files, a message each; {right} were right after all (what is missing was a comment)"
    )
    print(", ".join(f"{kind} {times}" for kind, times in kinds.most_common()))


def os_names(folder):
    return [path.name for path in folder.iterdir()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["mistakes", "right", "hostile"])
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--begin", type=int, default=0, help="the number of the first hostile file, to run a portion")
    parser.add_argument("--shapes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=35)
    given = parser.parse_args()
    if given.part == "mistakes":
        run_mistakes(given.count or 100, given.seed)
    elif given.part == "right":
        run_right(given.shapes)
    else:
        run_hostile(given.begin, given.count or 1000)


if __name__ == "__main__":
    main()
