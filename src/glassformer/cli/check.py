"""`glassformer check`: prove every gradient on this machine."""

import click
from rich.text import Text

from ..core import dispatch
from ..progress.display import waiting
from ..proofs import prove_all
from .commands import command
from .options import engine_option, json_option
from .output import log, print_json, print_table


@command("Learn", "glassformer check")
@engine_option
@json_option
def check(engine: str | None, json: bool) -> None:
    """Prove every hand-derived gradient against a numeric derivative on this machine."""
    more = "; JAX compiles each, which takes minutes" if dispatch.engine() == "jax" else ""
    with waiting(f"proving gradients{more}") as show:
        checks = prove_all(lambda done, total: show(done, total, "cases"))
    ok = all(row.ok for row in checks)
    if json:
        print_json({"ok": ok, "checks": [row.as_dict() for row in checks]})
    else:
        verdicts = {True: Text("exact", style="green"), False: Text("WRONG", style="bold red")}
        rows = [(row.kind, row.name, f"{row.error:.1e}", f"{row.limit:.0e}", verdicts[row.ok]) for row in checks]
        print_table(("kind", "gradient of", ">error", ">limit", "verdict"), rows, title="Exact gradients (float64)")
        wrong = [row.name for row in checks if not row.ok]
        for row in checks:
            if row.reason:
                log(f"{row.name}: {row.reason}")
        log(f"{len(checks) - len(wrong)} of {len(checks)} gradients are exact.")
        if wrong:
            log(f"{len(wrong)} are wrong: {', '.join(wrong)}")
    if not ok:
        raise click.exceptions.Exit(1)
