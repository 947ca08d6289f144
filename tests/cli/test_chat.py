"""`glassformer chat`."""

import io
import os
import signal
import subprocess
import sys

import pytest

from glassformer.api.loading import load
from glassformer.core.errors import ConfigError, LengthError
from glassformer.data.corpus import write_tokens
from glassformer.generation.conversation import Conversation
from glassformer.generation.sampling import Sampling
from glassformer.generation.writer import generate_steps
from glassformer.runs.start import new_session
from glassformer.text import PublishedTokenizer
from runs import TINY_MODEL, command, finished, process, tiny_session
from tokenizer_files import CHATML, TEXT, chat_bpe

pytestmark = pytest.mark.usefixtures("numpy_engine")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder whose tokenizer carries a chat template; what the model says is noise."""
    folder = tmp_path_factory.mktemp("chat")
    (folder / "text.txt").write_text(TEXT * 2, encoding="utf-8")
    tokenizer = PublishedTokenizer(chat_bpe().to_str(), roles={"eos": "<|im_end|>"}, chat_template=CHATML)
    write_tokens(folder / "text.txt", folder / "text.bin", tokenizer)
    settings = {**TINY_MODEL, "context": 600, "batch": 1, "steps": 1}
    session = new_session("text", folder / "run", data=str(folder / "text.bin"), settings=settings)
    list(session.steps())
    return folder / "run"


def talk_to(run, typed, monkeypatch, *options):
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    return command("chat", run, "--max-new-tokens", 5, "--temperature", 0, *options)


def test_layers_would_have_said(run, monkeypatch):
    shown = talk_to(run, "Hello\n", monkeypatch, "--lens")
    assert shown.code == 0, shown.err
    plain = talk_to(run, "Hello\n", monkeypatch)
    assert shown.out.startswith(plain.out)
    assert "wrote" in shown.out
    assert "block" in shown.out


def test_stdin_that_is_not_utf8_is_refused(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    result = command("chat", run)
    assert result.code == 1
    assert "not UTF-8" in result.err


def test_every_line_is_answered_and_remembered_and_the_same_seed_answers_the_same(run):
    def talk(seed):
        chat = conversation(run, seed=seed, temperature=1.0, max_new_tokens=20)
        return ["".join(chat.reply("the sea")) for _ in range(2)]

    assert talk(3) == talk(3)
    assert talk(3) != talk(4)

    chat = conversation(run, system="Be brief.")
    first = "".join(chat.reply("the sea"))
    second = "".join(chat.reply("the sea"))
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [m["content"] for m in chat.messages] == ["Be brief.", "the sea", first.strip(), "the sea", second.strip()]
    chat.reset()
    assert chat.messages == [{"role": "system", "content": "Be brief."}]
    assert "".join(chat.reply("the sea")) == first


def conversation(run, **settings):
    return Conversation(load(run), **{"system": None, "max_new_tokens": 5, "seed": 0, "temperature": 0, **settings})


def test_an_answer_is_what_the_model_says_after_the_template(run):
    loaded = load(run)
    chat = Conversation(loaded, system=None, max_new_tokens=8, seed=0, temperature=0)
    answer = "".join(chat.reply("the sea"))
    prompt = "<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n"
    ids = loaded.tokenizer.encode(prompt, parse_special=True)
    steps = generate_steps(
        loaded.model, loaded.params, [ids], max_new_tokens=8, sampling=Sampling.of({"temperature": 0})
    )
    written = [int(step.ids[0]) for step in steps]
    end = loaded.tokenizer.role_id("eos")
    assert answer == loaded.tokenizer.decode(written[: written.index(end)] if end in written else written)


def test_a_script_may_talk_through_a_pipe(run, monkeypatch):
    result = talk_to(run, "the sea\n\n/reset\nthe sea\n/help\n/exit\nnever read\n", monkeypatch)
    assert result.code == 0, result.err
    first = "".join(conversation(run).reply("the sea"))
    assert result.out == f"{first}\n{first}\n"
    assert "starts over" in result.err
    assert "/reset" in result.err
    assert talk_to(run, "", monkeypatch).code == 0


def test_the_limit_that_cuts_an_answer_short_is_named(run, monkeypatch):
    assert "--max-new-tokens" in talk_to(run, "the sea\n", monkeypatch).err
    said = talk_to(run, "the sea\n", monkeypatch, "--max-new-tokens", 5000).err
    assert "the context of 600 tokens is full" in said
    assert "--max-new-tokens" not in said


def test_an_unknown_command_in_a_pipe_loses_no_other_line(run, monkeypatch):
    result = talk_to(run, "/rest\nthe sea\n", monkeypatch)
    assert result.code == 2
    assert "did you mean '/reset'" in result.err
    assert result.out == "".join(conversation(run).reply("the sea")) + "\n"


def test_a_conversation_longer_than_the_context_is_refused_and_forgotten(run, monkeypatch):
    long = "the sea " * 400
    result = talk_to(run, f"{long}\n", monkeypatch)
    assert result.code == 1
    assert "but this model reads at most 600" in result.err
    assert "/reset" in result.err
    chat = conversation(run)
    with pytest.raises(LengthError):
        list(chat.reply(long))
    assert chat.messages == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_at_a_terminal_an_error_does_not_end_the_conversation(run, monkeypatch):
    typed = iter(["the sea " * 400, "/rest", KeyboardInterrupt, "the sea", EOFError])

    def answer(prompt):
        item = next(typed)
        if not isinstance(item, str):
            raise item
        return item

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(sys, "stdin", Terminal())
    result = command("chat", run, "--max-new-tokens", 5, "--temperature", 0)
    assert result.code == 0
    for part in ("reads at most 600", "no command /rest", "Ctrl-D or /exit leaves"):
        assert part in result.err
    assert result.out == "".join(conversation(run).reply("the sea")) + "\n"


def test_stopping_an_answer_keeps_what_was_said(run):
    chat = conversation(run, max_new_tokens=50)
    answer = chat.reply("the sea")
    said = next(answer) + next(answer)
    answer.close()
    assert [m["content"] for m in chat.messages] == ["the sea", said.strip()]


@pytest.mark.skipif(os.name != "posix", reason="signals in the manner of POSIX")
def test_interrupting_stops_the_answer_and_not_the_program(run):
    running = process("chat", run, "--max-new-tokens", 5000, stdin=subprocess.PIPE)
    running.stdin.write("the sea\n")
    running.stdin.flush()
    assert running.stdout.read(1)
    running.send_signal(signal.SIGINT)
    running.stdin.write("/reset\n/exit\n")
    result = finished(running)
    assert result.code == 0, result.err
    assert "(stopped)" in result.err
    assert "starts over" in result.err


def test_a_model_without_a_chat_template_says_so(tmp_path, monkeypatch):
    session = tiny_session("text", tmp_path / "run", steps=1)
    list(session.steps())
    result = talk_to(session.run.folder, "hello\n", monkeypatch)
    assert result.code == 2
    assert "no chat template" in result.err
    assert "glassformer generate" in result.err
    with pytest.raises(ConfigError, match="no chat template"):
        conversation(session.run.folder)
