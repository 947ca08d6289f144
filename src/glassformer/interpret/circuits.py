"""The circuits of Elhage et al. 2021: attention heads, read from their weights alone.

    OV = value · output        (D, D)   a head adds x OV to the stream where it attends to x
    QK = query · keyᵀ · scale  (D, D)   it attends from x to y by the score x QK yᵀ

    circuit = head_circuit(model, "OV", layer=5, head=1)
    circuit.singular_values, circuit.tokens(model, 3)     the tokens that its strongest directions read and write
    copying_score(model, circuit)                         1: it writes what it reads
    composition(model).q[1, 4, 0, 7]                      how much head 1.4 asks with what head 0.7 wrote

In a pre-norm model the norm's scale gamma is part of the matrices that read the stream. Biases, the norm's division and
rotations by position are left out, since they depend on the input.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..config import EncoderConfig
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, LengthError
from ..core.quantized import unpacked
from ..core.settings import check_known
from ..weights.loaded_model import LoadedModel

CIRCUITS = ("OV", "QK")


@dataclass(frozen=True, eq=False)
class Circuit:
    """A matrix left · right of rank C, (D, C) · (C, D), with its singular value decomposition."""

    name: str
    left: Array
    right: Array

    @property
    def matrix(self) -> Array:
        """The product, (D, D)."""
        return self.left @ self.right

    @cached_property
    def svd(self) -> tuple[Array, Array, Array]:
        """Directions that are read (D, C), singular values (C,), and directions that are written (C, D)."""
        # A thin QR of each factor leaves a C × C matrix: the (D, D) product is never made.
        q_left, r_left = np.linalg.qr(self.left)
        q_right, r_right = np.linalg.qr(self.right.T)
        u, s, vt = np.linalg.svd(r_left @ r_right.T)
        return q_left @ u, s, vt @ q_right.T

    @property
    def singular_values(self) -> Array:
        """The factor by which each direction is stretched, (C,), the largest first."""
        return self.svd[1]

    def __repr__(self) -> str:
        values = ", ".join(f"{value:.3g}" for value in self.singular_values[:5])
        return f"<{self.name}, rank {self.left.shape[1]}: singular values {values}, …>"

    def tokens(
        self, model: LoadedModel, count: int = 5, components: int = 3
    ) -> list[tuple[float, list[str], list[str]]]:
        """Return (singular value, tokens read, tokens written) of the first components.

        Of a QK circuit these are the tokens that look and the tokens that are looked at. A direction and its opposite
        are the same component: the sign is chosen for which the tokens read stand out more.
        """
        embedding, unembedding = vocabulary(model)
        read, values, written = self.svd
        out = embedding.T if self.name.startswith("QK") else unembedding
        rows = []
        for n in range(min(components, len(values))):
            reads, writes = embedding @ read[:, n], written[n] @ out
            if reads.max() < -reads.min():
                reads, writes = -reads, -writes
            rows.append((float(values[n]), _top_tokens(model, reads, count), _top_tokens(model, writes, count)))
        return rows


class Composition(NamedTuple):
    """The strength with which heads read earlier ones, (L, H, L, H): [later, its head, earlier, its head].

    ‖A B‖ / (‖A‖ ‖B‖) of the two circuits, from 0 to 1; 0 where the first layer is not the later one.
    """

    q: Array  # through its queries
    k: Array  # through its keys
    v: Array  # through its values

    def __repr__(self) -> str:
        tops = []
        for name, scores in self._asdict().items():
            later, head, earlier, other = np.unravel_index(np.argmax(scores), scores.shape)
            tops.append(f"{name} {later}.{head} of {earlier}.{other} {scores.max():.3f}")
        return f"<composition, the strongest (layer.head): {', '.join(tops)}>"


def head_circuit(model: LoadedModel, circuit: str, *, layer: int, head: int) -> Circuit:
    """Return the OV or the QK circuit of one head of the self-attention of a decoder or an encoder."""
    check_known("there is no circuit", circuit, CIRCUITS)
    query, key, value, output = _matrices(model, layer)
    if not 0 <= head < len(query):
        raise LengthError(f"there is no head {head}", hint=f"the model has {len(query)}, from 0 to {len(query) - 1}")
    pair = (value, output) if circuit == "OV" else (query, key.swapaxes(-1, -2))
    return Circuit(f"{circuit} of head {layer}.{head}", pair[0][head], pair[1][head])


def copying_score(model: LoadedModel, circuit: Circuit) -> float:
    """Return Σ λ / Σ |λ| over the eigenvalues of embedding · OV · unembedding; 1: the head writes what it reads."""
    if not circuit.name.startswith("OV"):
        raise ConfigError(f"this is the {circuit.name}", hint='copying is about the circuit "OV"')
    embedding, unembedding = vocabulary(model)
    # The products A B and B A have the same eigenvalues other than zero, and B A is only (C, C).
    values = np.linalg.eigvals((circuit.right @ unembedding) @ (embedding @ circuit.left))
    return float(np.sum(values.real) / np.sum(np.abs(values)))


def composition(model: LoadedModel) -> Composition:
    """Return how strongly heads are composed with each other, by their weights."""
    layers = [_matrices(model, layer) for layer in range(model.config.layers)]
    heads = len(layers[0].query)
    found = Composition(*np.zeros((3, len(layers), heads, len(layers), heads)))
    thin = [own._replace(output=own.output.swapaxes(-1, -2)) for own in layers]
    roots = [_Matrices(*(np.linalg.qr(part, mode="r") for part in own)) for own in thin]
    for later, (query, key, value, _) in enumerate(layers):
        root = roots[later]
        for earlier, before in enumerate(layers[:later]):
            moves = _norm(roots[earlier].value, roots[earlier].output)  # ‖OV‖ of each head
            for scores, read, left, right in (
                (found.q, query, root.query, root.key),  # score = x QK yᵀ
                (found.k, key, root.key, root.query),
                (found.v, value, root.value, root.output),
            ):
                # ‖value · (output · read) · right‖: the outer factors may be replaced by their triangular roots.
                middle = np.einsum("hcd,gde->ghce", before.output, read)
                product = _norm(roots[earlier].value @ middle, right[:, None])
                scores[later, :, earlier] = product / (_norm(left, right)[:, None] * moves)
    return found


def vocabulary(model: LoadedModel) -> tuple[Array, Array]:
    """Return the embedding (V, D) and the unembedding (D, V) of a model, the last norm's scale in the latter."""
    params = model.params
    if isinstance(model.config, EncoderConfig) and model.config.head != "tokens":
        raise ConfigError("this encoder has no logits of tokens", hint="use a decoder, or an encoder with a token head")
    embedding = unpacked(params["embedding"]["tokens"]["table"])
    out = unpacked(params["head"]["w"]) if "w" in params.get("head", {}) else embedding.T
    return embedding, _scaled(out, params, "final_norm")


class _Matrices(NamedTuple):
    """The matrices of a layer by head: (H, D, C), and (H, C, D) of the output."""

    query: Array
    key: Array
    value: Array
    output: Array


def _matrices(model: LoadedModel, layer: int) -> _Matrices:
    blocks = model.params.get("blocks")
    if blocks is None:
        raise ConfigError("circuits are those of a decoder or an encoder", hint="this is an encoder-decoder")
    if not 0 <= layer < len(blocks):
        hint = f"the model has {len(blocks)}, from 0 to {len(blocks) - 1}"
        raise LengthError(f"there is no layer {layer}", hint=hint)
    block, heads = blocks[layer], model.config.heads
    own = block["attention"]
    pre = model.config.norm_position == "pre"
    parts = {name: np.asarray(unpacked(own[name]["w"]), np.float64) for name in _Matrices._fields}
    channels = parts["query"].shape[1] // heads
    read = []
    for name in ("query", "key", "value"):
        w = _scaled(parts[name], block, "attention_norm") if pre else parts[name]
        by_head = w.reshape(len(w), -1, channels).swapaxes(0, 1)
        read.append(np.repeat(by_head, heads // len(by_head), axis=0))  # shared keys and values serve several heads
    attention = model.model.stack.block.attention  # type: ignore[attr-defined]
    scale = channels**-0.5 if attention.scale is None else attention.scale
    return _Matrices(read[0] * scale, read[1], read[2], parts["output"].reshape(heads, channels, -1))


def _norm(left: Array, right: Array) -> Array:
    """Return ‖left · rightᵀ‖ of Frobenius, for each head."""
    return np.linalg.norm(left @ right.swapaxes(-1, -2), axis=(-2, -1))


def _scaled(w: Array, params: Tree, norm: str) -> Array:
    """Return a matrix (D, …) that reads what a norm scaled, with that scale in it."""
    gamma = params.get(norm, {}).get("gamma")
    return w if gamma is None else w * np.asarray(unpacked(gamma))[:, None]


def _top_tokens(model: LoadedModel, scores: Array, count: int) -> list[str]:
    """Return the tokens with the largest scores."""
    ids = np.argsort(-scores, kind="stable")[:count].tolist()
    return [str(token) if model.tokenizer is None else model.tokenizer.decode([token]) for token in ids]
