"""Weights by a table of names: TransformerLens' layout against its formulas, fused and transposed matrices, errors."""

import os
import pickle
import re
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import glassformer as gf
from glassformer.core.errors import WeightsError
from glassformer.weights.foreign import Foreign, params_from, read_arrays

V, D, H, C, L, N = 7, 6, 2, 4, 2, 9
CONFIG = gf.DecoderConfig(
    vocab=V, width=D, heads=H, head_width=C, layers=L, context=N, norm="none", block="attention_only", tied_head=False,
    head_bias=True,
)  # fmt: skip
IN, STACKED = "heads width channels -> width heads channels", {"query": "Q", "key": "K", "value": "V"}
TABLE = {
    "embedding.tokens.table": "embed.W_E",
    "embedding.positions.table": "pos_embed.W_pos",
    **{f"blocks.*.attention.{ours}.w": Foreign(f"blocks.*.attn.W_{name}", IN) for ours, name in STACKED.items()},
    **{f"blocks.*.attention.{ours}.b": f"blocks.*.attn.b_{name}" for ours, name in STACKED.items()},
    "blocks.*.attention.output.w": "blocks.*.attn.W_O",
    "blocks.*.attention.output.b": "blocks.*.attn.b_O",
    "head.w": "unembed.W_U",
    "head.b": "unembed.b_U",
}


@pytest.fixture
def theirs():
    rng = np.random.default_rng(0)
    shapes = {"embed.W_E": (V, D), "pos_embed.W_pos": (N, D), "unembed.W_U": (D, V), "unembed.b_U": (V,)}
    for i in range(L):
        at = f"blocks.{i}.attn"
        shapes |= {f"{at}.W_{name}": (H, D, C) for name in "QKV"} | {f"{at}.b_{name}": (H, C) for name in "QKV"}
        shapes |= {f"{at}.W_O": (H, C, D), f"{at}.b_O": (D,)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def logits_of(w, ids):
    """What an attention-only model of TransformerLens computes, in its own einsums."""
    x = w["embed.W_E"][ids] + w["pos_embed.W_pos"][: len(ids)]
    later = np.triu(np.ones((len(ids), len(ids)), bool), 1)
    for i in range(L):
        q, k, v = (
            np.einsum("td,hdc->thc", x, w[f"blocks.{i}.attn.W_{n}"]) + w[f"blocks.{i}.attn.b_{n}"] for n in "QKV"
        )
        scores = np.where(later, -np.inf, np.einsum("thc,shc->hts", q, k) / np.sqrt(C))
        pattern = np.exp(scores - scores.max(-1, keepdims=True))
        pattern /= pattern.sum(-1, keepdims=True)
        z = np.einsum("hts,shc->thc", pattern, v)
        x = x + np.einsum("thc,hcd->td", z, w[f"blocks.{i}.attn.W_O"]) + w[f"blocks.{i}.attn.b_O"]
    return x @ w["unembed.W_U"] + w["unembed.b_U"]


def test_a_model_of_transformer_lens_opens_by_its_table_like_any_other(theirs, tmp_path):
    params = params_from(CONFIG, theirs, TABLE, dtype=np.float64)
    ids = np.array([3, 1, 4, 1, 5])
    have = gf.build(CONFIG).forward(params, ids)[0]
    np.testing.assert_allclose(have, logits_of(theirs, ids), rtol=0, atol=1e-12)

    path = tmp_path / "theirs.npz"
    np.savez(path, mask=np.ones(3, bool), **theirs)
    model = gf.from_arrays(CONFIG, path, TABLE)
    assert model.params["head"]["w"].dtype == np.float32
    assert model.source == str(path)
    again = gf.load(gf.save(model, tmp_path / "saved"))
    assert np.array_equal(again.params["head"]["w"], model.params["head"]["w"])


def test_fused_transposed_and_changed_arrays_can_be_said(rng):
    config = gf.DecoderConfig(vocab=5, width=4, heads=2, layers=1, context=3, positions="none", norm="none",
                              block="attention_only", attention_bias=False)  # fmt: skip
    fused, out = rng.standard_normal((4, 12)), rng.standard_normal((4, 4))
    table = {
        **{f"blocks.0.attention.{name}.w": Foreign("qkv", part=(i, 3)) for i, name in enumerate(STACKED)},
        "blocks.*.attention.output.w": Foreign("out", "o i -> i o"),
        "embedding.tokens.table": Foreign("E", change=lambda x: 2 * x),
    }
    params = params_from(config, {"qkv": fused, "out": out, "E": np.ones((5, 4))}, table, dtype=np.float64)
    attention = params["blocks"][0]["attention"]
    assert np.array_equal(attention["key"]["w"], fused[:, 4:8])
    assert np.array_equal(attention["output"]["w"], out.T)
    assert (params["embedding"]["tokens"]["table"] == 2).all()


def test_what_tables_of_published_families_say_can_be_said_of_any_array(rng):
    config = gf.DecoderConfig(vocab=5, width=4, heads=2, layers=1, context=3, positions="learned", norm="none",
                              block="attention_only", attention_bias=False)  # fmt: skip
    fused, out, positions = rng.standard_normal((12, 4)), rng.standard_normal((4, 4)), rng.standard_normal((5, 4))
    table = {
        **{
            f"blocks.*.attention.{name}.w": Foreign("qkv", transposed=True, part=(i, 3), heads=2)
            for i, name in enumerate(STACKED)
        },
        "blocks.*.attention.output.w": Foreign("output.*", twin="out.*"),
        "embedding.tokens.table": "E",
        "embedding.positions.table": Foreign("P", skipped=2),
    }
    arrays = {"qkv": fused, "out.0": out, "E": np.ones((5, 4)), "P": positions}
    params = params_from(config, arrays, table, dtype=np.float64)
    attention = params["blocks"][0]["attention"]
    by_head = fused.reshape(2, 3, 2, 4)  # heads, query or key or value, channels, width
    assert np.array_equal(attention["key"]["w"], by_head[:, 1].reshape(4, 4).T)
    assert np.array_equal(attention["output"]["w"], out)
    assert np.array_equal(params["embedding"]["positions"]["table"], positions[2:])


@pytest.mark.parametrize(
    ("change", "fact", "hint"),
    [
        ({"table": {"hed.w": "x"}}, "the table names 'hed.w'", "did you mean 'head.w'"),
        ({"table": {"head.b": None}}, "does not say where head.b come from", "add them"),
        ({"arrays": {"embed.W_E": None}}, "there is no array 'embed.W_E' for embedding.tokens.table", "did you mean"),
        ({"arrays": {"blocks.0.mask": 1}}, "blocks.0.mask would be left over", "ignored"),
        ({"arrays": {"unembed.W_U": np.zeros((V, D))}}, "has shape (7, 6), but head.w has shape (6, 7)", "transposed"),
        ({"arrays": {"unembed.b_U": np.zeros(V, str)}}, "unembed.b_U holds", "convert it"),
        ({"table": {"head.w": Foreign("unembed.W_U", "a b c -> c b a")}}, "3 axes are named", "as many"),
        ({"table": {"head.w": Foreign("unembed.W_U", "a b -> a")}}, "the axes of unembed.W_U are", "each axis once"),
        ({"table": {"head.w": Foreign("unembed.W_U", part=(3, 3))}}, "has no part 3 of 3", "from 0"),
    ],
)
def test_what_does_not_fit_is_named(theirs, change, fact, hint):
    def merged(one, other):
        return {name: value for name, value in {**one, **other}.items() if value is not None}

    arrays, table = merged(theirs, change.get("arrays", {})), merged(TABLE, change.get("table", {}))
    with pytest.raises(WeightsError) as caught:
        params_from(CONFIG, arrays, table)
    assert fact in caught.value.fact
    assert hint in caught.value.hint


def test_what_nothing_needs_may_be_ignored_and_files_without_arrays_are_refused(theirs, tmp_path):
    masks = {f"blocks.{i}.attn.mask": np.ones((N, N)) for i in range(L)}
    params_from(CONFIG, theirs | masks, TABLE, ignored=["blocks.*.attn.mask"])

    with pytest.raises(WeightsError, match="there is no file"):
        read_arrays(tmp_path / "none.npz")
    (tmp_path / "bad.npz").write_bytes(b"no")
    with pytest.raises(WeightsError, match="cannot be read"):
        read_arrays(tmp_path / "bad.npz")


def test_damaged_files_are_refused_in_one_sentence(theirs, tmp_path, rng, torch):
    np.savez(tmp_path / "a.npz", **theirs)
    np.savez_compressed(tmp_path / "b.npz", **theirs)
    torch.save({name: torch.tensor(x) for name, x in theirs.items()}, tmp_path / "c.pt")
    for path in sorted(tmp_path.iterdir()):
        content, damaged = path.read_bytes(), path.with_stem("damaged")
        for turn in range(100):
            changed = bytearray(content[: rng.integers(len(content))] if turn % 3 == 0 else content)
            for place in rng.integers(len(changed), size=4) if changed else ():
                changed[place] ^= 1 << rng.integers(8)
            damaged.write_bytes(changed)
            try:
                found = read_arrays(damaged)
            except WeightsError:
                continue
            # What changed lies outside of the numbers, such as in the date of a file.
            assert all(np.array_equal(found[name], x) for name, x in theirs.items() if name in found)


def test_the_examples_of_the_documentation_run_as_printed(theirs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file(theirs, "toy.safetensors")
    words = (Path(__file__).parents[2] / "docs" / "guides" / "research_models.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", words, flags=re.DOTALL):
        exec(block, names)
    have = names["model"].model.forward(names["model"].params, np.array([3, 1, 4]))[0]
    np.testing.assert_allclose(have, logits_of(theirs, np.array([3, 1, 4])), rtol=1e-4, atol=1e-4)


def test_tensors_are_what_pytorch_reads(torch, tmp_path):
    shared = torch.arange(12, dtype=torch.float64)
    content = {
        "plain": torch.randn(3, 4),
        "nested": {"half": torch.randn(2).half(), "brain": torch.randn(5).bfloat16()},
        "view": shared.view(3, 4)[1:, ::2],
        "turned": torch.randn(2, 3).T,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "number": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "ids": torch.arange(4),
        "epoch": 7,
    }
    torch.save(content, tmp_path / "model.pt")
    found = read_arrays(tmp_path / "model.pt")
    want = {**content, "nested.half": content["nested"]["half"], "nested.brain": content["nested"]["brain"]}
    for name in ("nested", "ids", "epoch"):
        del want[name]
    assert found.keys() == want.keys()
    for name, tensor in want.items():
        assert np.array_equal(found[name], tensor.detach().double().numpy().astype(found[name].dtype)), name


def test_the_state_dict_of_a_module_is_read_and_a_pickle_is_not_run(torch, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    torch.save(module.state_dict(), tmp_path / "model.pth")
    found = read_arrays(tmp_path / "model.pth")
    assert list(found) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert np.array_equal(found["0.weight"], module[0].weight.detach().numpy())

    with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
        archive.writestr("evil/data.pkl", pickle.dumps({"w": Harm(tmp_path / "harm")}, protocol=2))
    with pytest.raises(WeightsError, match=r"it asks to call (posix|nt)\.mkdir") as caught:
        read_arrays(tmp_path / "evil.pt")
    assert "weights_only=True" in caught.value.hint
    assert not (tmp_path / "harm").exists()


class Harm:
    """A pickle that makes a file when it is opened by anyone who runs it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([1, 2], "it holds a list"),
        ({"a": {1, 2}}, "it asks to call"),
        ({"a": object()}, "it has the instruction|asks to call"),
    ],
)
def test_what_is_no_dict_of_tensors_is_refused(tmp_path, content, why):
    with zipfile.ZipFile(tmp_path / "odd.pt", "w") as archive:
        archive.writestr("odd/data.pkl", pickle.dumps(content, protocol=2))
    with pytest.raises(WeightsError, match=why):
        read_arrays(tmp_path / "odd.pt")


def test_files_of_other_kinds_are_refused(tmp_path):
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(WeightsError, match="no zip archive"):
        read_arrays(tmp_path / "old.pt")
    with zipfile.ZipFile(tmp_path / "none.pt", "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(WeightsError, match=r"no data\.pkl"):
        read_arrays(tmp_path / "none.pt")
    with zipfile.ZipFile(tmp_path / "cut.pt", "w") as archive:
        archive.writestr("cut/data.pkl", pickle.dumps({"a": 1}, protocol=2)[:-3])
    with pytest.raises(WeightsError, match="cannot be read"):
        read_arrays(tmp_path / "cut.pt")


def test_a_tensor_beyond_its_numbers_is_refused(torch, tmp_path):
    torch.save({"w": torch.ones(4, dtype=torch.float32)}, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as old, zipfile.ZipFile(tmp_path / "short.pt", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name)[:8] if name.endswith("data/0") else old.read(name))
    with pytest.raises(WeightsError, match="reaches beyond its 2 numbers"):
        read_arrays(tmp_path / "short.pt")


def held_by_itself():
    tree = {}
    tree["a"] = tree
    return pickle.dumps(tree, 2)


def doubled(levels, make):
    tree = make(())
    for _ in range(levels):
        tree = make((tree, tree))
    return tree


def tensor(shape, strides):
    """The pickle of {"w": a tensor over storage 0}, as PyTorch would write it."""
    place = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQK\0"
    for numbers in (shape, strides):
        place += b"(" + b"".join(b"\x8a\x08" + n.to_bytes(8, "little") for n in numbers) + b"t"
    return b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" + place + b"tRs."


@pytest.mark.parametrize(
    ("content", "how"),
    [
        (held_by_itself(), zipfile.ZIP_STORED),
        (pickle.dumps(doubled(40, lambda parts: dict(enumerate(parts))), 2), zipfile.ZIP_STORED),
        (pickle.dumps(doubled(40, lambda parts: parts), 2)[:-1] + b"}q\xfeh\xfeK\1s.", zipfile.ZIP_STORED),
        (b"\x80\x02}" + pickle.dumps(doubled(40, tuple), 2)[2:-1] + b"K\1s.", zipfile.ZIP_STORED),
        (tensor((1 << 28,), (0,)), zipfile.ZIP_STORED),
        (tensor((16,), (1,)), zipfile.ZIP_DEFLATED),
    ],
    ids=["a dict in itself", "dicts in dicts", "tuples in tuples", "a key of tuples", "repeated numbers", "compressed"],
)
def test_a_small_file_takes_little_time_and_memory(tmp_path, content, how):
    with zipfile.ZipFile(tmp_path / "small.pt", "w", how) as archive:
        archive.writestr("a/data.pkl", content)
        archive.writestr("a/data/0", b"\0" * (64 if how == zipfile.ZIP_STORED else 1 << 24))
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError, match="is not opened"):
            read_arrays(tmp_path / "small.pt")
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()
