"""Which model do operators belong to? Labels that follow a request across threads, TorchScript forks and backward.

PyTorch's documentation does this in C++ with at::DebugInfoGuard; `sealift bridge build` once before.

    python examples/large_scale/debug_info.py
"""

from collections import Counter

import torch

from sealift import observe


@torch.jit.script
def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    side = torch.jit.fork(torch.tanh, x)  # runs on a thread of PyTorch's own
    return (torch.jit.wait(side) @ w).sum()


weights = torch.randn(8, 8, requires_grad=True)
seen: Counter[tuple[str, str]] = Counter()


def on_enter(record: observe.Record) -> None:
    seen[record.debug_info.get("model_id", "-"), record.name] += 1


with observe.add_global_callback(on_enter):
    with observe.debug_info(model_id="ranker:7", request="r-17"):
        loss = forward(torch.randn(4, 8), weights)
        loss.backward()
    with observe.debug_info(model_id="embedder:2"), observe.ThreadPoolExecutor(1) as pool:
        pool.submit(torch.sigmoid, torch.randn(4)).result()

print("forked:  ", seen["ranker:7", "aten::tanh"])
print("backward:", sum(n for (model, name), n in seen.items() if model == "ranker:7" and "Backward0" in name) > 0)
print("pool:    ", seen["embedder:2", "aten::sigmoid"])
