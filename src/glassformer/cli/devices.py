"""The options of the engine jax: precision, devices, other processes of a run; and the engine of a resumed run."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import click

from ..dispatch import VARIABLE, engine, set_engine
from ..errors import ConfigError
from ..execution import Execution, MeshShape

mesh_option = click.option(
    "--mesh",
    metavar="AXES",
    help="Devices along each axis, such as data=2,fsdp=2,tensor=2 (with jax; default: all along data).",
)
precision_option = click.option("--precision", metavar="TYPE", help="float32, bfloat16 or float16 (with jax).")
scan_option = click.option("--scan", is_flag=True, help="Compile all blocks as one loop (with jax).")
remat_option = click.option("--remat", is_flag=True, help="Recompute blocks instead of storing records (with jax).")
rules_option = click.option(
    "--rules",
    metavar="FILE|RULES",
    help="Sharding rules that precede the table: a JSON file, or *attention.key.w=fsdp,none;… (with jax).",
)
coordinator_option = click.option(
    "--coordinator", metavar="HOST:PORT", help="Where process 0 of several listens (with jax)."
)
processes_option = click.option("--processes", type=int, help="How many processes train together.")
process_option = click.option("--process", type=int, help="The number of this process, from 0.")


def execution_of(mesh: str | None, precision: str | None, *, scan: bool, remat: bool, rules: str | None = None) -> Any:
    """Return the settings of the engine jax for a new run; None for other engines, which refuse them."""
    if engine() != "jax":
        given = {"--mesh": mesh, "--precision": precision, "--scan": scan, "--remat": remat, "--rules": rules}
        wrong = [name for name, value in given.items() if value not in (None, False)]
        if wrong:
            raise ConfigError(f"{wrong[0]} is a setting of the engine jax", hint="add --engine jax")
        return None
    import jax

    from ..mesh.rules import own_rules

    shape = MeshShape(data=jax.device_count()) if mesh is None else MeshShape.parse(mesh)
    own = () if rules is None else own_rules(rules)
    return Execution(precision=precision or "float32", mesh=shape, scan=scan, remat=remat, rules=own)


@contextlib.contextmanager
def joined(coordinator: str | None, processes: int | None, process: int | None) -> Iterator[Any]:
    """Join the other processes of a run, if there are any, and monitor them inside a `with` block."""
    from ..cluster.launch import find_cluster, start

    if engine() != "jax":
        if any(given is not None for given in (coordinator, processes, process)):
            raise ConfigError("several processes train together under JAX only", hint="add --engine jax")
        yield None
        return
    with start(find_cluster(coordinator=coordinator, processes=processes, process=process)) as watch:
        yield watch


def _go_on_with(began: str | None, asked: str | None) -> None:
    """Use the engine that a run began with, unless another is asked for; resuming refuses or records that."""
    if began is not None and asked is None and not os.environ.get(VARIABLE):
        with contextlib.suppress(ConfigError):  # it may not be available on this machine
            set_engine(began)


def use_engine_of(run: Any, asked: str | None, mesh: str | None) -> None:
    """Use the engine that a run began with; None: there is no run yet."""
    if run is None:
        return
    if not run.under_jax:
        if asked == "jax" or mesh is not None:
            raise ConfigError(f"{run.folder} was not started with the engine jax", hint="leave out --engine and --mesh")
        _go_on_with(run.provenance.engine, asked)
        return
    if asked not in (None, "jax"):
        raise ConfigError(f"{run.folder} was started with the engine jax", hint="leave out --engine")
    set_engine("jax")
