"""The option `--engine`: who executes the mathematics."""

from __future__ import annotations

from typing import Annotated

import typer

from ..dispatch import set_engine


def _choose(name: str | None) -> str | None:
    if name is not None:
        set_engine(name)
    return name


EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        callback=_choose,
        help="Who computes: cpu (compiled kernels, the default), numpy (every op as its source reads) or jax.",
    ),
]
