"""The page about JAX: its blocks run as printed, one after the other, and print what stands below them."""

import re
from pathlib import Path

import numpy as np

from glassformer import hvp, per_example_gradients
from glassformer.core.tree import flatten

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "guides" / "jax.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\nprints `([^`]*)`", PAGE, flags=re.DOTALL)


def test_the_blocks_print_what_the_page_says(jax, capsys):
    namespace: dict = {}
    for code, printed in BLOCKS:
        exec(compile(code, "docs/guides/jax.md", "exec"), namespace)
        assert " ".join(capsys.readouterr().out.split()) == printed
    assert len(BLOCKS) == PAGE.count("```python")
    model, host, batch, ours = (namespace[name] for name in ("model", "host", "batch", "by_numpy"))
    pairs = [
        (namespace["grads"], ours),
        (namespace["by_example"], per_example_gradients(model, host, batch).grads),
        (namespace["along"], hvp(model, host, batch, ours)),
    ]
    for found, expected in pairs:
        for name, x in flatten(expected).items():
            np.testing.assert_allclose(flatten(found)[name], x, rtol=0, atol=1e-12, err_msg=name)
