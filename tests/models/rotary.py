"""Llama as Meta published it: positions are turns of complex numbers, taken from and put back into pairs of neighbours."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.models.cases import ModelCase, Parts, scale_by_fan_in

ROOM = 64  # positions


def turns(size: int, length: int, theta: float = 10000.0) -> torch.Tensor:
    """complex64 [length, size / 2]: the turn of each pair at each position."""
    speeds = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(length).float(), speeds)
    return torch.polar(torch.ones_like(angles), angles)


def turned(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """x [b, s, heads, size] with the pairs along its last dimension multiplied by turns [s, size / 2]."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * by[:, None, :]).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, kv_heads * self.size, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor, by: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = turned(self.wq(x).view(batch, length, self.heads, self.size), by)
        k = turned(self.wk(x).view(batch, length, self.kv_heads, self.size), by)
        v = self.wv(x).view(batch, length, self.kv_heads, self.size)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=2).transpose(1, 2) for t in (k, v))
        scores = q.transpose(1, 2) @ k.transpose(2, 3) / self.size**0.5 + mask
        return self.wo((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, -1))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, kv_heads)
        self.w1, self.w3, self.w2 = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(3 * width, width, bias=False),
        )
        self.attention_norm, self.ffn_norm = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)

    def forward(self, x: torch.Tensor, by: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), by, mask)
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))  # type: ignore[no-any-return]


class MetaLlama(nn.Module):
    """tokens [b, s] -> logits [b, s, vocab]"""

    def __init__(self, layers: int, width: int, heads: int, kv_heads: int, vocab: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads) for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(width, 1e-5), nn.Linear(width, vocab, bias=False)
        self.register_buffer("freqs_cis", turns(width // heads, ROOM), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        h = self.tok_embeddings(tokens)
        by = self.freqs_cis[:length]
        mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
        for layer in self.layers:
            h = layer(h, by, mask)
        return self.output(self.norm(h))  # type: ignore[no-any-return]


def meta_llama(layers: int, width: int, heads: int, kv_heads: int, vocab: int, sizes: tuple[tuple[int, int], ...]) -> Parts:
    torch.manual_seed(0)
    module = scale_by_fan_in(MetaLlama(layers, width, heads, kv_heads, vocab), gain=1.0).eval()
    tokens = [(torch.randint(0, vocab, size, generator=torch.Generator().manual_seed(size[1])),) for size in sizes]
    return module, tokens, ({0: Dim("batch", min=1, max=8), 1: Dim("length", min=1, max=ROOM)},)


SMALL = (ModelCase("meta_llama", lambda: meta_llama(2, 64, 8, 2, 257, ((2, 9), (1, 1), (3, 64))), "rotary by complex numbers, grouped queries"),)
