"""Generative models as a user exports them: a cache of rows in registered buffers, prefill and decode (or encode and decode) in one package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.export import Dim, ExportedProgram


class RowCache(torch.nn.Module):
    """Keys and values of every layer, [1, heads, length, head_dim]: what Hugging Face's modules take for a cache, in buffers that export
    sees. `at` are the positions that the run's tokens have; `update` writes their rows. `whole`: whether attention then reads every row."""

    def __init__(self, layers: int, heads: int, length: int, head_dim: int, whole: bool) -> None:
        super().__init__()
        self.length, self.whole = length, whole
        self.at = torch.zeros(1, dtype=torch.int64)
        for i in range(layers):
            for name in ("key", "value"):
                self.register_buffer(f"{name}{i}", torch.zeros(1, heads, length, head_dim))

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        kept = [getattr(self, f"{name}{layer}") for name in ("key", "value")]
        for buffer, rows in zip(kept, (keys, values), strict=True):
            buffer.index_copy_(2, self.at, rows)
        return (kept[0], kept[1]) if self.whole else (keys, values)

    def get_seq_length(self, layer: int = 0) -> Any:
        return self.at[0]


class CausalLm(torch.nn.Module):
    """A Hugging Face causal model over a RowCache. prefill: input_ids [1, n] from position 0 on -> logits of the last token [1, vocab].
    decode: one token [1, 1] at position [1] -> its logits."""

    def __init__(self, lm: torch.nn.Module, body: str, heads: int, head_dim: int, length: int, decodes: bool) -> None:
        super().__init__()
        self.lm, self.body, self.decodes = lm, body, decodes
        self.cache = RowCache(lm.config.num_hidden_layers, heads, length, head_dim, whole=decodes)  # type: ignore[union-attr,arg-type]

    def run(self, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.cache.at = at
        keys = torch.arange(self.cache.length) if self.decodes else at
        mask = keys[None, None, None, :] <= at[None, None, :, None]
        body = getattr(self.lm, self.body)
        hidden = body(input_ids=tokens, attention_mask=mask, position_ids=at[None], cache=self.cache, use_cache=True).last_hidden_state
        logits: torch.Tensor = self.lm.lm_head(hidden[:, -1])  # type: ignore[operator]
        return logits


class Prefill(CausalLm):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.run(input_ids, torch.arange(input_ids.shape[1]))


class Decode(CausalLm):
    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.run(token, position)


# ---- encoder and decoder -----------------------------------------------------------------------------------------------------------------


class Source(torch.nn.Module):
    """What the encoder leaves to the decoder: every decoder layer's keys and values of the source, [1, heads, room, head_dim], and which of
    the rows are the source's."""

    def __init__(self, layers: int, heads: int, room: int, head_dim: int) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1, 1, 1, room, dtype=torch.bool))
        for i in range(layers):
            for name in ("key", "value"):
                self.register_buffer(f"{name}{i}", torch.zeros(1, heads, room, head_dim))


class T5(torch.nn.Module):
    """encode: source ids [1, n] -> its hidden states [1, n, width], and the session's Source. decode: one token [1, 1] at position [1] -> its
    logits [1, vocab]."""

    def __init__(self, t5: torch.nn.Module, length: int, room: int) -> None:
        super().__init__()
        self.t5 = t5
        c: Any = t5.config
        self.cache = RowCache(c.num_decoder_layers, c.num_heads, length, c.d_kv, whole=True)
        self.source = Source(c.num_decoder_layers, c.num_heads, room, c.d_kv)
        self.width = c.d_model

    def attention(self, layer: int) -> Any:
        return self.t5.decoder.block[layer].layer[1].EncDecAttention  # type: ignore[union-attr,index]


class Encode(T5):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.t5.encoder(input_ids=input_ids).last_hidden_state  # type: ignore[operator]
        rows = torch.arange(input_ids.shape[1])
        self.source.seen.copy_(torch.arange(self.source.seen.shape[-1]) < input_ids.shape[1])
        for i in range(len(self.t5.decoder.block)):  # type: ignore[union-attr,arg-type]
            attention = self.attention(i)
            for name, project in (("key", attention.k), ("value", attention.v)):
                heads = project(hidden).view(1, -1, attention.n_heads, attention.key_value_proj_dim).transpose(1, 2)
                getattr(self.source, f"{name}{i}").index_copy_(2, rows, heads)
        return hidden


class DecodeT5(T5):
    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        from transformers.cache_utils import EncoderDecoderCache

        self.cache.at = position
        layers = len(self.t5.decoder.block)  # type: ignore[union-attr,arg-type]
        both = EncoderDecoderCache.__new__(EncoderDecoderCache)  # its __init__ wants the library's own caches
        both.self_attention_cache, both.cross_attention_cache = self.cache, _Layers(self.source, layers)
        both.is_updated = dict.fromkeys(range(layers), True)
        hidden = self.t5.decoder(  # type: ignore[operator]
            input_ids=token,
            attention_mask=(torch.arange(self.cache.length) <= position)[None, None, None],
            encoder_hidden_states=torch.zeros(1, 1, self.width),  # not looked at: keys and values are there
            encoder_attention_mask=self.source.seen,
            cache=both,
            use_cache=True,
        ).last_hidden_state
        logits: torch.Tensor = self.t5.lm_head(hidden[:, -1] * self.width**-0.5)  # type: ignore[operator]
        return logits


class _Layers:
    """The library's view of the Source: layers[i].keys and .values."""

    @dataclass
    class Layer:
        keys: torch.Tensor
        values: torch.Tensor

    def __init__(self, source: Source, count: int) -> None:
        self.layers = [self.Layer(getattr(source, f"key{i}"), getattr(source, f"value{i}")) for i in range(count)]


# ---- cases ------------------------------------------------------------------------------------------------------------------------------

Programs = Mapping[str, ExportedProgram]


@dataclass(frozen=True)
class Generative:
    """`modules()` gives the eager models by name, which share their weights, not their caches. `length` bounds prompt and answer."""

    name: str
    modules: Callable[[], dict[str, torch.nn.Module]]
    length: int
    vocab: int
    note: str = ""
    names: tuple[str, str] = ("prefill", "decode")
    continues_prompt: bool = True  # the answer's positions follow the prompt's; else they begin at 0, as a decoder's do

    def programs(self, modules: Mapping[str, torch.nn.Module]) -> Programs:
        prompt = torch.zeros(1, min(8, self.length), dtype=torch.int64)
        token, position = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        n = Dim("prompt", min=1, max=self.length)
        with torch.no_grad():
            first, second = self.names
            return {
                first: torch.export.export(modules[first], (prompt,), dynamic_shapes=({1: n},)),
                second: torch.export.export(modules[second], (token, position)),
            }


def _causal(lm: torch.nn.Module, body: str, heads: int, head_dim: int, length: int) -> dict[str, torch.nn.Module]:
    arguments = (lm.eval(), body, heads, head_dim, length)
    return {"prefill": Prefill(*arguments, decodes=False).eval(), "decode": Decode(*arguments, decodes=True).eval()}


def gpt2(layers: int = 12, width: int = 768, heads: int = 12, vocab: int = 50257, length: int = 1024) -> dict[str, torch.nn.Module]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocab, n_positions=length, attn_implementation="sdpa")
    return _causal(_lively(GPT2LMHeadModel(config)), "transformer", heads, width // heads, length)


def llama(layers: int = 2, width: int = 512, heads: int = 8, kv_heads: int = 2, vocab: int = 32000, length: int = 1024) -> dict[str, torch.nn.Module]:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=width * 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocab,
        max_position_embeddings=length,
        attn_implementation="sdpa",
    )
    return _causal(_lively(LlamaForCausalLM(config)), "model", kv_heads, width // heads, length)


def t5(layers: int = 6, width: int = 512, heads: int = 8, vocab: int = 32128, length: int = 512) -> dict[str, torch.nn.Module]:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        num_layers=layers,
        num_decoder_layers=layers,
        d_model=width,
        d_kv=width // heads,
        d_ff=width * 4,
        num_heads=heads,
        vocab_size=vocab,
        attn_implementation="sdpa",
    )
    model = T5ForConditionalGeneration(config).eval()
    model.lm_head.weight = torch.nn.Parameter(torch.randn(vocab, width))  # of its own: under the embedding's every token says itself
    return {"encode": Encode(model, length, length).eval(), "decode": DecodeT5(model, length, length).eval()}


def _lively(lm: torch.nn.Module) -> torch.nn.Module:
    """Random weights of a size under which tokens differ: at the library's 0.02 every position says the same."""
    with torch.no_grad():
        for parameter in lm.parameters():
            if parameter.ndim == 2:
                parameter.mul_(10.0)
    return lm


GPT2_SMALL = Generative("gpt2_small", partial(gpt2, 2, 64, 4, 257, 1100), 1100, 257, "GPT-2 of two narrow layers")
LLAMA_SMALL = Generative("llama_small", partial(llama, 2, 64, 8, 2, 257, 128), 128, 257, "rotary, grouped queries, RMS norm")
T5_SMALL = Generative("t5_narrow", partial(t5, 2, 64, 4, 257, 96), 96, 257, "T5 of two narrow layers", ("encode", "decode"), False)
GPT2 = Generative("gpt2", gpt2, 1024, 50257, "124 M parameters")
LLAMA = Generative("llama", llama, 1024, 32000, "two layers of width 512, 8 heads over 2")
T5_BASE = Generative("t5_small", t5, 512, 32128, "encoder and decoder of 6 layers", ("encode", "decode"), False)
