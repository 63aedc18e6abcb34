"""Prefill and decode over one session against eager: logits as near to float64 as eager's, greedy tokens one by one, memory, and two texts at once."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import sealift
from sealift.load import Package
from tests.models.cases import error_ratio
from tests.models.generation import Compiled, Eager, generate, generate_at_once, prompt_of
from tests.models.generative import GPT2, GPT2_SMALL, LLAMA, LLAMA_SMALL, T5_BASE, T5_SMALL, Generative


@dataclass(frozen=True)
class Built:
    case: Generative
    modules: dict[str, torch.nn.Module]
    package: Package


@pytest.fixture(
    scope="module",
    params=[GPT2_SMALL, LLAMA_SMALL, T5_SMALL, *(pytest.param(c, marks=pytest.mark.slow) for c in (GPT2, LLAMA, T5_BASE))],
    ids=lambda c: c.name,
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    case: Generative = request.param
    modules = case.modules()
    path = sealift.compile(case.programs(modules), tmp_path_factory.mktemp(case.name) / f"{case.name}.pt2")
    yield Built(case, modules, sealift.load_package(path))


def test_every_step_is_as_close_to_float64_as_eager_is(built: Built) -> None:
    case = built.case
    for length in (1, 5, min(case.length - 4, 100)):
        eager, exact, compiled = Eager(built.modules), Eager(built.modules, torch.float64), Compiled(case, built.package.session())
        prompt = prompt_of(case, length, length)
        results = [model.begin(prompt) for model in (compiled, eager, exact)]
        assert error_ratio(*results) <= 1, f"the first logits of {length} tokens"
        start = length if case.continues_prompt else 0
        for k, token in enumerate(prompt_of(case, 4, 7)[0]):
            results = [model.step(int(token), start + k) for model in (compiled, eager, exact)]
            assert error_ratio(*results) <= 1, f"step {k} after {length} tokens"
            assert np.abs(results[0]).max() > 0.1, "the signal died"


def test_greedy_decoding_says_what_eager_says(built: Built) -> None:
    case = built.case
    count = min(40, case.length - 12)
    wanted = generate(case, Eager(built.modules), prompt_of(case, 8, 1), count)
    assert generate(case, Compiled(case, built.package.session()), prompt_of(case, 8, 1), count) == wanted
    assert len(set(wanted)) > 3, "tokens that all agree test nothing"


def test_a_clone_and_a_reset(built: Built) -> None:
    case, session = built.case, built.package.session()
    prompt = prompt_of(case, 6, 2)
    first = Compiled(case, session)
    once = generate(case, first, prompt, 5)
    copied = Compiled(case, session.clone())
    at = 11 if case.continues_prompt else 5
    np.testing.assert_array_equal(copied.step(once[-1], at), first.step(once[-1], at))
    session.reset()
    assert generate(case, first, prompt, 5) == once


def test_two_sessions_write_two_texts_at_once(built: Built) -> None:
    case = built.case
    prompts = [prompt_of(case, 7, seed) for seed in (3, 4)]
    alone = [generate(case, Compiled(case, built.package.session()), p, 30) for p in prompts]
    together = generate_at_once(case, [Compiled(case, built.package.session()) for _ in prompts], prompts, 30)
    assert together == alone
    assert alone[0] != alone[1]


def test_a_thousand_steps_say_what_eager_says_in_flat_memory(built: Built) -> None:
    if built.case not in (GPT2_SMALL, GPT2):
        pytest.skip("one model is enough")
    case, prompt = built.case, prompt_of(built.case, 20, 5)
    compiled = Compiled(case, built.package.session())
    generate(case, compiled, prompt, 50)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tokens = generate(case, compiled, prompt, 1000)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 512, f"{after - before} KiB more after 1,000 steps"
    assert tokens == generate(case, Eager(built.modules), prompt, 1000)


def test_weights_are_stored_once(built: Built) -> None:
    manifest = next(iter(built.package.values())).manifest
    assert {m["weights"]["member"] for m in manifest["models"]} == {"data/constants/sealift.weights.bin"}


def test_nothing_of_the_cache_is_copied(built: Built) -> None:
    """The decode step writes rows; no buffer of its arena is as large as the cache."""
    second = built.package[built.case.names[1]]
    rows = max(np.prod(s["shape"]) for s in next(m for m in second.manifest["models"] if m["name"] == second.name)["states"])
    written = [w for m in second.manifest["models"] if m["name"] == second.name for k in m["kernels"] for w in k["writes"] if "arena" in w]
    assert all(np.prod([int(d) for d in w["shape"]]) < rows for w in written)
