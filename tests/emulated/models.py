"""Models whose compiled code the guest runs: small, and together most of what the compiler generates. Each becomes a package and a file of cases."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim
from torch.nn import functional as F

import sealift
from sealift.options import Options
from tests.emulated.guest import ROOT, Program, run_command
from tests.models.zoo import Mlp

CODES = {torch.float32: (2, 32), torch.float64: (2, 64), torch.int64: (0, 64), torch.int32: (0, 32), torch.bool: (6, 8)}  # DLPack's


class Block(torch.nn.Module):
    """Two transformer layers on tokens, causal, with grouped heads, rotary positions and a head over the vocabulary."""

    def __init__(self, vocabulary: int = 97, width: int = 48, heads: int = 4, kv_heads: int = 2) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.layers = torch.nn.ModuleList()
        for _ in range(2):
            layer = torch.nn.ModuleDict({
                "norm1": torch.nn.LayerNorm(width), "norm2": torch.nn.LayerNorm(width), "q": torch.nn.Linear(width, width),
                "kv": torch.nn.Linear(width, 2 * kv_heads * self.size), "out": torch.nn.Linear(width, width),
                "up": torch.nn.Linear(width, 4 * width), "down": torch.nn.Linear(4 * width, width),
            })  # fmt: skip
            self.layers.append(layer)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        half = self.size // 2
        angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embed(tokens)
        batch, length, width = x.shape
        for layer in self.layers:
            y = layer["norm1"](x)
            q = layer["q"](y).view(batch, length, self.heads, self.size).transpose(1, 2)
            k, v = layer["kv"](y).view(batch, length, 2 * self.kv_heads, self.size).transpose(1, 2).chunk(2, 1)
            y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=True)
            x = x + layer["out"](y.transpose(1, 2).reshape(batch, length, width))
            x = x + layer["down"](F.gelu(layer["up"](layer["norm2"](x))))
        return torch.softmax(self.head(x), -1), self.head(x)[:, -1].argmax(-1)


class Pixels(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = torch.nn.Conv2d(3, 24, 3, stride=2, padding=1), torch.nn.BatchNorm2d(24)
        self.b, self.c = torch.nn.Conv2d(24, 24, 3, padding=1, groups=24), torch.nn.Conv2d(24, 24, 1)
        self.d = torch.nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.norm(self.a(x)))
        x = F.relu(x + self.c(F.hardswish(self.b(x))))
        x = F.max_pool2d(x, 2)
        return F.log_softmax(self.d(x.mean((2, 3))), -1)


class Mixture(torch.nn.Module):
    """Elementwise work, reductions along every axis, dtypes side by side, reads and writes with strides and indices."""

    def forward(self, x: torch.Tensor, index: torch.Tensor, flags: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.where(flags, torch.tanh(x) * torch.exp(-x.abs()), torch.sin(x) + torch.erf(x))
        half = x.to(torch.bfloat16).to(x.dtype) + x.to(torch.float16).to(x.dtype)
        rows = x[index] + x.transpose(0, 1).sum(0)[index][:, None]
        whole = index * 3 // 2 - index % 4
        return (
            y, half, rows, whole, x.sum(), x.amax(0), x.std(1), torch.logsumexp(x, 1), x.argmin(1), torch.cumsum(x, 1),
            (x > 0.3) & flags, x[:, 1::3] * x[:, 0:52:3], F.pad(x, (2, 3)), torch.log1p(x * x).to(torch.float64).mean(1),
            torch.floor_divide(x, 0.37), torch.remainder(x, 0.37), torch.round(x * 7), x.clamp(-0.5, 0.5).pow(3),
        )  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    module: Callable[[], torch.nn.Module]
    inputs: Callable[[int, torch.Generator], tuple[torch.Tensor, ...]]
    sizes: tuple[int, ...]  # of the batch; the first is exported
    dynamic_shapes: Any = None


def _mixture(rows: int, g: torch.Generator) -> tuple[torch.Tensor, ...]:
    return torch.randn(rows, 53, generator=g), torch.randint(0, rows, (19,), generator=g), torch.rand(rows, 53, generator=g) < 0.5


_BATCH = Dim("batch", min=1, max=1024)
CASES = (
    Case("mlp", Mlp, lambda n, g: (torch.randn(n, 10, generator=g),), (8, 1, 2, 33, 200), {"x": {0: _BATCH}}),
    Case("block", Block, lambda n, g: (torch.randint(0, 97, (n, 37), generator=g),), (2, 1, 3), {"tokens": {0: _BATCH}}),
    Case("pixels", Pixels, lambda n, g: (torch.randn(n, 3, 30, 34, generator=g),), (2, 1), {"x": {0: _BATCH}}),
    Case("mixture", Mixture, _mixture, (40, 1, 17), {"x": {0: _BATCH}, "index": None, "flags": {0: _BATCH}}),
)


def prepare(case: Case, directory: Path, isas: tuple[str, ...] = ("baseline", "avx512")) -> Program:
    """What the guest needs to run the model: the outputs of eager in float64, and for each how far another float32 result may be."""
    torch.manual_seed(0)
    module = case.module().eval()
    generator = torch.Generator().manual_seed(1)
    exported = torch.export.export(module, case.inputs(case.sizes[0], generator), dynamic_shapes=case.dynamic_shapes)
    package = sealift.compile(exported, directory / f"{case.name}.pt2", options=Options(isas=isas))
    double = copy.deepcopy(module).double()
    out = bytearray(struct.pack("<q", len(case.sizes)))
    for size in case.sizes:
        inputs = case.inputs(size, generator)
        with torch.no_grad():
            eager = module(*inputs)
            exact = double(*(t.double() if t.is_floating_point() else t for t in inputs))
        eager, exact = (r if isinstance(r, tuple) else (r,) for r in (eager, exact))
        out += struct.pack("<q", len(inputs)) + b"".join(map(_tensor, inputs)) + struct.pack("<q", len(eager))
        for e, x in zip(eager, exact):
            same = not e.is_floating_point() or e.dtype is torch.bfloat16
            # Exact where eager is discontinuous, so where float32 decides; else as tests/models compares.
            error = (e.double() - x.double()).abs().max().item() if e.numel() else 0.0
            scale = x.double().abs().max().item() if x.numel() else 0.0
            steps = error > 1e-3 * max(scale, 1.0)
            want, allowed = (e.double(), 0.0) if same else (e.double(), 1e-6 * scale) if steps else (x.double(), 2 * error + 1e-6 * scale)
            out += _tensor(want) + struct.pack("<d", allowed)
    cases = directory / f"{case.name}.cases"
    cases.write_bytes(out)
    return Program(_runner(directory), (package.name, cases.name, isas[-1]), (package, cases))


def _tensor(t: torch.Tensor) -> bytes:
    code, bits = CODES[t.dtype]
    return struct.pack(f"<{3 + t.dim()}q", code, bits, t.dim(), *t.shape) + t.contiguous().numpy().tobytes()


def _runner(directory: Path) -> Path:
    program = directory / "run_package"
    if not program.exists():
        library = next(p for d in sealift.__path__ for p in Path(d).glob("lib/libsealift_static.a"))
        includes = [f"-I{ROOT / 'runtime/include'}", f"-I{ROOT / 'contracts'}"]
        run_command(
            [
                "g++",
                "-std=c++17",
                "-O2",
                *includes,
                str(ROOT / "tests/emulated/run_package.cpp"),
                str(library),
                "-lpthread",
                "-ldl",
                "-o",
                str(program),
            ]
        )
    return program
