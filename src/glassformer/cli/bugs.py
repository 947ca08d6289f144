"""`glassformer bugs`: the museum of mistakes, what each does to training, and the check that catches it."""

from typing import Any

import click

from ..bugs import Exhibit, museum, right_curves
from ..bugs.training import check_seconds
from ..core.errors import ConfigError
from ..core.settings import check_known
from ..progress.display import waiting
from .commands import command
from .options import Offers, json_option
from .output import log, print_json, print_table

EFFECTS = {
    "silent": "Training looks right.",
    "worse": "Training ends worse, and looks like a poor choice of settings.",
    "stuck": "Training hardly moves.",
    "diverges": "Training diverges.",
    "too good": "The loss ends lower than it should.",
}
EXHIBIT = Offers(names=lambda: {name: one.title for name, one in museum().items()})


@command("Learn", "glassformer bugs", "glassformer bugs heads-merge")
@click.argument("name", type=EXHIBIT, required=False, help="An exhibit; without one, all are listed.")
@click.option(
    "--train", is_flag=True, help="Train with the bug here and now, with three seeds, beside training without it."
)
@json_option
def bugs(name: str | None, train: bool, json: bool) -> None:
    """Show mistakes in Transformers, what training looks like with each, and the check that catches it."""
    if name is None:
        if train:
            raise ConfigError("--train belongs to an exhibit, and none is named", hint="`glassformer bugs` lists them")
        listed(json)
        return
    check_known("the museum has no exhibit", name, museum(), listed="`glassformer bugs` lists them")
    shown(museum()[name], train=train, json=json)


def listed(json: bool) -> None:
    """Print all exhibits."""
    seconds = check_seconds()
    rows = [
        (one.name, one.kind, one.title, one.effect() or "not met", one.check, f"{seconds[one.name]:.2f} s")
        for one in museum().values()
    ]
    columns = ("name", "kind", "what is wrong", "training", "caught by", "in")
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    print_table((*columns[:-1], ">in"), rows)
    log("`glassformer bugs NAME` shows one")


def shown(exhibit: Exhibit, *, train: bool, json: bool) -> None:
    """Print one exhibit, what its check says now, and what training does."""
    finding = exhibit.run_check()
    effect = exhibit.effect()
    if train:
        if exhibit.setup == "none":
            raise ConfigError(f"training does not meet {exhibit.name}", hint="its check shows it: leave --train out")
        with waiting("training with the bug, three seeds"):
            effect = exhibit.train().effect(right_curves(exhibit.setup))
    if json:
        facts: dict[str, Any] = {one: getattr(exhibit, one) for one in ("name", "kind", "title", "story", "check")}
        facts |= {"diff": exhibit.diff(), "sources": list(exhibit.sources)}
        print_json({**facts, "evidence": finding.evidence, "caught": not finding.ok, "training": effect or None})
        return
    print(f"{exhibit.title}\n\n{exhibit.story}\n\n{exhibit.diff()}\n")
    print(EFFECTS.get(effect, "Training does not meet it."))
    print("\n".join([f"The check “{exhibit.check}” finds it: {finding.evidence}.", *exhibit.sources]))
