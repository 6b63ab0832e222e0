# SPDX-License-Identifier: Apache-2.0
"""Language, speech and vision models of transformers, small, with random weights."""
import functools

import torch

from . import base
from .base import Training, forward, program

VOCAB = 1000
SMALL = dict(vocab_size=VOCAB, hidden_size=256, num_hidden_layers=3, num_attention_heads=4,
             intermediate_size=512, max_position_embeddings=128)
GROUPED = dict(SMALL, num_key_value_heads=2, head_dim=64)
# by type: what differs from the defaults
ENCODERS = {
    "bert": SMALL, "roberta": SMALL, "electra": dict(SMALL, embedding_size=128),
    "albert": dict(SMALL, embedding_size=128), "mpnet": SMALL, "ernie": SMALL,
    "distilbert": dict(vocab_size=VOCAB, dim=256, n_layers=3, n_heads=4, hidden_dim=512),
    "deberta-v2": SMALL, "modernbert": dict(SMALL, pad_token_id=0, attn_implementation="sdpa"),
}
DECODERS = {
    "gpt2": dict(vocab_size=VOCAB, n_embd=256, n_layer=3, n_head=4, n_positions=128),
    "llama": GROUPED, "mistral": GROUPED, "qwen3": GROUPED, "gemma2": GROUPED,
    "phi3": dict(SMALL, num_key_value_heads=2, pad_token_id=0), "olmo2": dict(
        SMALL, num_key_value_heads=2),
    "gpt_neox": SMALL, "opt": dict(vocab_size=VOCAB, hidden_size=256, ffn_dim=512,
                                   num_hidden_layers=3, num_attention_heads=4,
                                   max_position_embeddings=128, word_embed_proj_dim=256),
    "bloom": dict(vocab_size=VOCAB, hidden_size=256, n_layer=3, n_head=4),
    "falcon": dict(vocab_size=VOCAB, hidden_size=256, num_hidden_layers=3,
                   num_attention_heads=4),
    "mamba": dict(vocab_size=VOCAB, hidden_size=128, num_hidden_layers=2, state_size=8),
}


def ids(rows=2, length=32):
    return torch.zeros(rows, length, dtype=torch.int64)


def config_of(kind, settings):
    import transformers
    implementation = {k: v for k, v in settings.items() if k == "attn_implementation"}
    rest = {k: v for k, v in settings.items() if k != "attn_implementation"}
    return transformers.AutoConfig.for_model(kind, **rest), implementation


def encoder(kind):
    import transformers
    config, implementation = config_of(kind, ENCODERS[kind])
    model = transformers.AutoModel.from_config(config, **implementation)
    return forward(model, high={"input_ids": VOCAB}, input_ids=ids(),
                   pick=lambda r: r.last_hidden_state)


def decoder(kind):
    import transformers
    config, implementation = config_of(kind, DECODERS[kind])
    model = transformers.AutoModelForCausalLM.from_config(config, **implementation)
    return forward(functools.partial(model.eval(), use_cache=False), high={"input_ids": VOCAB},
                   input_ids=ids(), pick=lambda r: r.logits)


for _kind in ENCODERS:
    program("transformers." + _kind, ("transformers",))(functools.partial(encoder, _kind))
for _kind in DECODERS:
    program("transformers." + _kind, ("transformers",))(functools.partial(decoder, _kind))


@program("transformers.t5", ("transformers",))
def t5():
    import transformers
    config = transformers.T5Config(vocab_size=VOCAB, d_model=256, d_kv=64, d_ff=512, num_layers=2,
                                   num_heads=4)
    model = transformers.T5ForConditionalGeneration(config).eval()
    return forward(functools.partial(model, use_cache=False), high={
        "input_ids": VOCAB, "decoder_input_ids": VOCAB}, input_ids=ids(),
        decoder_input_ids=ids(2, 8), pick=lambda r: r.logits)


@program("transformers.bart", ("transformers",))
def bart():
    import transformers
    config = transformers.BartConfig(
        vocab_size=VOCAB, d_model=256, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=512,
        decoder_ffn_dim=512, encoder_attention_heads=4, decoder_attention_heads=4)
    model = transformers.BartModel(config).eval()
    return forward(functools.partial(model, use_cache=False), high={
        "input_ids": VOCAB, "decoder_input_ids": VOCAB}, input_ids=ids(),
        decoder_input_ids=ids(2, 8), pick=lambda r: r.last_hidden_state)


@program("transformers.whisper, encoder", ("transformers",))
def whisper():
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    config = transformers.WhisperConfig(d_model=128, encoder_layers=2, encoder_attention_heads=4,
                                        encoder_ffn_dim=256, max_source_positions=200)
    return forward(WhisperEncoder(config), "features", features=torch.zeros(1, 80, 400),
                   pick=lambda r: r.last_hidden_state)


@program("transformers.vit", ("transformers",))
def vit():
    import transformers
    config = transformers.ViTConfig(hidden_size=192, num_hidden_layers=3, num_attention_heads=3,
                                    intermediate_size=384)
    return forward(transformers.ViTModel(config), pixel_values=torch.zeros(2, 3, 224, 224),
                   pick=lambda r: r.last_hidden_state)


@program("transformers.clip, vision", ("transformers",))
def clip():
    import transformers
    config = transformers.CLIPVisionConfig(hidden_size=192, num_hidden_layers=3,
                                           num_attention_heads=3, intermediate_size=384)
    return forward(transformers.CLIPVisionModel(config), pixel_values=torch.zeros(2, 3, 224, 224),
                   pick=lambda r: r.pooler_output)


@program("transformers.wav2vec2", ("transformers",))
def wav2vec2():
    import transformers
    config = transformers.Wav2Vec2Config(hidden_size=192, num_hidden_layers=2,
                                         num_attention_heads=4, intermediate_size=384)
    return forward(transformers.Wav2Vec2Model(config), "x", x=torch.zeros(1, 8000),
                   pick=lambda r: r.last_hidden_state)


@program("transformers.mixtral, experts in one product", ("transformers",))
def mixtral():
    import transformers
    config = transformers.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2)
    config._experts_implementation = "batched_mm"
    model = transformers.MixtralForCausalLM(config).eval()
    return forward(functools.partial(model, use_cache=False), high={"input_ids": VOCAB},
                   input_ids=ids(), pick=lambda r: r.logits)


@program("transformers.llama, bfloat16, eager attention", ("transformers",))
def llama_half():
    import transformers
    config = transformers.LlamaConfig(**GROUPED)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.to(torch.bfloat16).eval()
    return forward(functools.partial(model, use_cache=False), high={"input_ids": VOCAB},
                   input_ids=ids(), pick=lambda r: r.logits)


def causal_training(model, optimizer):
    x = ids()

    def loss(m):
        logits = m(input_ids=x, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())
    return Training(model, optimizer, loss, {"x": x}, {"x": VOCAB})


@program("transformers.gpt2, training with AdamW and dropout", ("transformers",))
def gpt2_training():
    import transformers
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**DECODERS["gpt2"]))
    return causal_training(model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True,
                                                    capturable=base.CAPTURABLE))


@program("peft.LoRA of transformers.llama, training", ("transformers", "peft"))
def lora():
    import peft
    import transformers
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED))
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"],
                                                       lora_dropout=0.1))
    trained = [p for p in model.parameters() if p.requires_grad]
    return causal_training(model, torch.optim.Adam(trained, lr=1e-3, capturable=base.CAPTURABLE))
