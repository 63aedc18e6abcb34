"""Inputs from files or at random, for the verbs that run a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sealift.errors import ArgumentError, FileError, ShapeError

if TYPE_CHECKING:
    from sealift.load import Dim, Model, TensorInfo


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", action="append", default=[], metavar="FILE", help="x.npz with the inputs by name, or one .npy per input, in order")
    parser.add_argument("--random", action="store_true", help="random inputs (the default of bench)")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N", help="a dynamic size of random inputs: --size batch=8")
    parser.add_argument("--seed", type=int, default=0)


def make_inputs(model: Model, arguments: argparse.Namespace, *, default_random: bool = False) -> list[Any]:
    if arguments.input:
        return _from_files(model, arguments.input)
    if not (arguments.random or default_random):
        takes = ", ".join(map(str, model.inputs))
        raise ArgumentError(f"no inputs given; help: --input FILE.npz or --random; the model takes {takes}")
    sizes = dict(_size(text) for text in arguments.size)
    source = np.random.default_rng(arguments.seed)
    arrays = [_random(info, sizes, source) for info in model.inputs]
    unknown = set(sizes) - {d.text for info in model.inputs for d in info.shape}
    if unknown:
        raise ArgumentError(f"no size is called {', '.join(sorted(unknown))}; help: the model takes {', '.join(map(str, model.inputs))}")
    return arrays


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name or not value.isdigit():
        raise ArgumentError(f"--size {text!r}; help: NAME=N, as --size batch=8")
    return name, int(value)


def _random(info: TensorInfo, sizes: dict[str, int], source: np.random.Generator) -> Any:
    shape = [_pick(d, sizes) for d in info.shape]
    if info.dtype == "bool":
        return np.ones(shape, bool)
    if info.dtype.startswith(("int", "uint")):
        return source.integers(0, 2, shape).astype(info.dtype)  # valid as an index, a mask or a token of any model
    if info.dtype == "bfloat16":
        raise ArgumentError(f"input {info.name!r} is bfloat16, which NumPy has not; help: run it from Python with torch tensors")
    return source.standard_normal(shape).astype(info.dtype)


def _pick(dim: Dim, sizes: dict[str, int]) -> int:
    size = sizes.get(dim.text, min(max(dim.min, 8), dim.max))
    if not dim.min <= size <= dim.max:  # before numbers are drawn for it
        raise ShapeError(f"--size {dim.text}={size}; help: {dim.text} is {dim.min}..{dim.max}")
    return size


def _from_files(model: Model, files: list[str]) -> list[Any]:
    try:
        loaded = [np.load(file, allow_pickle=False) for file in files]
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {' '.join(files)}: {error}; help: files of numpy.save or numpy.savez") from error
    if len(loaded) == 1 and Path(files[0]).suffix == ".npz":
        names = [info.name for info in model.inputs]
        missing = [n for n in names if n not in loaded[0]]
        if missing:
            raise ArgumentError(
                f"{files[0]} lacks {', '.join(missing)}; it has {', '.join(loaded[0])}; help: numpy.savez({', '.join(n + '=...' for n in names)})"
            )
        return [loaded[0][n] for n in names]
    return loaded


def by_structure(model: Model, flat: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The flat inputs as the model's call has them."""
    args, kwargs = model.arrange_inputs(flat)
    return list(args), dict(kwargs)
