"""A list of messages in, the answer out: what `glassformer chat` would say."""

import pytest

import glassformer as gf
from glassformer.core.errors import ChatError, LengthError
from glassformer.data.corpus import write_tokens
from glassformer.generation.conversation import Conversation
from glassformer.text import PublishedTokenizer
from runs import TINY_MODEL
from tokenizer_files import TEXT, chat_bpe

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory, numpy_engine):
    """A model whose tokenizer carries a chat template; what it says is noise."""
    folder = tmp_path_factory.mktemp("chat")
    (folder / "text.txt").write_text(TEXT * 2, encoding="utf-8")
    tokenizer = PublishedTokenizer(chat_bpe().to_str(), roles={"eos": "<|im_end|>"}, chat_template=CHATML)
    write_tokens(folder / "text.txt", folder / "text.bin", tokenizer)
    settings = {**TINY_MODEL, "context": 200, "batch": 1, "steps": 1}
    trained = gf.train(folder / "text.bin", **settings, show=False)
    return gf.load(gf.save(trained, folder / "model"))


def test_an_answer_is_that_of_the_command_and_a_text_one_message_of_the_user(model):
    chat = Conversation(model, system=None, max_new_tokens=5, seed=0, temperature=0)
    messages = []
    for text in ("the sea", "the land"):
        messages.append({"role": "user", "content": text})
        answer = model.chat(messages, max_new_tokens=5, temperature=0)
        assert answer.text == "".join(chat.reply(text)).strip()
        assert (answer.finish, len(answer.ids)) == ("length", 5)
        messages.append({"role": "assistant", "content": answer.text})

    messages = [{"role": "user", "content": "the sea"}]
    assert model.chat("the sea", max_new_tokens=3, seed=1) == model.chat(messages, max_new_tokens=3, seed=1)


def test_conversations_that_cannot_be_read_are_refused(model):
    with pytest.raises(ChatError, match="the conversation is empty"):
        model.chat([])
    for wrong in (3, ["hello"]):
        with pytest.raises(ChatError, match="is no conversation"):
            model.chat(wrong)
    with pytest.raises(LengthError, match="the conversation has"):
        model.chat("the sea " * 200)
