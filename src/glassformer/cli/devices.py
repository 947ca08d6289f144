"""The options of the engine jax: precision, devices, other processes of a run; and the engine of a resumed run."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..core.dispatch import VARIABLE, engine, set_engine
from ..core.errors import ConfigError
from ..core.execution import Execution, MeshShape
from .options import bundle
from .output import log

rules_option = click.option(
    "--rules",
    metavar="FILE|RULES",
    help="Sharding rules that precede the table: a JSON file, or *attention.key.w=fsdp,none;… (with jax).",
)
jax_options = bundle(
    (
        click.option(
            "--mesh",
            metavar="AXES",
            help="Devices along each axis: for example data=2,fsdp=2,tensor=2 (with jax; default: all along data).",
        ),
        click.option(
            "--precision", metavar="TYPE", help="Type of activations: float32, bfloat16 or float16 (with jax)."
        ),
        click.option("--scan", is_flag=True, help="Compile all blocks as one loop (with jax)."),
        click.option(
            "--remat", is_flag=True, help="Store only the inputs of blocks and recompute the rest (with jax)."
        ),
        rules_option,
        click.option("--coordinator", metavar="HOST:PORT", help="Where process 0 of several listens (with jax)."),
        click.option("--processes", type=int, help="How many processes train together."),
        click.option("--process", type=int, help="The number of this process, from 0."),
    )
)
CLUSTER = ("coordinator", "processes", "process")
JAX = ("mesh", "precision", "scan", "remat", "rules", *CLUSTER)
"""The names of the options of the engine jax."""


def execution_of(given: dict[str, Any]) -> Any:
    """Return the settings of the engine jax for a new run; None for other engines, which refuse them."""
    chosen = {name: value for name, value in given.items() if value not in (None, False) and name not in CLUSTER}
    if engine() != "jax":
        if chosen:
            raise ConfigError(f"--{next(iter(chosen))} is a setting of the engine jax", hint="add --engine jax")
        return None
    import jax

    from ..engines.mesh.rules import own_rules

    mesh, rules = chosen.pop("mesh", None), chosen.pop("rules", None)
    shape = MeshShape(data=jax.device_count()) if mesh is None else MeshShape.parse(mesh)
    return Execution(mesh=shape, rules=() if rules is None else own_rules(rules), **chosen)


@contextlib.contextmanager
def joined(given: dict[str, Any], folder: Path) -> Iterator[Any]:
    """Join the other processes of a run, if there are any, inside a `with` block.

    The block runs in a child of this process, which ends with the child's exit code. Beside `folder`, that of the run,
    the workers keep their files.
    """
    from ..engines.cluster.launch import PARENT, find_cluster, start

    cluster = {name: given[name] for name in CLUSTER}
    if engine() != "jax":
        if any(value is not None for value in cluster.values()):
            raise ConfigError("several processes train together under JAX only", hint="add --engine jax")
        yield None
        return
    found = find_cluster(**cluster)
    if found is not None and PARENT not in os.environ and os.name == "posix":
        from ..engines.cluster.supervise import supervise

        if os.environ.get("GLASSFORMER_SECRET") or os.environ.get("GLASSFORMER_SECRET_FILE"):
            log("GLASSFORMER_SECRET protects nothing any more: JAX's ports ask for no password; see SECURITY.md")
        command = [sys.executable, *sys.orig_argv[1:]]
        raise click.exceptions.Exit(supervise(command, found, folder.with_name(f"{folder.name}.workers")))
    with start(found) as workers:
        yield workers


def use_engine_of(run: Any, asked: str | None, mesh: str | None) -> None:
    """Use the engine that a run began with, unless another is asked for; None: there is no run yet."""
    if run is None:
        return
    if run.under_jax:
        if asked not in (None, "jax"):
            raise ConfigError(f"{run.folder} was started with the engine jax", hint="leave out --engine")
        set_engine("jax")
        return
    if asked == "jax" or mesh is not None:
        raise ConfigError(f"{run.folder} was not started with the engine jax", hint="leave out --engine and --mesh")
    if asked is None and not os.environ.get(VARIABLE):
        with contextlib.suppress(ConfigError):  # it may not be available on this machine
            set_engine(run.provenance.engine)
