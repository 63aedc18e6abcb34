"""Greedy decoding with a generative model's two programs, eager or compiled."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from threading import Thread

import numpy as np
import torch

from sealift.load import Session
from tests.models.generative import Generative


class Eager:
    """The modules over one cache, as a session is."""

    def __init__(self, modules: dict[str, torch.nn.Module], dtype: torch.dtype = torch.float32) -> None:
        self.first, self.second = (copy.deepcopy(m).to(dtype) for m in modules.values())
        shared = dict(self.first.named_buffers())
        for name, buffer in self.second.named_buffers():
            if name in shared and buffer.shape == shared[name].shape:
                parent, _, leaf = name.rpartition(".")
                setattr(self.second.get_submodule(parent), leaf, shared[name])

    def begin(self, prompt: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(self.first(torch.from_numpy(prompt)).numpy())

    def step(self, token: int, position: int) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(self.second(torch.tensor([[token]]), torch.tensor([position])).numpy())


class Compiled:
    def __init__(self, case: Generative, session: Session) -> None:
        self.first, self.second = (session[name] for name in case.names)

    def begin(self, prompt: np.ndarray) -> np.ndarray:
        return np.asarray(self.first(prompt))

    def step(self, token: int, position: int) -> np.ndarray:
        return np.asarray(self.second(np.array([[token]]), np.array([position])))


def generate(case: Generative, model: Eager | Compiled, prompt: np.ndarray, count: int) -> list[int]:
    """Greedy decoding."""
    logits = model.begin(prompt)
    position, token = (prompt.shape[1], int(logits.argmax())) if case.continues_prompt else (0, 0)
    tokens = [token]
    for k in range(count):
        tokens.append(int(model.step(tokens[-1], position + k).argmax()))
    return tokens


def generate_at_once(case: Generative, models: Sequence[Eager | Compiled], prompts: Sequence[np.ndarray], count: int) -> list[list[int]]:
    """A text a model, each on a thread of its own."""
    texts: list[list[int]] = [[] for _ in models]

    def write(which: int) -> None:
        texts[which] = generate(case, models[which], prompts[which], count)

    threads = [Thread(target=write, args=(w,)) for w in range(len(models))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return texts


def prompt_of(case: Generative, length: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, case.vocab, (1, length))
