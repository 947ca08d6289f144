"""Conversations as text: chat templates, written in Jinja, that say how a model wants to be talked to.

A template is a program that came with somebody's weights, so it runs in a sandbox: no files, no attributes that lead
out of it, nothing it can change, and a bound on how often it may loop and how much it may write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array
from ..errors import ChatError
from .published import PublishedTokenizer

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]
"""One turn: {"role": "user", "content": "…"}; roles are system, user, assistant, and what else a template knows."""

MOST_CHARACTERS = 1 << 24
# Code points that are no characters, put around what must be read as plain text.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"


def render_chat(
    template: str,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    specials: Mapping[str, str] | None = None,
    **variables: Any,
) -> str:
    """Return the text of a conversation, as `apply_chat_template` of transformers writes it.

    add_generation_prompt    end with the beginning of the assistant's next turn
    specials                 names by role, such as {"bos": "<s>"}: the template sees bos_token; `tokenizer.roles`
    variables                what else the template may ask for, such as tools or enable_thinking
    """
    from jinja2 import TemplateError

    from .chat_sandbox import ROUNDS

    names = {f"{role}_token": name for role, name in (specials or {}).items()}
    settings = {"tools": None, "documents": None, **names, **variables, "add_generation_prompt": add_generation_prompt}
    settings[ROUNDS] = [0]
    written, pieces = 0, []
    try:
        # The conversation is copied: what the template does to it stays its own.
        chat = [dict(message) for message in messages]
        for piece in _compiled(template).generate({**settings, "messages": chat}):
            written += len(piece)
            if written > MOST_CHARACTERS:
                raise OverflowError(f"it writes more than {MOST_CHARACTERS:,} characters")
            pieces.append(piece)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise _failure(error) from error
    except (RecursionError, MemoryError) as error:
        raise ChatError("the chat template does not come to an end", hint="use another template") from error
    return "".join(pieces)


def encode_chat(
    tokenizer: PublishedTokenizer,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    template: str | None = None,
    **variables: Any,
) -> Array:
    """Return the ids of a conversation: int64 (T,).

    Special tokens that the template writes are read as such; their names within what people say stay plain text, so
    that nobody can end their own turn and speak as someone else. What the assistant said is taken as it is.
    """
    template = tokenizer.chat_template if template is None else template
    if template is None:
        raise ChatError("this tokenizer has no chat template", hint="pass one, or continue plain text instead")
    names = "|".join(map(re.escape, sorted(tokenizer.specials, key=len, reverse=True))) or "(?!)"
    marked = [_marked(message, re.compile(names)) for message in messages]
    settings = {"add_generation_prompt": add_generation_prompt, "specials": tokenizer.roles, **variables}
    text = render_chat(template, marked, **settings)
    # Odd parts are the marked names; a mark that the template has torn from its partner only separates.
    parts = re.split(f"{_OPEN}({names}){_CLOSE}|[{_OPEN}{_CLOSE}]", text)
    encoded = [tokenizer.encode(part, parse_special=i % 2 == 0) for i, part in enumerate(parts) if part]
    return np.concatenate(encoded) if encoded else np.zeros(0, dtype=np.int64)


def _marked(message: Message, names: re.Pattern[str]) -> Message:
    content = message.get("content")
    if not isinstance(content, str):
        return message
    content = content.replace(_OPEN, "").replace(_CLOSE, "")
    if message.get("role") != "assistant":
        content = names.sub(rf"{_OPEN}\g<0>{_CLOSE}", content)
    return {**message, "content": content}


def _failure(error: Exception) -> ChatError:
    from jinja2 import TemplateSyntaxError
    from jinja2.exceptions import SecurityError

    if isinstance(error, TemplateSyntaxError):
        return ChatError(f"line {error.lineno} of the chat template: {error.message}", hint="correct the template")
    if isinstance(error, SecurityError | OverflowError):
        return ChatError(f"the chat template was stopped: {error}", hint="do not use a template you do not trust")
    if isinstance(error, RefusedError):
        hint = "follow its order of turns; most want user and assistant in turn, some no system message"
        return ChatError(f"the chat template refuses this conversation: {error}", hint=hint)
    hint = 'give every message a "role" and a "content"; else correct the template'
    return ChatError(f"the chat template failed: {error}", hint=hint)


class RefusedError(ValueError):
    """What a template says with `raise_exception`."""


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    """Return a template ready to run in the sandbox that Hugging Face describes for chat templates."""
    from .chat_sandbox import Sandbox

    sandbox = Sandbox()
    sandbox.filters["tojson"] = _to_json
    sandbox.globals["raise_exception"] = _refuse
    sandbox.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return sandbox.from_string(template)


def _refuse(message: str) -> None:
    raise RefusedError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and & for web pages.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
