"""`glassformer check`: prove every gradient on this machine."""

import typer

from .. import dispatch
from ..proofs import prove_all
from .devices import EngineOption
from .display import SOON, waiting
from .output import JsonOption, console, print_json, table


def check(engine: EngineOption = None, json: JsonOption = False) -> None:
    """Prove every hand-derived gradient against a numeric derivative, here and now."""
    more = "; JAX compiles each, which takes minutes" if dispatch.engine() == "jax" else ""
    with waiting(f"proving every gradient on this machine{more}", quiet=json, delay=SOON):
        checks = prove_all()
    ok = all(row.ok for row in checks)
    if json:
        print_json({"ok": ok, "checks": [row.as_dict() for row in checks]})
    else:
        verdicts = {True: "[green]exact[/green]", False: "[bold red]WRONG[/bold red]"}
        rows = [(row.kind, row.name, f"{row.error:.1e}", f"{row.limit:.0e}", verdicts[row.ok]) for row in checks]
        columns = ("kind", "gradient of", ">error", ">limit", "verdict")
        out = console()
        out.print(table(*columns, rows=rows, title="Exact gradients (float64)"))
        wrong = [row.name for row in checks if not row.ok]
        for row in checks:
            if row.reason:
                out.print(f"{row.name}: {row.reason}", markup=False)
        out.print(f"{len(checks) - len(wrong)} of {len(checks)} gradients are exact.")
        if wrong:
            out.print(f"{len(wrong)} are wrong: {', '.join(wrong)}")
    if not ok:
        raise typer.Exit(1)
