"""Our tokenizers of characters and bytes in the form that others read: a byte-pair encoding without any pairs."""

from __future__ import annotations

from typing import Any

from ..text import ByteTokenizer, CharTokenizer, PublishedTokenizer
from ..text.published import BYTE_LETTERS
from ..text.published_files import ROLES


def published_form(tokenizer: Any) -> PublishedTokenizer | None:
    """Return a tokenizer as a tokenizer.json holds it; None for one that has no such form."""
    if isinstance(tokenizer, PublishedTokenizer):
        return tokenizer
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    if isinstance(tokenizer, CharTokenizer):
        if any(0xD800 <= ord(character) < 0xE000 for character in tokenizer.characters):
            return None  # halves of characters have no UTF-8 form
        vocabulary = {name: i + len(tokenizer.specials) for i, name in enumerate(tokenizer.characters)}
        inner = Tokenizer(models.BPE({**tokenizer.specials, **vocabulary}, []))
        inner.decoder = decoders.Fuse()
    elif isinstance(tokenizer, ByteTokenizer):
        inner = Tokenizer(models.BPE({**BYTE_LETTERS, **tokenizer.specials}, []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
    else:
        return None
    inner.add_special_tokens(list(tokenizer.specials))
    roles = {role: f"<{role}>" for role in ROLES if f"<{role}>" in tokenizer.specials}
    return PublishedTokenizer(inner.to_str(), roles=roles)
