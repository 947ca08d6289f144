"""Every gradient is derived by hand: nothing in the package asks a library for one."""

import ast
import re
from pathlib import Path

import glassformer

PACKAGE = Path(glassformer.__file__).parent

AUTOGRAD = {
    *("grad", "value_and_grad", "vjp", "jvp", "linearize", "linear_transpose", "jacfwd", "jacrev", "hessian"),
    *("custom_vjp", "custom_jvp", "custom_gradient", "saved_tensors"),
}
"""Names in JAX and PyTorch by which gradients are found, or made to be found, without us."""

OTHERS = {"autograd", "GradientTape"}
NAMED = re.compile(rf"\b({'|'.join(AUTOGRAD | OTHERS | {'loss.backward'})})\b")
"""A file in which none of these words stands need not be read further."""


def asked_for(path: Path) -> list[str]:
    """The places of a file that name autograd: as an attribute of a library, or imported from one."""
    found, text = [], path.read_text(encoding="utf-8")
    if not NAMED.search(text):
        return found
    for node in ast.walk(ast.parse(text)):
        names: set[str] = set()
        if isinstance(node, ast.Attribute):
            root = ast.unparse(node).split(".")[0]
            names = {node.attr} & (AUTOGRAD | OTHERS if root in ("jax", "torch", "lax", "nn") else OTHERS)
            if node.attr == "backward" and root == "loss":
                names = {"loss.backward"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("jax", "torch"):
            names = {alias.name for alias in node.names} & (AUTOGRAD | OTHERS)
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names if OTHERS & set(alias.name.split("."))}
        found += [f"{path}:{node.lineno} {name}" for name in sorted(names)]
    return found


def test_no_gradient_is_left_to_a_library():
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    assert [place for path in files for place in asked_for(path)] == []
