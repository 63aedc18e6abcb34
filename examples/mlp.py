"""The model of AOTInductor's documentation: exported, compiled, run.

python examples/mlp.py [mlp.pt2]
sealift compile examples/mlp.py:mlp -o mlp.pt2"""

from __future__ import annotations

import sys

import torch

import sealift


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(10, 16)
        self.relu = torch.nn.ReLU()
        self.fc2 = torch.nn.Linear(16, 1)
        self.sigmoid = torch.nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sigmoid(self.fc2(self.relu(self.fc1(x))))


def mlp() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=1024)
    return torch.export.export(Model().eval(), (torch.randn(8, 10),), dynamic_shapes={"x": {0: batch}})


def main() -> None:
    program = mlp()
    path = sealift.compile(program, sys.argv[1] if len(sys.argv) > 1 else "mlp.pt2")
    model = sealift.load(path)
    print(model)
    for batch in (1, 2, 8, 1000, 1024):
        x = torch.randn(batch, 10)
        print(f"batch {batch}: largest difference from eager {float((model(x) - program.module()(x)).abs().max().detach()):.2e}")
    print(sealift.check(path, program))


if __name__ == "__main__":
    main()
