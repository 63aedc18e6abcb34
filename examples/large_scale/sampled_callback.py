"""Fleet-wide operator profiling: a callback that sees a hundredth of all operators, with their inputs.

PyTorch's documentation builds this in C++ with at::addGlobalCallback; this is the same, from Python. `sealift bridge build` once before.

    python examples/large_scale/sampled_callback.py
"""

from collections import Counter

import torch

from sealift import observe

calls: Counter[str] = Counter()  # weighted: an estimate of how many there were
biggest: dict[str, tuple[int, ...]] = {}


def on_enter(record: observe.Record) -> float:
    for value in record.inputs or ():
        if isinstance(value, observe.TensorMeta):
            biggest[record.name] = max(biggest.get(record.name, ()), value.shape)
    return 1.5  # comes back as record.entered


def on_exit(record: observe.Record) -> None:
    assert record.entered == 1.5
    calls[record.name] += record.weight


handle = observe.add_global_callback(on_enter, on_exit, needs_inputs=True, sampling_prob=0.01)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
for _ in range(2000):
    model(torch.randn(16, 64))
handle.remove()

for name, count in calls.most_common(5):
    print(f"{name:16} about {count:6} calls, largest input {list(biggest.get(name, ()))}")
print("of 4000 linear layers seen:", calls["aten::linear"])
