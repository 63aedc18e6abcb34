"""Recurrent models and models that gather: taggers, a recommender, and two whose control flow depends on values."""

from __future__ import annotations

import torch
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

from tests.models.cases import Arguments, ModelCase, Parts, randn


def ids(*shape: int, high: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


class Tagger(torch.nn.Module):
    """Words -> a distribution over tags for each: embedding, recurrent layers in both directions, a linear layer."""

    def __init__(self, kind: str, words: int, width: int, hidden: int, tags: int, layers: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        self.recurrent = getattr(torch.nn, kind)(width, hidden, num_layers=layers, bidirectional=True, batch_first=True)
        self.tags = torch.nn.Linear(2 * hidden, tags)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(self.embedding(words))
        return torch.log_softmax(self.tags(hidden), dim=-1)


class Decoder(torch.nn.Module):
    """One call's worth of a stream: features and the states before them in, outputs and the states after them out."""

    def __init__(self, kind: str, width: int, hidden: int) -> None:
        super().__init__()
        self.recurrent = getattr(torch.nn, kind)(width, hidden, num_layers=2)

    def forward(self, features: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, after = self.recurrent(features, tuple(states) if len(states) > 1 else states[0])
        return (out, *after) if isinstance(after, tuple) else (out, after)


class Dlrm(torch.nn.Module):
    """Facebook's recommender: dense features through an MLP, a bag of each table, products of all pairs, another MLP."""

    def __init__(self, tables: int, rows: int, width: int, dense: int, bottom: int, top: int) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = torch.nn.Sequential(torch.nn.Linear(dense, bottom), torch.nn.ReLU(), torch.nn.Linear(bottom, width), torch.nn.ReLU())
        pairs = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("rows", pairs[0])
        self.register_buffer("columns", pairs[1])
        self.top = torch.nn.Sequential(
            torch.nn.Linear(width + pairs.shape[1], top),
            torch.nn.ReLU(),
            torch.nn.Linear(top, top // 2),
            torch.nn.ReLU(),
            torch.nn.Linear(top // 2, 1),
        )

    def forward(self, dense: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """dense [batch, features]; indices [tables, count]; offsets [tables, batch]: where each row's bag begins"""
        below = self.bottom(dense)
        bags = [table(indices[k], offsets[k]) for k, table in enumerate(self.tables)]
        features = torch.stack([below, *bags], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        return torch.sigmoid(self.top(torch.cat([below, products[:, self.rows, self.columns]], dim=1)))


class EarlyExit(torch.nn.Module):
    """A cheap answer where the first layer is sure of it, else the whole network's, which answers easy inputs in yet another way."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(width, width)
        self.exit = torch.nn.Linear(width, classes)
        self.deep = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(3)))
        self.last = torch.nn.Linear(width, classes)
        self.register_buffer("threshold", torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.first(x))
        early = torch.softmax(self.exit(hidden), dim=-1)

        def stop(hidden: torch.Tensor, early: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return early.clone(), early.amax(-1)

        def go_on(hidden: torch.Tensor, early: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            deep = torch.cond(hidden.mean() > 1, lambda h: h * self.threshold, lambda h: self.deep(h) + h, (hidden,))
            late = torch.softmax(self.last(deep), dim=-1)
            return late, late.amax(-1)

        answer: tuple[torch.Tensor, torch.Tensor] = torch.cond(early.amax(-1).min() > self.threshold, stop, go_on, (hidden, early))
        return answer


class Equilibrium(torch.nn.Module):
    """z = tanh(W z + U x), iterated until it moves less than a tolerance: how often depends on the data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        torch.nn.init.normal_(self.inner.weight, std=0.3 / width**0.5)

    def forward(self, x: torch.Tensor, tolerance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        given = self.outer(x)

        def moves(turn: torch.Tensor, z: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
            return torch.logical_and(change > tolerance, turn < 50)

        def step(turn: torch.Tensor, z: torch.Tensor, change: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            after = torch.tanh(self.inner(z) + given)
            return turn + 1, after, (after - z).abs().amax()

        start = torch.zeros((), dtype=torch.int64), torch.zeros_like(given), torch.ones((), dtype=given.dtype)
        turns, z, _ = while_loop(moves, step, start)
        return z, turns


def dlrm_inputs(tables: int, rows: int, dense: int, batch: int, bag: int, seed: int) -> Arguments:
    """batch * bag + 1 rows in all, cut into bags at random: some are empty."""
    generator = torch.Generator().manual_seed(seed)
    count = batch * bag + 1
    offsets = torch.randint(0, count, (tables, batch), generator=generator).sort(dim=1).values
    offsets[:, 0] = 0
    return randn(batch, dense, seed=seed), ids(tables, count, high=rows, seed=seed), offsets


def _early_exit() -> Parts:
    torch.manual_seed(0)
    model = EarlyExit(24, 5).eval()
    with torch.no_grad():
        model.exit.weight *= 4
    inputs = [(randn(b, 24, seed=b) * size,) for b, size in ((3, 1.0), (2, 9.0), (2, 0.01), (33, 6.0), (2, 40.0))]
    return model, inputs, {"x": {0: Dim("batch", min=2, max=4096)}}  # torch's tracing of a branch takes sizes of 1 for constants


def _equilibrium() -> Parts:
    torch.manual_seed(0)
    model = Equilibrium(24).eval()
    inputs = [(randn(b, 24, seed=b), torch.tensor(tolerance)) for b, tolerance in ((3, 1e-2), (1, 2.0), (33, 1e-1), (5, 0.5))]
    return model, inputs, {"x": {0: _BATCH}, "tolerance": None}


_BATCH, _LENGTH = Dim("batch", min=1, max=4096), Dim("length", min=1, max=2048)


def _tagger(kind: str, words: int, width: int, hidden: int, layers: int, sizes: tuple[tuple[int, int], ...]) -> Parts:
    torch.manual_seed(0)
    model = Tagger(kind, words, width, hidden, 17, layers).eval()
    return model, [(ids(b, t, high=words, seed=b + t),) for b, t in sizes], {"words": {0: _BATCH, 1: _LENGTH}}


def _decoder(kind: str) -> Parts:
    torch.manual_seed(0)
    width, hidden, count = 24, 40, 2 if kind == "LSTM" else 1
    model = Decoder(kind, width, hidden).eval()
    inputs = [(randn(t, b, width, seed=t), *(randn(2, b, hidden, seed=k) for k in range(count))) for t, b in ((4, 3), (1, 1), (33, 2))]
    return model, inputs, {"features": {0: _LENGTH, 1: _BATCH}, "states": tuple({1: _BATCH} for _ in range(count))}


def _dlrm(tables: int, rows: int, width: int, top: int, batches: tuple[int, ...]) -> Parts:
    torch.manual_seed(0)
    model = Dlrm(tables, rows, width, 13, 4 * width, top).eval()
    count = Dim("count", min=1, max=1 << 20)
    inputs = [dlrm_inputs(tables, rows, 13, b, 5, seed=b) for b in batches]
    batch = Dim("batch", min=1, max=8192)
    return model, inputs, {"dense": {0: batch}, "indices": {1: count}, "offsets": {1: batch}}


SMALL = (
    ModelCase("lstm_tagger", lambda: _tagger("LSTM", 100, 24, 40, 2, ((3, 7), (1, 1), (2, 33), (9, 4))), "two layers, both directions, any length"),
    ModelCase("gru_tagger", lambda: _tagger("GRU", 100, 24, 40, 2, ((3, 7), (1, 1), (2, 33), (9, 4))), "two layers, both directions, any length"),
    ModelCase("lstm_stream", lambda: _decoder("LSTM"), "states in and out"),
    ModelCase("gru_stream", lambda: _decoder("GRU"), "states in and out"),
    ModelCase("early_exit", _early_exit, "a branch in a branch; weights in both"),
    ModelCase("equilibrium", _equilibrium, "a loop that ends when its values settle"),
    ModelCase("dlrm", lambda: _dlrm(5, 50, 16, 32, (6, 1, 33)), "five tables"),
)
LARGE = (
    ModelCase("lstm_tagger_large", lambda: _tagger("LSTM", 20000, 128, 256, 2, ((2, 16), (1, 128), (32, 128), (5, 300))), "20,000 words, 256 units"),
    ModelCase("gru_tagger_large", lambda: _tagger("GRU", 20000, 128, 256, 2, ((2, 16), (1, 128), (32, 128))), "20,000 words, 256 units"),
    ModelCase("dlrm_26", lambda: _dlrm(26, 20000, 64, 256, (4, 1, 32, 256, 2048)), "26 tables of 20,000 x 64"),
)
CASES = SMALL + LARGE
