"""Which features of PyTorch does this program use? Every key once, its own import included.

PyTorch's documentation does this in C++ with SetAPIUsageHandler; `sealift bridge build` once before.

    python examples/large_scale/api_usage.py
"""

from sealift import observe

observe.set_api_usage_handler(lambda key: print("uses", key))  # before torch is imported: its first keys are told, too

import torch  # noqa: E402

optimizer = torch.optim.SGD(torch.nn.Linear(4, 4).parameters(), lr=0.1)
observe.log_api_usage_once("my_service.training")
observe.log_api_usage_once("my_service.training")  # no second time
print(len(observe.api_usage()), "keys")
