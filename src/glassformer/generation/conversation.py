"""Conversations with a model that was made for them: one turn, or one turn after the other."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from ..config import DecoderConfig
from ..core.arrays import Array
from ..core.errors import ChatError, ConfigError, LengthError
from ..text import PublishedTokenizer
from ..text.chat import Message, encode_chat
from ..weights.loaded_model import LoadedModel
from .request import Request
from .sampling import Sampling
from .texts import MAX_NEW_TOKENS, TEMPERATURE, Generation, Stream, check_writes, text_after
from .writer import LENGTH


def reply(
    model: LoadedModel,
    messages: str | Sequence[Message],
    *,
    max_new_tokens: int = MAX_NEW_TOKENS,
    seed: int = 0,
    **sampling: Any,
) -> Generation:
    """Answer the last message of a conversation, all of which the model reads; text is one message of the user.

    sampling   the settings of `Sampling`: temperature (0.8 unless given; 0 is greedy), top_k, top_p, …
    """
    conversation = Conversation(model, max_new_tokens=max_new_tokens, seed=seed, **sampling)
    answer = conversation.answer(turns_of(messages))
    text = "".join(answer).strip()
    assert answer.generation is not None
    return replace(answer.generation, text=text)


def turns_of(messages: Any) -> list[Message]:
    """Return a conversation as a list of messages; text is one message of the user."""
    if isinstance(messages, str) and not messages.strip():
        raise ChatError("the message is empty", hint='say something: model.chat("Hello")')
    turns: Any = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if not isinstance(turns, Sequence) or not all(isinstance(turn, dict) for turn in turns):
        raise ChatError(f"{messages!r:.80} is no conversation", hint='pass [{"role": "user", "content": "…"}]')
    return list(turns)


class Conversation:
    """The messages so far, and the settings of the model's answers.

    The model reads the whole conversation at every turn. A turn that fails leaves no trace in it.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        system: str | None = None,
        max_new_tokens: int = MAX_NEW_TOKENS,
        seed: int = 0,
        **sampling: Any,
    ) -> None:
        check_writes(model)
        tokenizer = model.tokenizer
        template = model.chat_template or getattr(tokenizer, "chat_template", None)
        instead = "with model.generate(text), or `glassformer generate MODEL TEXT`"
        if template is None or not isinstance(tokenizer, PublishedTokenizer):
            raise ConfigError(
                "this model has no chat template: it was not made for conversations",
                hint=f"let it continue a text {instead}",
            )
        if not isinstance(model.config, DecoderConfig):
            raise ConfigError("only decoders chat", hint=f"ask one question {instead}")
        self.model, self.tokenizer, self.template = model, tokenizer, template
        end = tokenizer.role_id("eos")
        self.request = Request(  # of every answer, but for its prompt
            prompts=(),
            max_new_tokens=max_new_tokens,
            sampling=Sampling.of({"temperature": TEMPERATURE, **sampling}),
            seed=seed,
            stop_ids={*model.end_ids, *(() if end is None else (end,))},
            known=tokenizer.size,
        )
        self.start: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self.start)
        self.turns = 0
        self.read: Array | None = None  # the tokens before the last answer
        self.last: Stream | None = None  # which this is

    @property
    def written(self) -> list[int]:
        """The tokens of the last answer so far."""
        return [] if self.last is None else self.last.ids

    @property
    def cut_short(self) -> bool:
        """Whether the last answer ended at max_new_tokens or the end of the context."""
        generation = None if self.last is None else self.last.generation
        return generation is not None and generation.finish == LENGTH

    def reset(self) -> None:
        """Forget what was said; a system message stays."""
        self.messages = list(self.start)

    def reply(self, text: str) -> Generator[str, None, None]:
        """Yield the answer as it comes; the turn is remembered, an answer that is stopped half way included."""
        messages = [*self.messages, {"role": "user", "content": text}]
        pieces: list[str] = []
        try:
            for piece in self.answer(messages, burst=1):
                pieces.append(piece)
                yield piece
        except (KeyboardInterrupt, GeneratorExit):
            self._remember(messages, pieces)
            raise
        self._remember(messages, pieces)

    def answer(self, messages: list[Message], *, burst: int | None = None) -> Stream:
        """Return the pieces of the answer to the last of some messages."""
        self.read, self.last = self.encoded(messages), None
        request = replace(self.request, prompts=[self.read], seed=self.request.seed + self.turns, burst=burst)
        self.last = Stream(self.model, request, text_after(self.model, self.read))
        return self.last

    def encoded(self, messages: list[Message]) -> Array:
        """Return the tokens that the model reads before it answers."""
        if not messages:
            raise ChatError("the conversation is empty", hint='begin it: [{"role": "user", "content": "…"}]')
        ids = encode_chat(self.tokenizer, messages, template=self.template)
        context = self.model.config.context
        if len(ids) > context:
            raise LengthError(
                f"the conversation has {len(ids):,} tokens, but this model reads at most {context:,}",
                hint="leave out its oldest turns (/reset in `glassformer chat`), or say it in fewer words",
            )
        return ids

    def _remember(self, messages: list[Message], pieces: list[str]) -> None:
        self.turns += 1
        self.messages = [*messages, {"role": "assistant", "content": "".join(pieces).strip()}]
