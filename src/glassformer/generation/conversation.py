"""One turn of a conversation: a list of messages in, the answer out."""

from collections.abc import Sequence
from typing import Any

from ..arrays import Array
from ..config import DecoderConfig
from ..errors import ChatError, ConfigError, LengthError
from ..text import PublishedTokenizer
from ..text.chat import Message, encode_chat
from ..text.stream import StreamDecoder
from .language_model import CONTEXT_OF_TEXT, MAX_NEW_TOKENS, TEMPERATURE, Generation, LanguageModel
from .sampling import Sampling
from .writer import generate_steps


def reply(
    writer: LanguageModel,
    messages: str | Sequence[Message],
    *,
    max_new_tokens: int = MAX_NEW_TOKENS,
    seed: int = 0,
    **sampling: Any,
) -> Generation:
    """Answer the last message of a conversation, all of which the model reads; text is one message of the user.

    sampling   the settings of `Sampling`: temperature (0.8 unless given; 0 is greedy), top_k, top_p, …
    """
    tokenizer, ids = _prompt(writer, messages)
    end = tokenizer.role_id("eos")
    end_ids = {*writer.end_ids, *(() if end is None else (end,))}
    steps = generate_steps(
        writer.model,
        writer.params,
        [ids],
        max_new_tokens=max_new_tokens,
        sampling=Sampling.of({"temperature": TEMPERATURE, **sampling}),
        seed=seed,
        stop_ids=tuple(end_ids),
        known=tokenizer.size,
    )
    decoder = StreamDecoder(tokenizer, after=ids[-CONTEXT_OF_TEXT:])
    pieces, written, finish = [], [], "length"
    for step in steps:
        token = int(step.ids[0])
        written.append(token)
        finish = step.finish[0] or finish
        if token not in end_ids:
            pieces.append(decoder.push(token))
    return Generation("".join([*pieces, decoder.finish()]).strip(), tuple(written), finish)


def _prompt(writer: LanguageModel, messages: str | Sequence[Message]) -> tuple[PublishedTokenizer, Array]:
    """Return the tokenizer of a model that chats, and the ids of a conversation."""
    tokenizer = writer.tokenizer
    template = writer.chat_template or getattr(tokenizer, "chat_template", None)
    if template is None or not isinstance(tokenizer, PublishedTokenizer):
        raise ConfigError(
            "this model has no chat template: it was not made for conversations",
            hint="let it continue a text with model.generate(text)",
        )
    if not isinstance(writer.model.config, DecoderConfig):
        raise ConfigError("only decoders chat", hint="ask one question with model.generate(text)")
    turns: Any = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if not isinstance(turns, Sequence) or not all(isinstance(turn, dict) for turn in turns):
        raise ChatError(f"{messages!r:.80} is no conversation", hint='pass [{"role": "user", "content": "…"}]')
    if not turns:
        raise ChatError("the conversation is empty", hint='begin it: [{"role": "user", "content": "…"}]')
    ids = encode_chat(tokenizer, turns, template=template)
    context = writer.model.config.context
    if len(ids) > context:
        raise LengthError(
            f"the conversation has {len(ids):,} tokens, but this model reads at most {context:,}",
            hint="leave out its oldest turns",
        )
    return tokenizer, ids
