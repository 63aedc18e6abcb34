"""Small models as their users write them, each around one thing that a newcomer tries: experts chosen by token, attention maps of a CNN,
spectra, masks and rotary positions, writes through views, odd structures of inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers.integrations.moe  # noqa: F401 - which registers transformers.grouped_mm_fallback
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.models.cases import Arguments, ModelCase, Parts, randn, scale_by_fan_in


class Experts(nn.Module):
    """A mixture of experts as transformers exports it: tokens sorted by expert, two grouped products, and back."""

    def __init__(self, width: int = 16, hidden: int = 32, experts: int = 4, chosen: int = 2) -> None:
        super().__init__()
        self.chosen, self.router = chosen, nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(randn(experts, width, hidden, seed=1) / width**0.5)
        self.down = nn.Parameter(randn(experts, hidden, width, seed=2) / hidden**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, expert = self.router(x).softmax(-1).topk(self.chosen)
        flat = expert.flatten()
        order = flat.argsort(stable=True)
        ends = F.one_hot(flat, self.router.out_features).sum(0).cumsum(0).to(torch.int32)
        rows = x.repeat_interleave(self.chosen, 0)[order]
        grouped = torch.ops.transformers.grouped_mm_fallback
        given = grouped(F.silu(grouped(rows, self.up, ends)), self.down, ends)
        scattered = torch.zeros_like(given).index_copy(0, order, given)
        return (scattered.view(-1, self.chosen, x.shape[-1]) * weight[..., None]).sum(1)


class AttentiveBlock(nn.Module):
    """Channel and spatial attention (CBAM) around a dilated grouped convolution, then pixels up."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding="same", dilation=2, groups=4, padding_mode="reflect")
        self.gate = nn.Sequential(nn.Conv2d(channels, 4, 1), nn.ReLU(), nn.Conv2d(4, channels, 1))
        self.place = nn.Conv2d(2, 1, 7, padding=3)
        self.up = nn.Sequential(nn.PixelShuffle(2), nn.ConvTranspose2d(channels // 4, 3, (3, 4), stride=(1, 2), padding=1, output_padding=(0, 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        y = y * torch.sigmoid(self.gate(F.adaptive_max_pool2d(y, 1)) + self.gate(F.adaptive_avg_pool2d(y, 1)))
        places = torch.cat([y.amax(1, keepdim=True), y.mean(1, keepdim=True)], 1)
        return self.up(x + y * torch.sigmoid(self.place(places)))  # type: ignore[no-any-return]


class LogMel(nn.Module):
    """What speech models hear: the logarithm of a short-time spectrum in bands."""

    def __init__(self, size: int = 400, bands: int = 20) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size))
        self.register_buffer("bands", randn(bands, size // 2 + 1).abs())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(x, self.size, self.size * 2 // 5, window=self.window, return_complex=True)
        return (self.bands @ spectrum.abs().square()).clamp(min=1e-6).log10()


class SpectralConv(nn.Module):
    """A layer of a Fourier neural operator: the low frequencies of an image are mixed, and the image is put together again."""

    def __init__(self, channels: int = 3, modes: int = 4) -> None:
        super().__init__()
        self.modes = modes
        self.mix = nn.Parameter(randn(channels, channels, modes, modes, 2) / channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft2(x, norm="ortho")
        low = torch.einsum("bixy,ioxy->boxy", spectrum[..., : self.modes, : self.modes], torch.view_as_complex(self.mix))
        kept = torch.zeros_like(spectrum)
        kept[..., : self.modes, : self.modes] = low
        return torch.fft.irfft2(kept, s=x.shape[-2:], norm="ortho")


class GroupedQueries(nn.Module):
    """Attention with grouped queries, rotary positions in a buffer, a causal mask and a padding mask."""

    def __init__(self, width: int = 32, heads: int = 4, kv_heads: int = 2, longest: int = 128) -> None:
        super().__init__()
        self.heads, self.kv_heads, size = heads, kv_heads, width // heads
        angles = torch.outer(torch.arange(longest).float(), 10000.0 ** -(torch.arange(0, size, 2) / size))
        self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()]).repeat_interleave(2, -1), persistent=False)
        self.words, self.norm = nn.Embedding(50, width), nn.RMSNorm(width)
        self.queries, self.pairs = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * kv_heads * size, bias=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = self.turns[:, : x.shape[-2]]
        return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin

    def forward(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        x = self.norm(self.words(ids))
        q = self.queries(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.pairs(x).unflatten(-1, (2, self.kv_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.ones(length, length, dtype=torch.bool).tril() & real[:, None, None]
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, attn_mask=mask, enable_gqa=True)
        return F.linear(x + y.transpose(1, 2).flatten(2), self.words.weight)


class ThroughViews(nn.Module):
    """Writes in place through views of views."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.clone()
        y[:, 1] = 0
        y[0].mul_(2)
        y[..., ::2] += 1
        y.view(-1)[3:6].fill_(9)
        y.t()[0].sigmoid_()
        y[[0, 2], [1, 1]] = 7.0
        y.diagonal().add_(1)
        return y, y.t()


def _ids(batch: int, length: int) -> Arguments:
    real = torch.ones(batch, length, dtype=torch.bool)
    real[0, length // 2 + 1 :] = False
    return torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(length)), real


def _case(name: str, make: type[nn.Module], inputs: Sequence[Arguments], dynamic: Any, note: str = "") -> ModelCase:
    def build() -> Parts:
        torch.manual_seed(0)
        return scale_by_fan_in(make()).eval(), list(inputs), dynamic

    return ModelCase(name, build, note)


_BATCH, _LENGTH = Dim("batch", min=1, max=8), Dim("length", min=1, max=64)
CASES = [
    _case("experts", Experts, [(randn(n, 16),) for n in (6, 1, 33)], ({0: Dim("tokens", min=1, max=64)},)),
    _case("attentive_block", AttentiveBlock, [(randn(n, 16, 9, 11),) for n in (2, 1)], ({0: _BATCH},)),
    _case("log_mel", LogMel, [(randn(n, 4000),) for n in (2, 1)], ({0: _BATCH},)),
    _case("spectral_conv", SpectralConv, [(randn(n, 3, 12, 10),) for n in (2, 1)], ({0: _BATCH},)),
    _case("grouped_queries", GroupedQueries, [_ids(2, 9), _ids(1, 1), _ids(3, 64)], ({0: _BATCH, 1: _LENGTH}, {0: _BATCH, 1: _LENGTH})),
    _case("through_views", ThroughViews, [(randn(3, 4),)], None),
]
EVERY_DAY = ("experts", "log_mel")
