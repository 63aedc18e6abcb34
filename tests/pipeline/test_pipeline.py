"""compile(): steps that are dumped, skipped and stopped after; several models; state; the same bits for any number of threads."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export.pt2_archive._package import load_pt2

import sealift
from sealift import pipeline
from sealift.diag.steps import StopAfter
from sealift.ir.loop.text import parse_loops
from sealift.ir.loop.types import Loops
from sealift.options import Options
from sealift.passes.lower_to_loops import lower_to_loops
from tests.expect.models import imported, read_graph
from tests.pipeline.conftest import arguments


def names_of_passes() -> tuple[str, ...]:
    steps = pipeline.new_steps(Options())
    pipeline.optimize(lower_to_loops(read_graph("mlp")), steps)
    return tuple(steps.names)


PASSES = names_of_passes()


def eager(program: Any, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = program.module()(*args)
    return result


# ---- steps ---------------------------------------------------------------------------------------------------------------------------


def test_dump_holds_every_step_that_changed_something(tmp_path: Path) -> None:
    pipeline.compile_graph(imported(read_graph("block")), Options(isas=("baseline",), dump_dir=tmp_path / "dump"))
    names = sorted(p.name for p in (tmp_path / "dump").iterdir() if p.is_file())
    numbers = [int(n.split("_")[0]) for n in names]
    assert numbers == sorted(set(numbers))
    kinds = {n.split("_", 1)[1] for n in names}
    assert {"lower.loops", "inline.loops", "epilogues-direct.loops", "rows.loops", "names.loops", "plan.plan", "emit.cpp"} <= kinds
    assert "drop-empty.loops" not in kinds, "it changed nothing"
    for path in (tmp_path / "dump").glob("*.loops"):
        assert isinstance(parse_loops(path.read_text()), Loops)


def test_compile_dumps_the_import_and_a_folder_for_each_model(exported: dict[str, Any], tmp_path: Path) -> None:
    options = Options(isas=("baseline",), dump_dir=tmp_path / "dump", cache_dir=tmp_path / "cache")
    sealift.compile(exported, tmp_path / "m.pt2", options=options)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["block", "mlp"]
    assert min(p.name for p in (tmp_path / "dump/mlp").iterdir()).endswith("_import.graph")
    sealift.compile(
        exported["mlp"], tmp_path / "one.pt2", options=Options(isas=("baseline",), dump_dir=str(tmp_path / "one"), cache_dir=tmp_path / "cache")
    )
    assert any(p.name.endswith("_import.graph") for p in (tmp_path / "one").iterdir())


def test_an_instruction_set_named_twice_is_built_once() -> None:
    assert Options(isas=("avx2", "baseline", "avx2")).isas == ("avx2", "baseline")


@pytest.mark.parametrize("step", ["lower", "inline", "names", "plan", "emit"])
def test_stop_after(step: str) -> None:
    with pytest.raises(StopAfter) as stopped:
        pipeline.compile_graph(imported(read_graph("mlp")), Options(stop_after=step))
    assert stopped.value.step == step and stopped.value.value is not None


def test_stop_after_and_skip_name_a_step_that_exists(tmp_path: Path) -> None:
    for options in (Options(isas=("baseline",), stop_after="no-step"), Options(isas=("baseline",), skip=frozenset({"no-step"}))):
        with pytest.raises(ValueError, match="no step called no-step; steps: "):
            pipeline.compile_graph(imported(read_graph("mlp")), options)


@pytest.mark.parametrize("skipped", [*((p,) for p in PASSES), PASSES], ids=lambda s: s[0] if len(s) == 1 else "all")
def test_any_pass_can_be_left_out(skipped: tuple[str, ...], exported: dict[str, Any], tmp_path: Path) -> None:
    """A miscompile is bisected this way: every subset has to give right answers."""
    isa = "avx2" if "avx2" in Path("/proc/cpuinfo").read_text() else "baseline"
    options = Options(isas=(isa,), skip=frozenset(skipped), cache_dir=tmp_path / "cache")
    model = sealift.load(sealift.compile(exported["block"], tmp_path / "m.pt2", options=options))
    args = arguments("block", 3, 7)
    np.testing.assert_allclose(model(*args).numpy(), eager(exported["block"], args).numpy(), rtol=2e-4, atol=2e-5)


# ---- packages ------------------------------------------------------------------------------------------------------------------------


def test_several_models_in_one_package(both: Path, exported: dict[str, Any]) -> None:
    mlp, block = sealift.load(both, "mlp"), sealift.load(both, "block")
    for batch in (1, 2, 1024):
        args = arguments("mlp", batch)
        np.testing.assert_allclose(mlp(*args).numpy(), eager(exported["mlp"], args).numpy(), rtol=1e-5, atol=1e-6)
    for sizes in ((1, 1), (2, 33), (64, 128)):
        args = arguments("block", *sizes)
        np.testing.assert_allclose(block(*args).numpy(), eager(exported["block"], args).numpy(), rtol=2e-4, atol=2e-5)
    with pytest.raises(Exception, match="mlp"):
        sealift.load(both)


def test_threads_do_not_change_a_bit(packages: dict[str, Path]) -> None:
    """64 x 128 tokens: large enough for every kernel to be shared out."""
    for sizes in ((64, 128), (1, 128), (7, 33)):
        args = arguments("block", *sizes)
        results = [sealift.load(packages["block"], num_threads=n)(*args).numpy().tobytes() for n in (1, 2, 4)]
        assert results[0] == results[1] == results[2], sizes


def test_pytorchs_own_loader_opens_the_package(packages: dict[str, Path], exported: dict[str, Any]) -> None:
    loaded = load_pt2(str(packages["mlp"]))
    runner = loaded.aoti_runners["mlp"] if "mlp" in loaded.aoti_runners else next(iter(loaded.aoti_runners.values()))
    for batch in (1, 8):
        (x,) = arguments("mlp", batch)
        result = runner(x)
        np.testing.assert_allclose(
            (result[0] if isinstance(result, (list, tuple)) else result).numpy(), eager(exported["mlp"], (x,)).numpy(), rtol=1e-5, atol=1e-6
        )


def test_same_export_gives_the_same_package(exported: dict[str, Any], tmp_path: Path) -> None:
    packed: list[bytes] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        packed.append(sealift.compile(exported["mlp"], tmp_path / name / "m.pt2", options=Options(cache_dir="")).read_bytes())
    assert packed[0] == packed[1]


# ---- state ---------------------------------------------------------------------------------------------------------------------------


class Stateful(torch.nn.Module):
    """Counts its calls, keeps a running sum by rows, and shifts a window whose old rows are read after they change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(4, 8))
        self.register_buffer("window", torch.zeros(3, 8))
        self.register_buffer("before", torch.zeros(3, 8))
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count += 1
        self.total.add_(torch.tanh(x).sum(0))
        old = self.fc(self.window)
        self.before.copy_(self.window)
        self.window.copy_(torch.cat([self.window[1:], x.mean((0, 1))[None]]))
        return old.exp(), self.total / self.count, self.window + self.before


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    torch.manual_seed(0)
    program = torch.export.export(Stateful(), (torch.randn(5, 4, 8),), dynamic_shapes={"x": {0: torch.export.Dim("n", min=1, max=99)}})
    path = tmp_path_factory.mktemp("state") / "m.pt2"
    return program, sealift.compile(program, path, options=Options(cache_dir=""))


def assert_same(got: Any, wanted: Any) -> None:
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_state_is_kept_between_calls(stateful: tuple[Any, Path]) -> None:
    program, path = stateful
    module, model = deepcopy(program).module(), sealift.load(path)  # module() shares the program's buffers
    for k in range(4):
        x = torch.randn(k + 1, 4, 8, generator=torch.Generator().manual_seed(k))
        assert_same(model(x), module(x))


def test_contexts_have_states_of_their_own_reset_and_cloned(stateful: tuple[Any, Path]) -> None:
    program, path = stateful
    model = sealift.load(path)
    inputs = [torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    wanted = []
    module = deepcopy(program).module()
    for x in inputs:
        wanted.append([t.detach().clone() for t in module(x)])
    first = model.context()
    assert_same(first(inputs[0]), wanted[0])
    other = model.context()
    assert_same(other(inputs[0]), wanted[0])
    assert_same(first(inputs[1]), wanted[1])
    cloned = first.clone()
    assert_same(cloned(inputs[2]), wanted[2])
    assert_same(first(inputs[2]), wanted[2])
    first.reset()
    for x, results in zip(inputs, wanted, strict=True):
        assert_same(first(x), results)
    assert_same(other(inputs[1]), wanted[1])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_a_matrix_take_any_number_of_rows_and_columns(mode: str, tmp_path: Path) -> None:
    """torch writes the rows' offsets as arange(0, rows * columns, columns). The shape rule of the meta device, another than the CPU's here,
    leaves no size out."""
    bags = torch.nn.EmbeddingBag(20, 6, mode=mode)
    dynamic = {"input": {0: torch.export.Dim("rows", min=1, max=9), 1: torch.export.Dim("columns", min=1, max=9)}}
    ep = torch.export.export(bags, (torch.zeros(4, 5, dtype=torch.int64),), dynamic_shapes=dynamic)
    model = sealift.load(sealift.compile(ep, tmp_path / "bags.pt2"))
    assert [(d.min, d.max) for d in model.inputs[0].shape] == [(1, 9), (1, 9)]
    for shape in ((1, 1), (4, 5), (9, 1), (2, 9)):
        x = torch.randint(0, 20, shape)
        torch.testing.assert_close(model(x), bags(x))
