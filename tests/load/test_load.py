"""Loading and calling a package from Python: the stub model library of stub_model.c, y = x * scale + bias and a second output None."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sealift
from sealift import errors
from sealift.load import load_package
from sealift.package.read import verify_package
from sealift.package.write import PackagedModel, write_package

SCALE, BIAS = np.array([1, 2, 3, 4], np.float32), np.full(4, 0.5, np.float32)


@pytest.fixture(scope="module")
def package(stub_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = PackagedModel("model", stub_library, [(0, memoryview(SCALE)), (64, memoryview(BIAS))], {}, weights_bytes=128)
    return write_package(tmp_path_factory.mktemp("stub") / "stub.pt2", [model], {"origin": "a test"}, {"labels.txt": b"cat\n"})


@pytest.fixture
def model(package: Path) -> sealift.Model:
    return sealift.load(package)


def expected(x: Any) -> Any:
    return np.asarray(x, np.float32) * SCALE + BIAS


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_what_it_says_about_itself(model: sealift.Model) -> None:
    assert str(model.inputs[0]) == "x: float32[batch=1..1024, 4]" and model.inputs[0].shape[0].max == 1024
    assert [o.name for o in model.outputs] == ["y", "nothing"] and model.outputs[1].is_none
    assert model.name == "model" and model.isa == "baseline" and model.metadata == {"origin": "a test"}
    assert model.member("extra/labels.txt") == b"cat\n" and model.member("extra/none") is None
    assert model.kernels[0].origin == "model.py:3 affine" and model.get_constant_fqns() == ["affine.scale", "affine.bias"]
    assert "sealift.Model 'model'" in repr(model)


@pytest.mark.parametrize(
    "x",
    [X, X[::2], np.asfortranarray(X), np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2], X[::-1], np.broadcast_to(X[0], (5, 4)), X[:1]],
    ids=["whole", "rows", "fortran", "columns", "backwards", "broadcast", "one"],
)
def test_numpy(model: sealift.Model, x: Any) -> None:
    y, nothing = model(x)
    assert type(y) is np.ndarray and nothing is None and y.flags.c_contiguous
    np.testing.assert_array_equal(y, expected(x))


def test_a_field_of_a_structured_array(model: sealift.Model) -> None:
    records = np.zeros((3, 4), np.dtype([("a", np.float32), ("b", np.uint8)]))
    records["a"] = X
    np.testing.assert_array_equal(model(records["a"])[0], expected(X))


def test_torch(model: sealift.Model) -> None:
    torch = pytest.importorskip("torch")
    for x in (torch.from_numpy(X), torch.arange(24, dtype=torch.float32).reshape(4, 6).t()[:, :4], torch.from_numpy(X)[1:]):
        y, nothing = model(x)
        assert type(y) is torch.Tensor and nothing is None
        np.testing.assert_array_equal(y.numpy(), expected(x.contiguous().numpy()))
        y.add_(1)  # its memory is its own
    parameter = torch.nn.Parameter(torch.from_numpy(X.copy()))
    np.testing.assert_array_equal(np.asarray(model(parameter.detach())[0]), expected(X))


class Foreign:
    """Something that only speaks DLPack; `versioned` or as before DLPack 1.0."""

    def __init__(self, array: Any, versioned: bool) -> None:
        self.array, self.versioned = array, versioned

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versioned and options:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_any_dlpack_tensor(model: sealift.Model, versioned: bool) -> None:
    count = sys.getrefcount(X)
    for _ in range(10):
        np.testing.assert_array_equal(model(Foreign(X.copy(), versioned))[0], expected(X))
    assert sys.getrefcount(X) == count


def test_preallocated_outputs(model: sealift.Model) -> None:
    y = np.empty((3, 4), np.float32)
    result = model(X, out=(y, None))
    assert result[0] is y and result[1] is None
    np.testing.assert_array_equal(y, expected(X))
    columns = np.zeros((3, 8), np.float32)
    model(X, out=[columns[:, ::2], None])
    np.testing.assert_array_equal(columns[:, ::2], expected(X))
    assert not columns[:, 1::2].any()
    with pytest.raises(errors.OutputError, match=r"E-INPUT-005.*size 2 of dimension 0 must be 3 \([a-z]+\); help"):
        model(X, out=(np.empty((2, 4), np.float32), None))
    with pytest.raises(errors.OutputError, match=r"E-INPUT-005.*size 5 of dimension 1 must be 4; help"):  # a fixed size is its own formula
        model(X, out=(np.empty((3, 5), np.float32), None))
    y.flags.writeable = False
    with pytest.raises(errors.OutputError, match="read-only"):
        model(X, out=(y, None))
    with pytest.raises(errors.InputCountError, match="out= has 3"):
        model(X, out=(y, None, None))
    for not_a_tuple in (np.empty((2, 4), np.float32), {"y": y}):  # two rows are not two outputs
        with pytest.raises(errors.InputCountError, match=r"out= is of type '[a-z.]+', the model has 2 outputs; help: give a tuple of 2"):
            model(X, out=not_a_tuple)


def test_by_name(model: sealift.Model) -> None:
    np.testing.assert_array_equal(model(x=X)[0], expected(X))


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ((), errors.InputCountError, "takes 1 positional"),
        ((X, X), errors.InputCountError, "2 positional inputs given"),
        ((X[0],), errors.ShapeError, "E-INPUT-003"),
        ((X[:, :3],), errors.ShapeError, "must be 4"),
        ((np.zeros((0, 4), np.float32),), errors.ShapeError, "1..1024"),
        ((np.zeros((1025, 4), np.float32),), errors.ShapeError, "1..1024"),
        ((X.astype(np.float64),), errors.DtypeError, "float64"),
        ((X.astype(">f4"),), errors.DtypeError, "byte order"),
        ((X.astype(object),), errors.DtypeError, "object"),
        (([[1.0, 2, 3, 4]],), errors.InputTypeError, "is a list, not a tensor"),
        ((None,), errors.InputTypeError, "NoneType"),
        ((np.float32(1),), errors.ShapeError, "0 dimensions"),
    ],
    ids=str,
)
def test_bad_input(model: sealift.Model, args: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        model(*args)
    assert "\n" not in str(caught.value) and caught.value.code in str(caught.value) and "help" in str(caught.value)
    np.testing.assert_array_equal(model(X)[0], expected(X))


def test_a_wrong_name_is_named(model: sealift.Model) -> None:
    with pytest.raises(errors.InputCountError, match="no input is called 'z'"):
        model(z=X)
    with pytest.raises(errors.InputCountError, match="'x' is given by position and by name"):
        model(X, x=X)


def test_a_tensor_that_only_resembles_one(model: sealift.Model) -> None:
    class Broken:
        def __dlpack__(self, **_: Any) -> int:
            return 3

    with pytest.raises(errors.InputTypeError):
        model(Broken())


def test_constants(model: sealift.Model) -> None:
    model.load_constants({"affine.bias": np.zeros(4, np.float32)})
    np.testing.assert_array_equal(model(X)[0], X * SCALE)
    model.load_constants({"affine.scale": np.ones(4, np.float32)}, swap=False)
    np.testing.assert_array_equal(model(X)[0], X * SCALE)
    model.swap_constants()
    np.testing.assert_array_equal(model(X)[0], X)
    with pytest.raises(errors.ConstantError, match="E-CONSTANT-001"):
        model.load_constants({"affine.none": np.zeros(4, np.float32)})
    with pytest.raises(errors.ConstantError):
        model.load_constants({"affine.bias": np.zeros(5, np.float32)})


def test_contexts(model: sealift.Model) -> None:
    context = model.context()
    del model
    np.testing.assert_array_equal(context(X)[0], expected(X))
    context.reset()
    np.testing.assert_array_equal(context.clone()(X)[0], expected(X))


def test_threads_share_a_model(model: sealift.Model) -> None:
    wrong = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((1 + seed % 7, 4)).astype(np.float32)
        for _ in range(300):
            if not np.array_equal(model(x)[0], expected(x)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_outputs_outlive_the_model(package: Path) -> None:
    torch = pytest.importorskip("torch")
    y, z = sealift.load(package)(X)[0], sealift.load(package)(torch.from_numpy(X))[0]
    np.testing.assert_array_equal(y, z.numpy())


def test_neither_a_model_nor_a_context_is_pickled(model: sealift.Model) -> None:
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(errors.ArgumentError, match="send its path"):
            copied(model)
        with pytest.raises(errors.ArgumentError, match=r"clone\(\) copies its state"):
            copied(model.context())


def test_num_threads_is_a_whole_number(package: Path) -> None:
    for wrong in ("2", 2.5, True, 0):
        with pytest.raises(errors.ArgumentError, match="num_threads"):
            sealift.load(package, num_threads=wrong)  # type: ignore[arg-type]


def test_files_that_cannot_be_loaded(package: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.FileError, match="E-FILE-001"):
        sealift.load(tmp_path / "absent.pt2")
    with pytest.raises(errors.ModelNameError, match="E-PACKAGE-004"):
        sealift.load(package, model="decoder")
    damaged = bytearray(package.read_bytes())
    truncated = tmp_path / "truncated.pt2"
    truncated.write_bytes(damaged[:-100])
    with pytest.raises(errors.PackageError, match="E-PACKAGE-001"):
        sealift.load(truncated)
    damaged[damaged.index(SCALE.tobytes())] ^= 1
    flipped = tmp_path / "flipped.pt2"
    flipped.write_bytes(damaged)
    with pytest.raises(errors.IntegrityError, match="E-PACKAGE-002"):
        sealift.load(flipped)
    sealift.load(flipped, verify="code")
    with pytest.raises(errors.IsaError, match=r"E-ISA-001.*help: ask for no instruction set, and baseline runs"):
        sealift.load(package, isa="avx2")
    for read in (sealift.load, load_package):
        with pytest.raises(errors.ArgumentError, match=r"E-ARG-001.*NUL"):
            read(f"{package}\0x")
    for wrong in ({"verify": "no"}, {"isa": "mmx"}, {"num_threads": 0}):
        with pytest.raises(errors.ArgumentError, match="E-ARG-001"):
            sealift.load(package, **wrong)


def test_running_needs_no_torch(package: Path) -> None:
    program = (
        "import sys, numpy as np, sealift; m = sealift.load(sys.argv[1]); print(m(np.ones((2, 4), np.float32))[0].sum());"
        "assert not any(n.split('.')[0] in ('torch', 'sympy') for n in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program, str(package)], capture_output=True, text=True)
    assert result.stdout == "24.0\n", result.stderr


def test_load_is_the_function_whatever_is_imported_first() -> None:
    program = (
        "import sealift.load; from sealift.load import Model; import sealift; assert callable(sealift.load), sealift.load; sealift.load.__wrapped__"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "'function' object has no attribute '__wrapped__'" in result.stderr


def test_both_readers_refuse_the_same_damage(package: Path, tmp_path: Path) -> None:
    """The C++ reader and sealift/package/read.py on the same damaged bytes. Only structure and digests: no damaged code is ever run."""
    original = package.read_bytes()
    source = random.Random(3)
    damaged_path = tmp_path / "damaged.pt2"
    start = original.index(b"PK\1\2")
    for _ in range(400):
        damaged = bytearray(original)
        at = source.randrange(start if source.random() < 0.7 else 0, len(damaged))
        damaged[at] ^= 1 << source.randrange(8)
        if source.random() < 0.2:
            del damaged[source.randrange(len(damaged)) :]
        damaged_path.write_bytes(damaged)
        verdicts = []
        for read in (verify_package, sealift.load):
            try:
                read(damaged_path)
                verdicts.append("")
            except errors.SealiftError as error:
                verdicts.append(error.code[:9])
        assert verdicts[0] == verdicts[1], (verdicts, at)
