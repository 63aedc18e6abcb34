"""The test packages through PyTorch's own loaders, which know nothing of sealift."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch._C, "_aoti"):
    pytest.skip("this torch has no AOTInductor loader", allow_module_level=True)

from torch._inductor import aoti_load_package  # noqa: E402
from torch.export.pt2_archive._package import load_pt2  # noqa: E402

W = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.5, 0.0, -1.0, 2.0], [-1.0, 1.0, -1.0, 1.0]])
B = torch.tensor([10.0, 20.0, 30.0])


def expected(x: torch.Tensor, w: torch.Tensor = W, b: torch.Tensor = B) -> torch.Tensor:
    return x @ w.T + b


def integers(*shape: int) -> torch.Tensor:
    """Small whole numbers: sums are exact in any order."""
    return torch.randint(-8, 8, shape).float()


@pytest.fixture
def linear(packages: Path):
    return aoti_load_package(str(packages / "linear.pt2"))


@pytest.fixture
def runner(packages: Path, tmp_path: Path):
    """The container itself, with the calls that the package loader does not pass on."""
    with zipfile.ZipFile(packages / "linear.pt2") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "package" / "data" / "aotinductor" / "model"
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(folder / "model.wrapper.so"), 1), folder


@pytest.mark.filterwarnings("error")
def test_every_loader_opens_it(packages: Path, capfd: pytest.CaptureFixture) -> None:
    path = str(packages / "linear.pt2")
    x = integers(5, 4)
    assert torch.equal(aoti_load_package(path)(x), expected(x))
    assert torch.equal(load_pt2(path).aoti_runners["model"](x), expected(x))
    assert load_pt2(path).extra_files["note.txt"] in ("hello", b"hello")
    assert torch.equal(torch._inductor.package.load_package(path)(x), expected(x))
    assert aoti_load_package(path).get_metadata()["author"] == "tests"
    # Each optional symbol that a container lacks is a warning at every load.
    assert capfd.readouterr().err == ""


def test_sizes_and_strides(linear) -> None:
    for batch in (1, 2, 3, 7, 8, 1000, 1024, 5):
        x = integers(batch, 4)
        assert torch.equal(linear(x), expected(x))
    for x in (integers(4, 6).t(), integers(12, 8)[::2, ::2], integers(1, 4).expand(9, 4), integers(50)[3:43].view(10, 4)):
        assert torch.equal(linear(x), expected(x))


def test_outputs_none_alias_order_scalar(packages: Path) -> None:
    model = aoti_load_package(str(packages / "shapes.pt2"))
    a, b, c = integers(3, 4), torch.arange(6), torch.tensor([True, False, True])
    same, none, turned, total = model(a, b, c)
    assert same.data_ptr() == a.data_ptr() and none is None
    assert turned.stride() == (1, 3) and torch.equal(turned, 2 * a * c[:, None])
    assert total.shape == () and total.item() == 15
    same, none, turned, total = model(a[:0], b[:0], c[:0])
    assert turned.shape == (0, 4) and total.item() == 0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.zeros(1025, 4), "[E-INPUT-003] input 'x': size 1025 of dimension 0 (batch) is outside 1..1024"),
        (lambda: torch.zeros(2, 4, dtype=torch.float64), "[E-INPUT-002] input 'x' has dtype float64"),
        (lambda: torch.zeros(2, 4, dtype=torch.complex128), "[E-INPUT-002] input 'x'"),
        (lambda: torch.zeros(4), "[E-INPUT-003] input 'x' has 1 dimensions"),
        (lambda: torch.zeros(2, 5), "[E-INPUT-003] input 'x': size 5 of dimension 1 must be 4"),
        (lambda: torch.zeros(2, 4, device="meta"), "[E-INPUT-00"),
        (lambda: torch.zeros(2, 4).to_sparse(), "not a dense tensor"),
        (lambda: torch.zeros(2, 4, dtype=torch.complex64).conj().imag, "[E-INPUT-002] input 'x' is a view that torch negates"),
    ],
)
def test_wrong_inputs(linear, make, text: str) -> None:
    with pytest.raises(RuntimeError) as error:
        linear.loader.run([make()])
    assert text in str(error.value)
    x = integers(2, 4)
    assert torch.equal(linear(x), expected(x))
    with pytest.raises(RuntimeError, match="E-INPUT-001"):
        linear.loader.run([x, x])


@pytest.mark.parametrize(("index", "code"), [(5, "E-RUN-001"), (-1, "E-RUN-002"), (-100, "E-RUN-003")])
def test_errors_of_the_run(packages: Path, index: int, code: str) -> None:
    model = aoti_load_package(str(packages / "errors.pt2"))
    with pytest.raises(RuntimeError, match=code):
        model(torch.tensor([0, index]))
    assert model(torch.tensor([0, 4])).tolist() == [0.5, 4.5]


def test_state_belongs_to_the_container(packages: Path) -> None:
    path = str(packages / "state.pt2")
    model, other = aoti_load_package(path), aoti_load_package(path)
    one = torch.ones(4)
    assert [model(one)[0].item() for _ in range(3)] == [2, 3, 4]
    assert other(one)[0].item() == 2
    with ThreadPoolExecutor(4) as pool:
        seen = sorted(y[0].item() for y in pool.map(lambda _: model.loader.run([one])[0], range(100)))
    assert seen == [float(i) for i in range(5, 105)]
    model.load_constants({"total": torch.zeros(4)}, check_full_update=True)
    assert model(one).tolist() == [1, 1, 1, 1]


def test_constants_full_and_partial(linear, capfd: pytest.CaptureFixture) -> None:
    x = integers(6, 4)
    assert sorted(linear.get_constant_fqns()) == ["lin.bias", "lin.weight"]
    w, b = integers(3, 4), integers(3)
    linear.load_constants({"lin.weight": w, "lin.bias": b}, check_full_update=True)
    assert torch.equal(linear(x), expected(x, w, b))
    linear.load_constants({"lin.bias": B}, check_full_update=False)
    assert torch.equal(linear(x), expected(x, w, B))
    linear.load_constants({"lin.weight": W.t().contiguous().t()}, check_full_update=False)
    assert torch.equal(linear(x), expected(x))
    linear.load_constants({"lin.weight": w, "lin.bias": b}, check_full_update=True, user_managed=True)
    assert torch.equal(linear(x), expected(x, w, b))
    for wrong, check, text in (
        ({"lin.bias": b}, True, "'lin.weight' is missing"),
        ({"lin.bias": b.double()}, False, "dtype float32"),
        ({"lin.bias": integers(4)}, False, "another shape"),
    ):
        capfd.readouterr()
        with pytest.raises(RuntimeError):
            linear.load_constants(wrong, check_full_update=check)
        assert text in capfd.readouterr().err  # the loader's own text has no reason
    assert torch.equal(linear(x), expected(x, w, b))


def test_inactive_swap_extract_blob(runner) -> None:
    container, folder = runner
    x, w = integers(2, 4), integers(3, 4)
    assert container.get_constant_names_to_original_fqns() == {"w": "lin.weight", "b": "lin.bias"}
    active = container.extract_constants_map(False)
    assert torch.equal(active["w"], W) and torch.equal(active["b"], B)
    container.update_constant_buffer({"w": w}, True, False, False)
    assert torch.equal(container.run([x])[0], expected(x))
    assert torch.equal(container.extract_constants_map(True)["w"], w)
    container.swap_constant_buffer()
    assert torch.equal(container.run([x])[0], expected(x, w))
    assert torch.equal(container.extract_constants_map(True)["w"], W)
    container.free_inactive_constant_buffer()
    with pytest.raises(RuntimeError):
        container.swap_constant_buffer()
    with pytest.raises(RuntimeError):
        container.extract_constants_map(True)
    container.update_constant_buffer_from_blob(str(folder / "model.weights.bin"))
    assert torch.equal(container.run([x])[0], expected(x))
    extracted = container.extract_constants_map(False)
    del container
    assert torch.equal(extracted["w"], W)  # the tensors outlive the container


def test_constants_change_while_others_run(linear) -> None:
    zero = torch.zeros(16, 4)
    with ThreadPoolExecutor(3) as pool:

        def run(_: int) -> bool:
            y = linear.loader.run([zero])[0]
            return bool((y == y[0]).all()) and (y[0].tolist() == B.tolist() or bool((y[0] == y[0, 0]).all()))

        results = pool.map(run, range(600))
        for i in range(60):
            linear.load_constants({"lin.bias": torch.full((3,), float(i))}, check_full_update=False)
        assert all(results)


def test_several_runners_and_one_thread(packages: Path) -> None:
    path = str(packages / "linear.pt2")
    x = integers(64, 4)
    parallel = aoti_load_package(path, num_runners=3) if "num_runners" in aoti_load_package.__code__.co_varnames else None
    models = [load_pt2(path, num_runners=3).aoti_runners["model"], load_pt2(path, run_single_threaded=True).aoti_runners["model"]]
    for model in [*models, *([parallel] if parallel else [])]:
        assert torch.equal(model(x), expected(x))
    with ThreadPoolExecutor(6) as pool:
        assert all(torch.equal(y, expected(x)) for y in pool.map(lambda _: models[0].loader.run([x])[0], range(300)))


def test_the_profiler_sees_kernels(linear) -> None:
    from torch.profiler import profile

    x = integers(4, 4)
    with profile() as recorded:
        for _ in range(3):
            linear(x)
    names = [event.name for event in recorded.events()]
    assert names.count("k0_matmul") == 3 and names.count("k1_bias") == 3


def test_memory_does_not_grow(linear, packages: Path) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    x, bad = torch.zeros(1024, 4), torch.zeros(1024, 4, dtype=torch.float64)
    shapes = aoti_load_package(str(packages / "shapes.pt2"))
    inputs = (torch.zeros(8, 4), torch.arange(16), torch.ones(8, dtype=torch.bool))

    def calls(count: int) -> None:
        for _ in range(count):
            linear.loader.run([torch.zeros_like(x)])
            shapes.loader.run(list(inputs))
            with pytest.raises(RuntimeError):
                linear.loader.run([bad.clone()])

    calls(200)
    before = resident_bytes()
    calls(2000)
    grown = resident_bytes() - before
    assert grown < 4 << 20, f"{grown} bytes in 2000 calls"  # a leaked input handle would be 96 MB


def test_loading_and_unloading(packages: Path) -> None:
    """Libraries go away with their loaders, threads included."""
    for _ in range(5):
        model = aoti_load_package(str(packages / "linear.pt2"))
        x = integers(1000, 4)
        assert torch.equal(model(x), expected(x))
        del model
    threads = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")]
    assert "/model.wrapper.so" not in Path("/proc/self/maps").read_text() or not any(name.startswith("sealift-") for name in threads)


def test_a_library_without_its_weights_says_so(packages: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    with zipfile.ZipFile(packages / "linear.pt2") as archive:
        library = tmp_path / "model.wrapper.so"
        library.write_bytes(archive.read("package/data/aotinductor/model/model.wrapper.so"))
    with pytest.raises(RuntimeError):
        torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
    assert "[E-FILE-001]" in capfd.readouterr().err


def test_fork_after_a_run(packages: Path) -> None:
    """In a process of its own: PyTorch's threads do not survive a fork, sealift's do."""
    script = f"""
import os, torch
from torch._inductor import aoti_load_package
model = aoti_load_package({str(packages / "linear.pt2")!r})
x = torch.ones(1000, 4)
first = model(x)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(model(x), first) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
