"""A small training loop with nothing about profiling in it.

sealift profile -- python examples/profile_training.py 200"""

from __future__ import annotations

import sys

import torch


def main(steps: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.randn(32, 64)
        loss = torch.nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
