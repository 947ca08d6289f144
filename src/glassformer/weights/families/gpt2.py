"""GPT-2: pre-norm, learned positions, query, key and value in one matrix, stored as (inputs, outputs)."""

from ..family import Family, PublishedTensor
from ..fields import Fields

GPT2 = Family(
    name="gpt2",
    architecture="decoder",
    classes={"GPT2LMHeadModel": "tokens", "GPT2Model": "tokens"},
    prefix="transformer.",
    table={
        "embedding.tokens": "wte",
        "embedding.positions": "wpe",
        "blocks.*.attention_norm": "h.*.ln_1",
        "blocks.*.attention.query": "h.*.attn.c_attn",
        "blocks.*.attention.key": "h.*.attn.c_attn",
        "blocks.*.attention.value": "h.*.attn.c_attn",
        "blocks.*.attention.output": "h.*.attn.c_proj",
        "blocks.*.feed_forward_norm": "h.*.ln_2",
        "blocks.*.feed_forward.up": "h.*.mlp.c_fc",
        "blocks.*.feed_forward.down": "h.*.mlp.c_proj",
        "final_norm": "ln_f",
        "head.w": PublishedTensor("lm_head.weight", transposed=True),
    },
    transposed=False,
    fields={
        "vocab": ("vocab_size", Fields.size),
        "width": ("n_embd", Fields.size),
        "heads": ("n_head", Fields.size),
        "layers": ("n_layer", Fields.layers),
        "context": ("n_positions", Fields.size, lambda fields: fields.values.get("n_ctx", 1024)),
        "feed_forward": ("n_inner", Fields.size, lambda fields: 4 * fields.size("n_embd")),
        "activation": ("activation_function", Fields.activation, "gelu_new"),
        "norm_eps": ("layer_norm_epsilon", Fields.number, 1e-5),
        "scale_scores": ("scale_attn_weights", Fields.flag, True),
        "tied_head": ("tie_word_embeddings", Fields.flag, True),
        "dropout": ("resid_pdrop", Fields.rate, 0.1),
        "attention_dropout": ("attn_pdrop", Fields.rate, 0.1),
        "embedding_dropout": ("embd_pdrop", Fields.rate, 0.1),
        "init_std": ("initializer_range", Fields.number, 0.02),
    },
    only=(("scale_attn_by_inverse_layer_idx", False), ("add_cross_attention", False)),
    ignored=(r"h\.\d+\.attn\.(bias|masked_bias)", r"lm_head\.weight"),
)
