"""The names that TransformerLens gives to values, beside ours; N is the number of a block."""

import re
from collections.abc import Iterable
from typing import NamedTuple


class OurName(NamedTuple):
    """Our name of a value of TransformerLens: the first of the names that a run has, and how it differs."""

    names: tuple[str, ...]
    note: str = ""


SCALE = "1 / scale"
SIDE_BY_SIDE = "heads side by side: (B, T, H · C)"
ALL_HEADS = "for all heads: (B, T, D)"

NAMES = {
    "hook_embed": OurName(("embedding.tokens",)),
    "hook_pos_embed": OurName(("embedding.positions",), "the same for all examples: (T, D)"),
    "blocks.N.hook_resid_pre": OurName(("blocks.N-1", "embedding")),
    "blocks.N.hook_attn_in": OurName(("blocks.N.attention_norm.input",), ALL_HEADS),
    "blocks.N.hook_q_input": OurName(("blocks.N.attention.query.input",), f"after the norm, {ALL_HEADS}"),
    "blocks.N.hook_k_input": OurName(("blocks.N.attention.key.input",), f"after the norm, {ALL_HEADS}"),
    "blocks.N.hook_v_input": OurName(("blocks.N.attention.value.input",), f"after the norm, {ALL_HEADS}"),
    "blocks.N.hook_mlp_in": OurName(("blocks.N.feed_forward_norm.input",)),
    "blocks.N.ln1.hook_scale": OurName(("blocks.N.attention_norm.rstd", "blocks.N.attention_norm.rrms"), SCALE),
    "blocks.N.ln1.hook_normalized": OurName(("blocks.N.attention_norm",)),
    "blocks.N.attn.hook_q": OurName(("blocks.N.attention.query",), SIDE_BY_SIDE),
    "blocks.N.attn.hook_k": OurName(("blocks.N.attention.key",), SIDE_BY_SIDE),
    "blocks.N.attn.hook_v": OurName(("blocks.N.attention.attend.v",), "(B, H, T, C)"),
    "blocks.N.attn.hook_rot_q": OurName(("blocks.N.attention.attend.q",), "(B, H, T, C)"),
    "blocks.N.attn.hook_rot_k": OurName(("blocks.N.attention.attend.k",), "(B, H, T, C)"),
    "blocks.N.attn.hook_attn_scores": OurName(("blocks.N.attention.attend.scores",), "before the mask"),
    "blocks.N.attn.hook_pattern": OurName(("blocks.N.attention.attend.weights",)),
    "blocks.N.attn.hook_z": OurName(("blocks.N.attention.output.x",), SIDE_BY_SIDE),
    "blocks.N.attn.hook_result": OurName(
        ("blocks.N.attention.output.x",),
        '`head_results(run, "blocks.N.attention")` is what each head adds: (B, H, T, D)',
    ),
    "blocks.N.hook_attn_out": OurName(("blocks.N.attention",)),
    "blocks.N.hook_resid_mid": OurName(("blocks.N.feed_forward_norm.x",)),
    "blocks.N.ln2.hook_scale": OurName(("blocks.N.feed_forward_norm.rstd", "blocks.N.feed_forward_norm.rrms"), SCALE),
    "blocks.N.ln2.hook_normalized": OurName(("blocks.N.feed_forward_norm",)),
    "blocks.N.mlp.hook_pre": OurName(("blocks.N.feed_forward.gate", "blocks.N.feed_forward.up")),
    "blocks.N.mlp.hook_pre_linear": OurName(("blocks.N.feed_forward.up",)),
    "blocks.N.mlp.hook_post": OurName(("blocks.N.feed_forward.activation",)),
    "blocks.N.hook_mlp_out": OurName(("blocks.N.feed_forward",)),
    "blocks.N.hook_resid_post": OurName(("blocks.N",)),
    "ln_final.hook_scale": OurName(("final_norm.rstd", "final_norm.rrms"), SCALE),
    "ln_final.hook_normalized": OurName(("final_norm",)),
}

POST_NORM = {
    "blocks.N.hook_attn_in": OurName(("blocks.N.attention.query.input",), ALL_HEADS),
    **{f"blocks.N.hook_{one[0]}_input": OurName((f"blocks.N.attention.{one}.input",), ALL_HEADS)
       for one in ("query", "key", "value")},
    "blocks.N.hook_resid_mid": OurName(("blocks.N.attention_norm.x",)),
    "blocks.N.hook_mlp_in": OurName(("blocks.N.feed_forward.up.input",)),
    "blocks.N.hook_resid_post": OurName(("blocks.N.feed_forward_norm.x",)),
    "blocks.N.hook_normalized_resid_post": OurName(("blocks.N",)),
}  # fmt: skip
"""What differs in models whose norms come after their sublayers, such as BERT."""


def our_name(name: str, known: Iterable[str]) -> str | None:
    """Return a sentence with our name for a value that TransformerLens calls `name`, None where there is none.

    known   the names of a run, in the order in which its values are computed
    """
    block = re.match(r"blocks\.(\d+)\.", name)
    number = int(block[1]) if block else 0
    known = [*known]
    both = [one for one in known if one in (f"blocks.{number}.attention", f"blocks.{number}.attention_norm")]
    table = {**NAMES, **POST_NORM} if both and both[0].endswith("attention") else NAMES
    ours = table.get(re.sub(r"^blocks\.\d+\.", "blocks.N.", name), OurName(()))
    names = [own.replace("N-1", str(number - 1)).replace(".N", f".{number}") for own in ours.names]
    note = f" ({ours.note.replace('.N.', f'.{number}.')})" if ours.note else ""
    found = [own for own in names if own in known]
    return f"TransformerLens' {name} is {found[0]} here{note}" if found else None
