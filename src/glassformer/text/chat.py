"""Conversations as text: chat templates, written in Jinja, that say how a model wants to be talked to.

A template is a program that comes with published weights, so it runs in a sandbox: no files, no attributes that lead
out of it, nothing it can change, and bounds on how long it may run and how much it may write.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..core.arrays import Array
from ..core.errors import ChatError
from .published import PublishedTokenizer

Message = Mapping[str, Any]
"""One turn: {"role": "user", "content": "…"}; roles are system, user, assistant, and what else a template knows."""

MOST_CHARACTERS = 1 << 24
LONGEST_TEMPLATE = 1 << 16


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
    names = {f"{role}_token": name for role, name in (specials or {}).items()}
    return _rendered(template, messages, {**names, **variables, "add_generation_prompt": add_generation_prompt}, {})


def encode_chat(
    tokenizer: PublishedTokenizer,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    template: str | None = None,
    **variables: Any,
) -> Array:
    """Return the ids of a conversation: int64 (T,).

    Special tokens are those that the template writes itself. Whatever messages and variables hold, in any field, stays
    plain text, what the assistant said included: no user can end their own turn and speak as another role, nor have the
    model do it for them.
    """
    template = tokenizer.chat_template if template is None else template
    if template is None:
        raise ChatError("this tokenizer has no chat template", hint="pass one, or continue plain text instead")
    marks = tokenizer.marks
    _refuse_marks((messages, variables), frozenset(marks.values()))
    names = {f"{role}_token": marks.get(name, name) for role, name in tokenizer.roles.items()}
    settings = {**names, **variables, "add_generation_prompt": add_generation_prompt}
    return tokenizer.encode_marked(_rendered(template, messages, settings, marks))


def _rendered(template: str, messages: Sequence[Message], settings: Mapping[str, Any], marks: Mapping[str, str]) -> str:
    """Return what a template writes; special tokens that have a mark are written as that."""
    if len(template) > LONGEST_TEMPLATE:
        fact = f"the chat template has {len(template):,} characters, at most {LONGEST_TEMPLATE:,} are allowed"
        raise ChatError(fact, hint="use another template")
    written, pieces = 0, []
    from jinja2 import Template

    from .chat_sandbox import Sandbox

    try:
        # In the sandbox that Hugging Face describes for chat templates, which serves one rendering.
        sandbox = Sandbox(marks)
        compiled = _compiled(template, tuple(marks.items()))
        program = Template.from_code(sandbox, compiled, sandbox.make_globals(None))
        # The conversation is copied: what the template does to it stays its own.
        chat = [dict(message) for message in messages]
        for piece in program.generate({"tools": None, "documents": None, **settings, "messages": chat}):
            written += len(piece)
            if written > MOST_CHARACTERS:
                raise OverflowError(f"it writes more than {MOST_CHARACTERS:,} characters")
            pieces.append(piece)
    except (RecursionError, MemoryError) as error:
        raise ChatError("the chat template does not come to an end", hint="use another template") from error
    except Exception as error:  # a template is a program, which fails as it likes
        raise _failure(error) from error
    return "".join(pieces)


@lru_cache(maxsize=16)
def _compiled(template: str, marks: tuple[tuple[str, str], ...]) -> Any:
    from .chat_sandbox import Sandbox

    return Sandbox(dict(marks)).compile(template)


def _refuse_marks(value: Any, marks: frozenset[str]) -> None:
    """Refuse private characters that stand for special tokens in what people say."""
    waiting, seen = [value], set[int]()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if not marks.isdisjoint(item):
                mark = f"U+{ord(min(marks.intersection(item))):X}"
                fact = f"the conversation holds the private character {mark}, which stands for a special token here"
                raise ChatError(fact, hint="leave it out")
        elif id(item) not in seen:
            seen.add(id(item))
            if isinstance(item, Mapping):
                waiting += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple | set | frozenset):
                waiting += item
            else:
                waiting += getattr(item, "__dict__", {}).values()


def _failure(error: Exception) -> ChatError:
    from jinja2 import TemplateSyntaxError
    from jinja2.exceptions import SecurityError

    from .chat_sandbox import RefusedError

    if isinstance(error, TemplateSyntaxError):
        return ChatError(f"line {error.lineno} of the chat template: {error.message}", hint="correct the template")
    if isinstance(error, SyntaxError):  # of the program that Jinja makes of it
        return ChatError(f"the chat template is no program: {error.msg}", hint="correct the template")
    if isinstance(error, SecurityError | OverflowError):
        return ChatError(f"the chat template was stopped: {error}", hint="do not use a template you do not trust")
    if isinstance(error, RefusedError):
        hint = "follow its order of turns; most want user and assistant in turn, some no system message"
        return ChatError(f"the chat template refuses this conversation: {error}", hint=hint)
    hint = 'give every message a "role" and a "content"; else correct the template'
    return ChatError(f"the chat template failed: {error}", hint=hint)
