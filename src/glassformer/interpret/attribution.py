"""Direct attribution: a logit as a sum of what every part of the model adds to it.

The stream is the sum of the embedding and of all that sublayers wrote, and the head is linear. Only norms stand
between, and with 1/√(variance + eps) held as it was a norm is linear, too; so is an activation inside the head, x times
a gate such as Φ(x), with its gates held. So along the direct path, on which nothing that was written is read by another
sublayer,

    logit = Σ part · dpart        over embeddings, heads, feed-forward layers and biases

where dpart is the gradient of the logit with these roots and gates held and with no gradient through queries, keys,
values and hidden features. The parts sum to the logit. What a part does by way of later sublayers is left out.
With post-norm the direct path goes through every norm; of an encoder-decoder, it begins at the target's embedding.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.format import signed
from ..core.quantized import unpacked
from ..core.show import Bars, Result, Tabled
from ..core.tree import flatten
from .changes import put_gradient, stop
from .gradients import Gradients, Logit, gradients
from .names import part_name
from .run import Run
from .stream import ATTENTIONS, stacks, sublayers

ROOTS = (".rstd", ".rrms")
"""How the root of a norm is called at the end of its name: of LayerNorm, and of RMSNorm."""

BENT = (("pooled_linear", "classifier.x"), ("head.transform.linear", "head.transform.norm.x"))
"""What an activation inside a head reads, and what it returns."""

READERS = {**dict.fromkeys(ATTENTIONS, ("attend.q", "attend.k", "attend.v")), "feed_forward": ("up", "gate")}
"""What a sublayer makes of what it reads, before anything else happens to it."""


class Contribution(NamedTuple):
    """The amount that one part adds to a logit."""

    name: str  # of the value, or of the bias among the parameters
    kind: str  # embedding, head, feed_forward or bias
    layer: int | None
    head: int | None
    value: float


@dataclass(frozen=True, eq=False, repr=False)
class Attribution(Tabled):
    """A logit, or a difference of two, and the parts that sum to it; `label` is what tables call it."""

    target: Logit
    label: str
    value: float
    parts: list[Contribution]

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per part, the largest first, ready for a table or JSON."""
        return [part._asdict() for part in sorted(self.parts, key=lambda part: -abs(part.value))]

    def result(self) -> Result:
        """Return a row for each part, the largest first."""
        records, by_kind = self.rows(), self.by_kind()
        names = [part_name(part["name"], head=part["head"]) for part in records]
        rows = [
            (name, part["kind"].replace("_", "-"), signed(part["value"], 4))
            for name, part in zip(names, records, strict=True)
        ]
        kinds = "  ".join(f"{kind.replace('_', '-')} {value:+.4f}" for kind, value in by_kind.items())
        return Result(
            f"What adds to the {self.label}",
            ("part", "kind", ">adds"),
            rows,
            notes=[f"all parts sum to the logit, {self.value:.4f}: {kinds}"],
            records=records,
            facts={"logit": float(self.value), "by_kind": by_kind},
            figure=Bars(names, [part["value"] for part in records], "adds to the logit"),
        )

    def by_kind(self) -> dict[str, float]:
        """Return what all parts of each kind add together."""
        kinds = dict.fromkeys(part.kind for part in self.parts)
        return {kind: sum(part.value for part in self.parts if part.kind == kind) for kind in kinds}


def attribute(run: Run, target: Logit) -> Attribution:
    """Take a logit, or how far it is above another, apart into what every part adds to it."""
    value, grads = target.value(run), _direct_gradients(run, target)
    parts = [*_embeddings(run, grads), *_sublayers(run, grads), *_biases(run, grads)]
    total = sum(part.value for part in parts)
    # A small difference of large logits is only as exact as these are.
    size = max(float(np.abs(run.logits).max()), sum(abs(part.value) for part in parts))
    if abs(value - total) > size * np.finfo(run.logits.dtype).eps ** 0.75:
        raise ConfigError(
            f"the parts sum to {total:.6g}, the logit is {value:.6g}: something on the direct path bends it",
            hint="registered norms, blocks and positions must be linear there, with LayerNorm's or RMSNorm's root",
        )
    return Attribution(target, target.label(run), value, parts)


def neuron_attribution(run: Run, target: Logit) -> dict[str, Array]:
    """Return what each neuron adds to a logit, (F,) by the name of its feed-forward layer, all positions together."""
    grads = _direct_gradients(run, target)
    names = [one.name for one in sublayers(run, list(stacks(run))[-1], ("feed_forward",))]
    return {name: np.sum(run[f"{name}.down.x"] * grads[f"{name}.down.x"], axis=(0, 1)) for name in names}


def _direct_gradients(run: Run, target: Logit) -> Gradients:
    """Return the gradients of a logit on the direct path, stopped everywhere else."""
    inner = [f"{one.name}.{reader}" for one in sublayers(run) for reader in READERS[one.kind]]
    roots = [name for name in run if name.endswith(ROOTS)]
    held = [stop(name) for name in [*inner, *roots] if name in run]
    for x, y in BENT:
        if x in run:
            with np.errstate(divide="ignore", invalid="ignore"):
                gates = np.where(run[x] == 0, 0, run[y] / run[x])
            held.append(put_gradient(x, gates * gradients(run, target, held)[y]))
    return gradients(run, target, held)


def _embeddings(run: Run, grads: Gradients) -> list[Contribution]:
    """Return what tokens, positions and segments add, each as it enters the sum; and a learned first vector."""
    entry = "embedding.norm.x" if "embedding.norm.x" in run else "embedding"
    names = [name for name in ("tokens", "positions", "segments") if f"embedding.{name}" in run]
    found = {f"embedding.{name}": np.broadcast_to(run[f"embedding.{name}"], run[entry].shape) for name in names}
    if "positions" not in names and run.model.config.positions == "sinusoidal":
        found["embedding.positions"] = run[entry] - sum(found.values())
    adds = {name: np.sum(value * grads[entry]) for name, value in found.items()}
    if "cls" in run.params:
        adds["cls"] = np.sum(run.params["cls"] * grads.params["cls"])
    return [Contribution(name, "embedding", None, None, float(value)) for name, value in adds.items()]


def _sublayers(run: Run, grads: Gradients) -> list[Contribution]:
    """Return what heads and feed-forward layers add, their last biases left out.

    A sublayer ends with a matrix, y = h w + b, so that what it adds is h · dh and b · db.
    """
    parts = []
    for one in sublayers(run, list(stacks(run))[-1]):
        inner = f"{one.name}.output.x" if one.kind in ATTENTIONS else f"{one.name}.down.x"
        share = np.sum(run[inner] * grads[inner], axis=(0, 1))  # (H·C,) or (F,)
        if one.kind in ATTENTIONS:
            by_head = share.reshape(run.heads, -1).sum(axis=-1)
            parts += [Contribution(one.name, "head", one.layer, head, float(x)) for head, x in enumerate(by_head)]
        else:
            parts.append(Contribution(one.name, "feed_forward", one.layer, None, float(share.sum())))
    return parts


def _biases(run: Run, grads: Gradients) -> list[Contribution]:
    """Return what the biases on the direct path add: of outputs, norms and the head."""
    beside = ("encoder.", "source_embedding.") if len(stacks(run)) == 2 else ()
    pre, found = run.model.config.norm_position == "pre", []
    for name, bias in flatten(run.params).items():
        owner, _, last = name.rpartition(".")
        # A norm before a sublayer stands beside the direct path.
        beside_it = pre and ".blocks." in f".{owner}" and owner.endswith("_norm")
        inside = owner.endswith(("query", "key", "value", "up", "gate")) or beside_it
        if last in ("b", "beta") and not name.startswith(beside) and not inside:
            layer = next((int(step) for step in name.split(".") if step.isdigit()), None)
            found.append(Contribution(name, "bias", layer, None, float(np.sum(unpacked(bias) * grads.param(name)))))
    return found
