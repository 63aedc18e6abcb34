"""State and inputs that models change: against eager, step by step; what two contexts share (nothing) and what a session shares."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor.package
import torch.nn.functional as F

import sealift
from sealift import pipeline
from sealift.errors import ArgumentError, BusyError, ModelNameError, OutputError
from sealift.frontend import from_export
from sealift.ir.loop.expr import Load
from sealift.ir.loop.operands import is_identity
from sealift.ir.loop.types import Map
from sealift.ops import OPS
from sealift.options import Options
from sealift.passes.lower_to_loops import lower_to_loops

# ---- updates, as methods of a cache [2, 3, 8, 4] that is a buffer in one model and an argument in the other -------------------------

Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def index_copy(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    k.index_copy_(2, at, x)
    return k.sum(-1)


def index_put(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    k[:, :, at] = x * 2
    return F.scaled_dot_product_attention(x, k, k)


def slices(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    old = k[:, :, :2] * 3
    k[:, 0, 2:4] = x[:, 0]
    return old, F.scaled_dot_product_attention(x, k[:, :, :6], k[:, :, 1:7])


def views(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    k[0].index_copy_(1, at, x[0])
    first = k[0].sum(-1)
    k[1, 2].index_copy_(0, at, x[1, 2])
    return first, k[1].sum(-1)


def decay(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    k.mul_(0.9).add_(x.sum(2, keepdim=True))
    return k[:, :, : at.shape[0]].sum(-1)


def accumulate(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    k.index_add_(2, at, x)
    return k.amax(-1)


def product(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    k.copy_(torch.tanh(k @ k[0, 0, :4]))
    return k[..., 0] + x.sum()


def broadcast(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    result = k.sum(-1)
    k.copy_(x[0, 0, 0])  # one row for all; a read after it would meet export's own mistake: it forgets the broadcast there, too
    return result


def old_after(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    old = k + 0.0
    k.index_copy_(2, at, x)
    return k.sum(-1), torch.softmax(old, -1)


def returned(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    k.index_copy_(2, at, x)
    return k


# This one reads, at another place, what it overwrites: the copy stays.


def roll(k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    k.copy_(torch.roll(k, 1, 2))
    k[:, :, 0] = x[:, :, 0]
    return k.sum(-1)


IN_PLACE: tuple[Update, ...] = (index_copy, index_put, slices, views, decay, accumulate, product, broadcast, old_after, returned)
COPIED: tuple[Update, ...] = (roll,)


class Held(torch.nn.Module):
    def __init__(self, update: Update) -> None:
        super().__init__()
        self.update = update
        self.register_buffer("k", torch.randn(2, 3, 8, 4, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
        result = self.update(self.k, x, at)
        return tuple(r.clone() for r in result) if isinstance(result, tuple) else result.clone()


class Given(torch.nn.Module):
    def __init__(self, update: Update) -> None:
        super().__init__()
        self.update = update

    def forward(self, k: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
        result = self.update(k, x, at)
        return tuple(r.clone() for r in result) if isinstance(result, tuple) else result.clone()


def step(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 3, 2, 4, generator=torch.Generator().manual_seed(k)), torch.tensor([k, k + 2])


def assert_same(got: Any, eager: Any) -> None:
    for a, b in zip(got if isinstance(got, tuple) else (got,), eager if isinstance(eager, tuple) else (eager,), strict=True):
        np.testing.assert_allclose(np.asarray(a), b.numpy(), rtol=2e-6, atol=2e-6)


def export(module: torch.nn.Module, *args: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(module, args)


@pytest.mark.parametrize("update", IN_PLACE + COPIED, ids=lambda u: u.__name__)
def test_a_buffer_goes_where_eagers_goes(update: Update, tmp_path: Path) -> None:
    eager = Held(update)
    first = copy.deepcopy(eager)
    model = sealift.load(sealift.compile(export(Held(update), *step(0)), tmp_path / "m.pt2"))
    context, inputs = model.context(), [step(k) for k in range(4)]
    with torch.no_grad():
        for x, at in inputs:
            assert_same(context(x.numpy(), at.numpy()), eager(x, at))
        copied = context.clone()
        assert_same(copied(*(t.numpy() for t in inputs[0])), copy.deepcopy(eager)(*inputs[0]))
        assert_same(context(*(t.numpy() for t in inputs[1])), eager(*inputs[1]))  # not moved by its clone
        context.reset()
        assert_same(context(*(t.numpy() for t in inputs[2])), first(*inputs[2]))


@pytest.mark.parametrize("update", IN_PLACE + COPIED, ids=lambda u: u.__name__)
def test_no_copy_but_where_the_old_value_is_needed(update: Update) -> None:
    loops = pipeline.optimize(lower_to_loops(from_export(export(Held(update), *step(0)), "m", OPS).graph), pipeline.new_steps(Options()))
    stages = [s for k in loops.kernels for s in k.stages]
    maps = [s for s in stages if isinstance(s, Map) and s.out.name == "b_k" and isinstance(s.value, Load) and is_identity(s.index, s.axes)]
    copies = [m for m in maps if isinstance(m.value, Load) and is_identity(m.value.index, m.axes)]
    assert bool(copies) == (update in COPIED), str(loops)


@pytest.mark.parametrize("update", IN_PLACE + COPIED, ids=lambda u: u.__name__)
@pytest.mark.parametrize("kind", ["dense", "transposed", "offset"])
def test_an_input_is_changed_as_eager_changes_it(update: Update, kind: str, tmp_path: Path) -> None:
    eager = Given(update)
    start = torch.randn(2, 3, 8, 4, generator=torch.Generator().manual_seed(1))
    model = sealift.load(sealift.compile(export(Given(update), start.clone(), *step(0)), tmp_path / "m.pt2"))
    assert [i.is_changed for i in model.inputs] == [True, False, False]
    k = {
        "dense": lambda: start.numpy().copy(),
        "transposed": lambda: np.ascontiguousarray(start.numpy().transpose(3, 1, 0, 2)).transpose(2, 1, 3, 0),
        "offset": lambda: np.concatenate([start.numpy()] * 2, -1)[..., 4:],
    }[kind]()
    wanted = start.clone()
    with torch.no_grad():
        for x, at in (step(n) for n in range(3)):
            assert_same(model(k, x.numpy(), at.numpy()), eager(wanted, x, at))
            np.testing.assert_allclose(k, wanted.numpy(), rtol=2e-6, atol=2e-6)
        tensor = start.clone()
        model(tensor, *step(0))  # torch in: written in place as well
        again = start.clone()
        eager(again, *step(0))
    assert_same(tensor, again)


def test_an_input_that_cannot_be_changed_is_refused(tmp_path: Path) -> None:
    start, (x, at) = np.zeros((2, 3, 8, 4), np.float32), (t.numpy() for t in step(0))
    model = sealift.load(sealift.compile(export(Given(index_copy), torch.from_numpy(start.copy()), *step(0)), tmp_path / "m.pt2"))
    fixed = start.copy()
    fixed.flags.writeable = False
    with pytest.raises(OutputError, match=r"E-INPUT-005.*'k' is read-only"):
        model(fixed, x, at)
    both = np.zeros(2 * 3 * 8 * 4 + 24, np.float32)
    with pytest.raises(OutputError, match=r"E-INPUT-005.*'k' is changed by the model and shares memory with input 'x'"):
        model(both[:192].reshape(2, 3, 8, 4), both[144:192].reshape(2, 3, 2, 4), at)
    with pytest.raises(OutputError, match=r"E-INPUT-005.*'k'.*strides let elements overlap"):
        model(torch.zeros(2, 3, 8, 1).expand(2, 3, 8, 4), torch.from_numpy(x), torch.from_numpy(at))
    with pytest.raises(OutputError, match=r"E-INPUT-005.*shares memory with input 'k', which the model changes"):
        model(start, x, at, out=start.reshape(-1)[:48].reshape(2, 3, 8))
    assert not start.any()


# ---- sessions ---------------------------------------------------------------------------------------------------------------------------


class Cached(torch.nn.Module):
    """Keeps rows of the projection of x; `many` puts a run of rows at 0, `one` a row at a position, `read` looks at all of them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.proj = torch.nn.Linear(64, 64)
        self.register_buffer("rows", torch.zeros(16, 64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


class Many(Cached):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(0, torch.arange(x.shape[0]), self.proj(x))
        self.count.add_(x.shape[0])
        return self.rows.sum(0)


class One(Cached):
    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(0, at, self.proj(x))
        self.count.add_(1)
        return self.rows.sum(0) + self.count


class Read(Cached):
    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        return self.rows * scale


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    n = torch.export.Dim("n", min=1, max=16)
    programs = {
        "many": torch.export.export(Many(), (torch.randn(5, 64),), dynamic_shapes=({0: n},)),
        "one": export(One(), torch.randn(1, 64), torch.tensor([3])),
        "read": export(Read(), torch.tensor(1.0)),
    }
    return sealift.compile(programs, tmp_path_factory.mktemp("cached") / "cached.pt2")


def test_models_of_a_session_share_their_buffers(cached: Path) -> None:
    package = sealift.load_package(cached)
    assert sorted(package) == ["many", "one", "read"] and package["one"].name == "one"
    session = package.session()
    many, one = Many(), One()
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 64), np.float32), rng.standard_normal((1, 64), np.float32)
    with torch.no_grad():
        assert_same(session["many"](x), many(torch.from_numpy(x)))
        one.load_state_dict(many.state_dict())
        assert_same(session["one"](y, np.int64([5])), one(torch.from_numpy(y), torch.tensor([5])))
    read = session["read"](np.float32(1))
    assert_same(read, one.rows)
    copied = session.clone()
    session.reset()
    assert not session["read"](np.float32(1)).any()
    np.testing.assert_array_equal(copied["read"](np.float32(1)), read)
    np.testing.assert_array_equal(copied["one"](y, np.int64([5])), copied["read"](np.float32(1)).sum(0) + 7)
    assert not package["read"](np.float32(1)).any(), "a model called by itself has a state of its own"
    assert not sealift.load(cached, "read")(np.float32(1)).any()


def test_weights_that_models_have_in_common_are_stored_once(cached: Path) -> None:
    manifest = sealift.load_package(cached)["one"].manifest
    stored = {m["weights"]["member"]: m["weights"]["size_bytes"] for m in manifest["models"]}
    assert list(stored) == ["data/constants/sealift.weights.bin"]
    assert stored["data/constants/sealift.weights.bin"] < 64 * 64 * 4 + 64 * 4 + 16 * 64 * 4 + 1024
    assert manifest["schema"] == {"major": 1, "minor": 1}


def test_a_session_runs_once_at_a_time_and_two_do_not_mix(cached: Path) -> None:
    package = sealift.load_package(cached, num_threads=1)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((16, 64), np.float32) for _ in range(2)]
    alone = []
    for x in given:
        session = package.session()
        alone.append([session["one"](x[k : k + 1], np.int64([k])) for k in range(16)])
    sessions, results = [package.session() for _ in given], [[], []]

    def run(which: int) -> None:
        for k in range(16):
            results[which].append(sessions[which]["one"](given[which][k : k + 1], np.int64([k])))

    threads = [Thread(target=run, args=(w,)) for w in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for got, wanted in zip(results, alone):
        np.testing.assert_array_equal(np.stack(got), np.stack(wanted))


def test_what_a_session_refuses(cached: Path, tmp_path: Path) -> None:
    package = sealift.load_package(cached)
    session = package.session()
    with pytest.raises(ModelNameError, match=r"E-PACKAGE-004.*'four'.*'many'"):
        session["four"]
    with pytest.raises(ArgumentError, match="clone the session"):
        session["one"].clone()

    class Narrow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(8, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.rows.add_(x)
            return self.rows.sum(0)

    path = sealift.compile(
        {"one": export(One(), torch.randn(1, 64), torch.tensor([3])), "narrow": export(Narrow(), torch.ones(64))}, tmp_path / "m.pt2"
    )
    with pytest.raises(ArgumentError, match=r"'rows' is float32\[8, 64\] in model 'narrow' and float32\[16, 64\] in 'one'"):
        sealift.load_package(path).session()


def test_pytorchs_loader_runs_models_that_share_weights_and_change_inputs(cached: Path, tmp_path: Path) -> None:
    """There, state is the container's."""
    one, runner = One(), torch._inductor.package.load_package(str(cached), model_name="one")
    with torch.no_grad():
        for k in range(3):
            y = torch.randn(1, 64, generator=torch.Generator().manual_seed(k))
            assert_same(runner(y, torch.tensor([k])), one(y, torch.tensor([k])))
    path = sealift.compile(export(Given(index_copy), torch.zeros(2, 3, 8, 4), *step(0)), tmp_path / "m.pt2")
    changed = torch._inductor.aoti_load_package(str(path))
    for k in (torch.zeros(2, 3, 8, 4), torch.zeros(3, 2, 8, 4).transpose(0, 1)):
        wanted = torch.zeros(2, 3, 8, 4)
        assert_same(changed(k, *step(1)), index_copy(wanted, *step(1)))
        assert_same(k, wanted)


def test_a_context_in_use_says_so(cached: Path) -> None:
    session = sealift.load_package(cached, num_threads=1).session()
    seen: list[BaseException] = []

    def run() -> None:
        try:
            for k in range(2000):
                session["one"](np.zeros((1, 64), np.float32), np.int64([k % 16]))
        except BusyError as error:
            seen.append(error)

    threads = [Thread(target=run) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all("E-CONTEXT-001" in str(e) for e in seen)


# ---- runs that fail --------------------------------------------------------------------------------------------------------------

FAILING: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "index_copy": lambda k, x, at: k.index_copy_(0, at, x),
    "index_put": lambda k, x, at: k.index_put_((at,), x),
    "index_add": lambda k, x, at: k.index_add_(0, at, x),
    "scatter": lambda k, x, at: k.scatter_(0, at[:, None].expand(1, 4), x),
    "column": lambda k, x, at: k.__setitem__((slice(None), at), x[:, :1]),
    "taken": lambda k, x, at: k.copy_(k[at].expand(4, 4) + x),
    "divided": lambda k, x, at: k.copy_(torch.full_like(at, 7) // (at - 4) + k),
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("held", [True, False], ids=["state", "input"])
def test_a_run_that_fails_writes_nothing_wrong(name: str, held: bool, tmp_path: Path) -> None:
    """Row 4 of 4, or a division by nothing: eager raises and has not written."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if held:
                self.register_buffer("k", torch.arange(16.0).view(4, 4))

        def forward(self, x: torch.Tensor, at: torch.Tensor, k: torch.Tensor | None = None) -> torch.Tensor:
            cache = self.k if k is None else k
            FAILING[name](cache, x, at)
            return cache * 1

    x, first, past = torch.ones(1, 4), torch.tensor([0]), torch.tensor([4])
    caller = torch.arange(16.0).view(4, 4)
    rest = () if held else (caller,)
    package = sealift.compile(torch.export.export(Model(), (x, first, *rest)), tmp_path / "m.pt2")
    context = sealift.load(package).context()
    expected = context(x, first, *rest)
    with pytest.raises(sealift.SealiftError, match="E-RUN-00"):
        context(x * 9, past, *rest)
    if held:
        again = copy.deepcopy(Model())
        again.k = expected.clone()
        assert torch.equal(context(x * 2, first), again(x * 2, first))
    else:
        assert torch.equal(caller, expected)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 4), (3, 1), (1, 4, 1)], ids=str)
@pytest.mark.parametrize("held", [True, False], ids=["state", "input"])
def test_sizes_of_one_are_updated_in_place(shape: tuple[int, ...], held: bool, tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if held:
                self.register_buffer("n", torch.zeros(shape))

        def forward(self, x: torch.Tensor, n: torch.Tensor | None = None) -> torch.Tensor:
            count = self.n if n is None else n
            count.mul_(0.5).add_(x)
            count += 1
            return count * x

    x = torch.full(shape, 3.0)
    ours, theirs = torch.zeros(shape), torch.zeros(shape)
    eager = Model()
    package = sealift.compile(torch.export.export(copy.deepcopy(eager), (x,) if held else (x, ours)), tmp_path / "m.pt2")
    context = sealift.load(package).context()
    for _ in range(3):
        assert torch.equal(context(x, *(() if held else (ours,))), eager(x, *(() if held else (theirs,))))
    assert torch.equal(ours, theirs)
