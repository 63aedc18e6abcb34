"""Debug info follows what a request goes through: tasks, threads, forks, backward, compiled models."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from sealift import observe

X = torch.ones(3)


@pytest.fixture
def seen(torch_observed: None) -> Iterator[list[tuple[str, str]]]:
    """(operator, its model_id)"""
    found: list[tuple[str, str]] = []
    with observe.add_global_callback(lambda r: found.append((r.name.removeprefix("aten::"), r.debug_info.get("model_id", "")))):
        yield found


def test_blocks_nest_and_may_be_entered_again(seen: list[tuple[str, str]]) -> None:
    outer = observe.debug_info(model_id="outer", request=1)
    with outer:
        with observe.debug_info(model_id="inner"), outer:
            assert observe.current_info() == {"model_id": "outer", "request": "1"}
        torch.sin(X)
    assert observe.current_info() == {}
    torch.cos(X)
    assert seen == [("sin", "outer"), ("cos", "")]


def test_interleaved_tasks_keep_their_own(seen: list[tuple[str, str]]) -> None:
    """A stack that each task pushed to would be another task's after the first await."""

    async def child() -> None:
        await asyncio.sleep(0)
        torch.cos(X)

    async def request(name: str) -> None:
        with observe.debug_info(model_id=name):
            for _ in range(3):
                await asyncio.sleep(0.001)
                torch.sin(X)
                assert observe.current_info()["model_id"] == name
                await asyncio.create_task(child())
                await asyncio.to_thread(torch.tan, X)

    async def main() -> None:
        await asyncio.gather(*(request(f"r{i}") for i in range(4)))

    asyncio.run(main())
    assert Counter(seen) == {(op, f"r{i}"): 3 for op in ("sin", "cos", "tan") for i in range(4)}


def test_threads(seen: list[tuple[str, str]]) -> None:
    """A plain pool starts without; ours, and carried functions, start with it."""
    with observe.debug_info(model_id="m"):
        with concurrent.futures.ThreadPoolExecutor(1) as plain:
            plain.submit(torch.sin, X).result()
        with observe.ThreadPoolExecutor(1) as ours:
            ours.submit(torch.cos, X).result()
            list(ours.map(torch.tan, [X]))
        thread = observe.Thread(target=torch.exp, args=(X,))
        thread.start()
        carried = observe.carry(torch.log)
    thread.join()
    other = threading.Thread(target=carried, args=(X,))
    other.start()
    other.join()
    assert seen == [("sin", ""), ("cos", "m"), ("tan", "m"), ("exp", "m"), ("log", "m")]


def test_torchscript_fork_and_backward(seen: list[tuple[str, str]]) -> None:
    @torch.jit.script
    def forked(x: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(torch.jit.fork(torch.sin, x))

    w = torch.ones(3, requires_grad=True)
    with observe.debug_info(model_id="forward"):
        forked(X)
        loss = w.cos().sum()
    with observe.debug_info(model_id="backward"):
        loss.backward()
    assert ("sin", "forward") in seen and ("cos", "forward") in seen
    after = seen[seen.index(("cos", "forward")) :]
    assert any(n.endswith("CosBackward0") and m == "backward" for n, m in after)
    assert not [n for n, m in after if "Backward" in n and m != "backward"]


def test_a_profiler_started_inside_and_stopped_outside(seen: list[tuple[str, str]]) -> None:
    """PyTorch keeps a stack of what threads carry, and refuses to pop what is not on top."""
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with observe.debug_info(model_id="m"):
        profiler.start()
        torch.sin(X)
    torch.cos(X)
    profiler.stop()
    torch.tan(X)
    assert [s for s in seen if s[0] in ("sin", "cos", "tan")] == [("sin", "m"), ("cos", ""), ("tan", "")]
    with observe.debug_info(model_id="again"):
        torch.exp(X)
    assert seen[-1] == ("exp", "again")


def test_an_exception_leaves_the_block(seen: list[tuple[str, str]]) -> None:
    with pytest.raises(KeyError), observe.debug_info(model_id="m"):
        raise KeyError
    torch.sin(X)
    assert seen == [("sin", "")]


def test_generators_run_in_their_consumers_block(seen: list[tuple[str, str]]) -> None:
    def batches() -> Iterator[torch.Tensor]:
        for _ in range(2):
            yield torch.sin(X)

    made = batches()
    for name in ("a", "b"):
        with observe.debug_info(model_id=name):
            next(made)
    assert seen == [("sin", "a"), ("sin", "b")]
