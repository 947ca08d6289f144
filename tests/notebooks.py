"""Notebooks without Jupyter: their cells, what cells show, and a file with these outputs.

OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python tests/notebooks.py examples/experiments.ipynb

writes what its cells show into it, computed with one thread as in the tests.
"""

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path


def read(path):
    """The notebook as the data that its file holds."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def code(notebook):
    """The cells of a notebook that hold code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def lines(source):
    """The lines of code: neither blank nor a comment."""
    return [line for line in source.splitlines() if line.strip() and not line.strip().startswith("#")]


def execute(source, namespace, name="cell"):
    """Run a cell; return its outputs as Jupyter stores them: what it printed, and its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, name, "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    printed = {"output_type": "stream", "name": "stdout", "text": out.getvalue().splitlines(keepends=True)}
    outputs = [printed] if out.getvalue() else []
    if value is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": _shown(value)})
    return outputs


def _shown(value):
    """The forms in which a value shows itself."""
    if hasattr(value, "_repr_png_"):
        return {"image/png": base64.b64encode(value._repr_png_()).decode(), "text/plain": ["a figure"]}
    html = {"text/html": value._repr_html_().splitlines(keepends=True)} if hasattr(value, "_repr_html_") else {}
    return {**html, "text/plain": repr(value).splitlines(keepends=True)}


def texts(outputs):
    """What outputs say as plain text; a figure is only said to be one."""
    found = [one["text"] if one["output_type"] == "stream" else one["data"]["text/plain"] for one in outputs]
    return ["".join(text) for text in found]


def refresh(path):
    """Run a notebook in its folder, and keep what its cells show."""
    notebook, namespace = read(path), {}
    sys.path.insert(0, str(Path(path).resolve().parent))
    for number, cell in enumerate(code(notebook)):
        cell["outputs"] = execute("".join(cell["source"]), namespace, f"cell {number}")
        sys.stderr.write("\n".join(["", f"[{number}]", *texts(cell["outputs"]), ""]))
        text = json.dumps(notebook, ensure_ascii=False, indent=1)
        Path(path).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    refresh(sys.argv[1])
