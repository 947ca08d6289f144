"""What the methods of layers compute by themselves, between the ops and layers that they call.

Each row is a method; it is given the call and the calls that were made in it, and returns the steps that its own lines
are. A method that is not here, as that of a block of one's own, has lines that nobody here knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..models import Encoder
from .step import Step
from .watching import Call

X = 2
"""Where x stands among the arguments of a layer's forward: behind the layer and its parameters."""

Glue = Callable[[Call, list[Call]], Iterator[Step]]


def _attention(call: Call, inner: list[Call]) -> Iterator[Step]:
    """Heads are split for attention, or for the rotation before it, and put side by side for the last matrix."""
    matrices = [one for one in inner if one.name == "Linear.forward"]
    turned = [one.arguments[0] for one in inner if one.name == "rotary"]
    attend = next((one for one in inner if one.name == "attention"), None)
    if attend is None or len(matrices) != 4:
        return
    q, k, v = attend.arguments[:3]
    targets = (*turned, v) if turned else (q, k, v)
    for matrix, target in zip(matrices, targets, strict=False):
        yield Step("split", call, target, {"x": matrix.outputs[0]})
    yield Step("merge", call, matrices[-1].arguments[X], {"x": attend.outputs[0]})


def _residual(call: Call, inner: list[Call]) -> Iterator[Step]:
    """y = x + h, before the norm with post-norm."""
    post = call.arguments[0].norm_position == "post"
    y = inner[-1].arguments[X] if post else call.outputs[0]
    h = inner[-2 if post else -1].outputs[0]
    yield Step("sum", call, y, {"x": call.arguments[X], "h": h})


def _parallel(call: Call, inner: list[Call]) -> Iterator[Step]:
    """y = x + Σ h, over the sublayers."""
    terms = {"x": call.arguments[X]}
    names = [residual.name for residual in call.arguments[0].residuals]
    methods = [one for one in inner if one.is_method]
    for name, sublayer in zip(names, methods[1::2], strict=False):  # each has its norm before it
        after = inner[inner.index(sublayer) + 1 :]
        dropped = next((one for one in after if one.name == "dropout"), None)
        own = dropped is not None and dropped.arguments[0] is sublayer.outputs[0]
        terms[name] = dropped.outputs[0] if dropped is not None and own else sublayer.outputs[0]
    yield Step("sum", call, call.outputs[0], terms)


def _input_embedding(call: Call, inner: list[Call]) -> Iterator[Step]:
    """x = tokens + positions + segments, as far as there are such."""
    layer = call.arguments[0]
    tables = iter([one for one in inner if one.name == "Embedding.forward"])
    terms = {"tokens": next(tables).outputs[0]}
    if layer.positions == "learned":
        terms["positions"] = next(tables).outputs[0]
    elif layer.positions == "sinusoidal":
        terms["sinusoids"] = next(one for one in inner if one.name == "InputEmbedding.sinusoids").outputs[0]
    if layer.segments:
        terms["segments"] = next(tables).outputs[0]
    rest = inner[-1]
    y = call.outputs[0]
    if layer.norm is not None:
        norms = [one for one in inner if one.arguments and one.arguments[0] is layer.norm]
        y = norms[-1].arguments[X] if norms else None
    elif rest.name == "dropout":
        y = rest.arguments[0]
    if len(terms) > 1 and y is not None:
        yield Step("sum", call, y, terms)


def _token_head(call: Call, inner: list[Call]) -> Iterator[Step]:
    """h = act(x linear) where the activation is no op, and h · scale."""
    layer, logits = call.arguments[0], inner[-1]
    x = call.arguments[X]
    if layer.transform is not None:
        yield from _own_activation(call, inner, layer.activation)
        x = inner[-2].outputs[0]
    if layer.scale != 1:
        yield Step("scale", call, logits.arguments[0], {"x": x}, {"scale": layer.scale})


def _feed_forward(call: Call, inner: list[Call]) -> Iterator[Step]:
    """h = act(up), where the activation is no op."""
    if not call.arguments[0].gated:
        yield from _own_activation(call, inner, call.arguments[0].activation)


def _own_activation(call: Call, inner: list[Call], activation: str) -> Iterator[Step]:
    first, second = inner[:2]
    if second.is_method:
        yield Step("activation", call, second.arguments[X], {"x": first.outputs[0]}, {"activation": activation})


def _copied(call: Call, inner: list[Call]) -> Iterator[Step]:
    """y = x."""
    yield Step("copy", call, call.outputs[0], {"x": call.arguments[X]})


def _encoder(call: Call, inner: list[Call]) -> Iterator[Step]:
    """x = concat(cls, embedded), and the first vector as the one of the sequence."""
    config, params = call.arguments[0].config, call.arguments[1]
    by_name = {one.name: one for one in inner}
    stack = by_name["Stack.forward"]
    if config.pooling == "cls":
        read = {"cls": params["cls"], "x": by_name["InputEmbedding.forward"].outputs[0]}
        yield Step("prepend", call, stack.arguments[X], read, written=Encoder._encode)
    if config.head == "classes" and config.pooling != "mean":
        yield Step("first", call, by_name["Linear.forward"].arguments[X], {"x": stack.outputs[0]})


def _nothing(call: Call, inner: list[Call]) -> Iterator[Step]:
    """All lines hand on what others computed."""
    return iter(())


GLUE: dict[str, Glue] = {
    "Attention.forward": _attention,
    "Residual.forward": _residual,
    "Parallel.forward": _parallel,
    "InputEmbedding.forward": _input_embedding,
    "TokenHead.forward": _token_head,
    "FeedForward.forward": _feed_forward,
    "NoNorm.forward": _copied,
    "Encoder.forward": _encoder,
    **dict.fromkeys(
        (
            "Linear.forward", "LayerNorm.forward", "RMSNorm.forward", "Embedding.forward", "Block.forward",
            "Stack.forward", "Stack.run_blocks", "Stack.run_block", "Positions.forward", "AlibiPositions.forward",
            "RelativePositions.forward", "Decoder.forward", "EncoderDecoder.forward",
        ),
        _nothing,
    ),
}  # fmt: skip
