"""Published tokenizers: the ids of transformers, and nothing that text can smuggle in."""

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from glassformer.core.errors import CheckpointError, ConfigError, TokenError
from glassformer.text import PublishedTokenizer, tokenizer_from_dict
from oracles import require
from tokenizer_files import PUBLISHED, TEXT

SENTENCES = [
    "",
    "The quick brown fox",
    "  two  spaces\nand\ta line ",
    "don't stop, it's naïve café ﬁ Å",
    "日本語 текст 👩‍👩‍👧 €",
    TEXT[:500],
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One folder for each kind, as its authors would publish it."""
    result = {}
    for name, (make, config) in PUBLISHED.items():
        folder = tmp_path_factory.mktemp("published") / name
        folder.mkdir()
        make().save(str(folder / "tokenizer.json"))
        config = {**config, "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        result[name] = folder
    return result


@pytest.fixture(scope="module")
def ours(folders):
    return {name: PublishedTokenizer.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def theirs(folders):
    fast = require("transformers").PreTrainedTokenizerFast
    return {name: fast.from_pretrained(folder) for name, folder in folders.items()}


@pytest.mark.parametrize("name", PUBLISHED)
def test_ids_texts_special_tokens_and_roles_are_those_of_transformers(name, ours, theirs):
    for text in SENTENCES:
        want = theirs[name](text, add_special_tokens=False, padding=False, truncation=False)["input_ids"]
        assert ours[name].encode(text).tolist() == want
        assert ours[name].decode(want) == theirs[name].decode(want, clean_up_tokenization_spaces=False)
        around = theirs[name](text, add_special_tokens=True, padding=False, truncation=False)["input_ids"]
        assert ours[name].encode(text, specials=True).tolist() == around
        skipped = theirs[name].decode(around, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours[name].decode(around, skip_specials=True) == skipped

    for special in ours[name].specials:
        text = f"the {special} sea {special}"
        want = theirs[name](text, add_special_tokens=False, padding=False, truncation=False)["input_ids"]
        assert ours[name].encode(text, parse_special=True).tolist() == want
        assert want.count(ours[name].specials[special]) == 2

    assert ours[name].size == len(theirs[name])
    for role in ("bos", "eos", "pad", "unk", "cls", "sep", "mask"):
        assert ours[name].role_id(role) == getattr(theirs[name], f"{role}_token_id")
    with pytest.raises(ConfigError, match="no role 'start'"):
        ours[name].role_id("start")


@pytest.mark.parametrize("name", PUBLISHED)
@given(data=st.data())
def test_text_never_becomes_a_special_token(name, ours, data):
    tokenizer = ours[name]
    unknown = tokenizer.role_id("unk")
    parts = st.sampled_from([*tokenizer.specials, " ", "a", "sea", "<", "x"])
    text = "".join(data.draw(st.lists(parts, max_size=12)))
    for specials in (False, True):
        ids = tokenizer.encode(text, specials=specials).tolist()
        around = len(tokenizer.encode("", specials=specials))
        assert len([i for i in ids if i in tokenizer.specials.values() and i != unknown]) == around


def test_a_special_piece_without_letters_is_refused_and_special_words_become_unknown():
    inner = Tokenizer(models.WordLevel({"</s>": 0, "a": 1}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(["</s>"])
    tokenizer = PublishedTokenizer(inner.to_str())
    with pytest.raises(TokenError, match="'</s>', which this tokenizer knows as a special token only"):
        tokenizer.encode("a </s>")
    assert tokenizer.encode("a </s>", parse_special=True).tolist() == [1, 0]

    inner = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "a": 2}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(["[CLS]"])
    assert PublishedTokenizer(inner.to_str()).encode("a [CLS]").tolist() == [2, 0]


def test_unknown_characters_are_never_dropped():
    inner = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    inner.decoder = decoders.Fuse()
    tokenizer = PublishedTokenizer(inner.to_str())
    assert tokenizer.encode("abba").tolist() == [2, 1, 0]
    with pytest.raises(TokenError, match=r"'z' \(U\+007A\) is unknown"):
        tokenizer.encode("abz")
    inner = Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]"))
    with pytest.raises(TokenError, match="cannot encode 'b'"):
        PublishedTokenizer(inner.to_str()).encode("b")


def test_what_a_file_says_about_cutting_is_ignored(ours):
    assert len(ours["WordPiece"].encode("the quick brown fox jumps over the lazy dog", specials=True)) > 9
    assert len(ours["WordPiece"].encode("the")) == 1


def test_a_role_makes_a_plain_piece_special_and_pieces_show_spaces(ours):
    inner = Tokenizer(models.WordLevel({"<end>": 0, "a": 1, "[UNK]": 2}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PublishedTokenizer(inner.to_str(), roles={"eos": "<end>", "pad": "<nowhere>"})
    assert tokenizer.specials == {"<end>": 0}
    assert tokenizer.roles == {"eos": "<end>"}
    assert tokenizer.encode("a <end>").tolist() == [1, 2]

    assert ours["sentencepiece BPE"].pieces("the")[0][0].startswith(" ")
    assert [p for p, _ in ours["WordPiece"].pieces("seas", specials=True)] == ["[CLS]", "sea", "##s", "[SEP]"]
    assert [p for p, _ in ours["byte-level BPE"].pieces("😀")] == ["\\xf0", "\\x9f", "\\x98", "\\x80"]
    assert ours["chat BPE"].pieces("<|im_end|><think>", parse_special=True)[0][0] == "<|im_end|>"
    assert ours["chat BPE"].pieces("<think>") == [("<think>", 372)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_comes_back_from_its_dict_and_its_files(name, ours, tmp_path):
    tokenizer = ours[name]
    again = tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict())))
    assert again == tokenizer
    assert again.kind == "tokenizer.json"
    tokenizer.save(tmp_path / "new")
    assert PublishedTokenizer.load(tmp_path / "new") == tokenizer
    assert repr(tokenizer).startswith(f"PublishedTokenizer({tokenizer._model_type}, ")


@pytest.mark.parametrize(
    ("template", "want"),
    [
        ("{{ x }}", "{{ x }}"),
        ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "tool_use", "template": "t"}], None),
        (None, None),
    ],
)
def test_the_chat_template_is_found(template, want, folders, tmp_path):
    for file in folders["chat BPE"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": template}))
    assert PublishedTokenizer.load(tmp_path).chat_template == want
    (tmp_path / "chat_template.jinja").write_text("from its own file")
    assert PublishedTokenizer.load(tmp_path).chat_template == "from its own file"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"{", "cannot be read"),
        ("tokenizer.json", b"\xff", "cannot be read"),
        ("tokenizer.json", b'{"version": "9.0"}', "cannot be read"),
        ("tokenizer_config.json", b"{", "is no JSON"),
        ("tokenizer_config.json", b"[]", "holds no JSON object"),
        ("tokenizer_config.json", b'{"a":' + b"[" * 100_000, "is no JSON"),
        ("special_tokens_map.json", b"{", "is no JSON"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "an empty vocabulary"),
        ("tokenizer_config.json", b'{"eos_token": "\\ud800"}', "cannot be read"),
    ],
)
def test_damaged_files_are_named(name, content, message, folders, tmp_path):
    for file in folders["Unigram"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        PublishedTokenizer.load(tmp_path)


def test_added_tokens_follow_a_large_list_of_pieces_and_ids_far_beyond_it_are_refused(folders):
    stored = json.loads((folders["WordPiece"] / "tokenizer.json").read_text())
    stored["model"]["vocab"]["far"] = 1_000_000_000
    with pytest.raises(ConfigError, match="an id of 1,000,000,000"):
        PublishedTokenizer(json.dumps(stored))
    del stored["model"]["vocab"]["far"]
    stored["added_tokens"].append({**stored["added_tokens"][0], "id": 1_000_000_000, "content": "far"})
    with pytest.raises(ConfigError, match="an id of 1,000,000,000"):
        PublishedTokenizer(json.dumps(stored))

    stored = json.loads((folders["Unigram"] / "tokenizer.json").read_text())
    stored["model"]["vocab"] += [[f"piece {number}", -20.0] for number in range(70_000)]
    last = len(stored["model"]["vocab"])
    stored["added_tokens"].append({**stored["added_tokens"][0], "id": last, "content": "<last>"})
    assert PublishedTokenizer(json.dumps(stored)).size == last + 1


def test_a_panic_of_the_library_is_an_error_of_ours(ours, monkeypatch):
    class PanicException(BaseException):
        """What comes out of native code that gave up; not an `Exception`."""

    class Inner:
        encode_special_tokens = True

        def encode_batch_fast(self, *_, **__):
            raise PanicException("index out of bounds")

    tokenizer = ours["WordPiece"]
    monkeypatch.setattr(tokenizer, "_inner", Inner())
    with pytest.raises(TokenError, match="cannot encode 'a': index out of bounds"):
        tokenizer.encode("a")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no .*tokenizer\.json"):
        PublishedTokenizer.load(tmp_path)


def test_threads_do_not_change_each_others_answers(ours):
    tokenizer = ours["chat BPE"]
    text = "<|im_end|>the sea" * 50
    want = {flag: tokenizer.encode(text, parse_special=flag).tolist() for flag in (False, True)}
    wrong = []

    def work(flag):
        for _ in range(50):
            ids = tokenizer.encode(text, parse_special=flag).tolist()
            if ids != want[flag] or tokenizer.decode(ids) != text:
                wrong.append(flag)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
