from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sealift import observe


def test_own_keys_once(run_python: Callable[..., str]) -> None:
    out = run_python("""
import sys
from sealift import observe
keys = []
assert observe.log_api_usage_once("before") and not observe.log_api_usage_once("before")
observe.set_api_usage_handler(keys.append)
observe.log_api_usage_once("after"); observe.log_api_usage_once("after")
assert keys == ["before", "after"], keys
assert list(observe.api_usage()) == keys and "torch" not in sys.modules
print("fine")
""")
    assert out == "fine\n"


def test_pytorchs_keys_from_its_import_on(run_python: Callable[..., str]) -> None:
    """Import keys are seen only by a library that is linked to libc10 alone and loaded before."""
    out = run_python("""
from sealift import observe
keys = []
observe.set_api_usage_handler(keys.append)
import torch
assert "torch.python.import" in keys, keys
torch.optim.SGD([torch.ones(1, requires_grad=True)])
x = 1
assert "tensor.create" in keys and "python.optimizer" in keys, keys
assert len(keys) == len(set(keys))
print("fine")
""")
    assert out == "fine\n"


def test_where_torch_was_imported_before(run_python: Callable[..., str]) -> None:
    out = run_python("""
import torch
from sealift import observe
keys = []
observe.set_api_usage_handler(keys.append)
torch.nn.Linear(2, 2)
x = 1
print("python.nn_module" in keys)
""")
    assert out == "True\n"


def test_a_handler_that_raises_is_removed(run_python: Callable[..., str]) -> None:
    out = run_python("""
from sealift import observe
calls = []
def handler(key): calls.append(key); raise ValueError("broken")
observe.set_api_usage_handler(handler)
observe.log_api_usage_once("a"); observe.log_api_usage_once("b")
print(calls)
""")
    assert "['a']" in out and out.count("ValueError: broken") == 1


def test_sealifts_own_calls_log_keys(run_python: Callable[..., str]) -> None:
    out = run_python("""
import sealift
from sealift import observe
try: sealift.load("/nowhere.pt2")
except sealift.SealiftError: pass
print(list(observe.api_usage()))
""")
    assert "sealift.open" in out


def test_a_snapshot_has_them() -> None:
    observe.log_api_usage_once("tests.snapshot")
    assert observe.snapshot().api_usage["tests.snapshot"] > 0


def test_sealifts_own_calls_log_keys_of_the_same_kind(run_python: Callable[..., str], tmp_path: Path) -> None:
    out = run_python(f"""
import torch, sealift
from sealift import observe
keys = []
observe.set_api_usage_handler(keys.append)
for _ in range(2):
    sealift.compile(torch.nn.ReLU(), {str(tmp_path / "m.pt2")!r}, args=(torch.ones(3),))
sealift.load({str(tmp_path / "m.pt2")!r})(torch.ones(3))
print(*[k for k in keys if k.startswith("sealift.")])
""")
    assert out.split() == ["sealift.compile", "sealift.open", "sealift.context"]
