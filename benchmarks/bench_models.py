"""The models that are measured: every ModelCase under tests/models, as the tests have it."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import tests.models  # noqa: E402
from tests.models import zoo  # noqa: E402
from tests.models.cases import ModelCase  # noqa: E402
from tests.models.generative import Generative  # noqa: E402

TITLES = {"mlp": "MLP 10-16-1, batch 8", "minilm": "all-MiniLM-L6-v2, 1 x 128", "bert_base": "BERT-base, 1 x 128"}
MEASURED = {"minilm": 1, "lstm_tagger_large": 1, "gru_tagger_large": 1}  # which of a case's arguments; else the first, which it is exported with
SIZES = {"dlrm_26": {"dlrm_26_batch_1": 1, "dlrm_26_batch_32": 2, "dlrm_26_batch_256": 3}}  # models measured at several of their arguments
PROMPT, POSITION = 128, 127  # tokens of a measured prompt; where in the cache a measured step is


def all_cases() -> dict[str, ModelCase]:
    """By name, in the order of the files. A case of the zoo is one with its sizes as arguments, the exported ones first."""
    found = {c.name: ModelCase(c.name, partial(_of_zoo, c)) for c in zoo.CASES}
    for info in pkgutil.iter_modules(tests.models.__path__):
        if not info.name.startswith("test_"):
            module = importlib.import_module(f"tests.models.{info.name}")
            for case in _cases_in(list(vars(module).values())):
                found.setdefault(case.name, case)
            for variable, value in vars(module).items():
                if isinstance(value, Generative):
                    for role, name in enumerate(value.names):
                        case = ModelCase(f"{value.name}_{name}", partial(_of_generative, value, role), value.note, pip=("transformers",))
                        found.setdefault(case.name, case)
                        MEASURED[case.name] = 1
                        if variable.endswith("_SMALL"):
                            _SMALL.add(case.name)
    return found


def measured_cases() -> dict[str, ModelCase]:
    """What make bench measures: the full cases, those of SIZES once a size."""
    return {name: replace(case, name=name) for whole, case in full_cases().items() for name in SIZES.get(whole, (whole,))}


def case_of(measured: str) -> tuple[ModelCase, int]:
    """The case behind a name of measured_cases(), and which of its arguments is measured."""
    for whole, sizes in SIZES.items():
        if measured in sizes:
            return all_cases()[whole], sizes[measured]
    return all_cases()[measured], MEASURED.get(measured, 0)


def full_cases() -> dict[str, ModelCase]:
    """Without the small variants that keep the tests quick."""
    return {name: case for name, case in all_cases().items() if not name.endswith("_small") and name not in _SMALL}


def generative_models(small: bool = False) -> dict[str, Generative]:
    """The full-size ones by name, or all."""
    from tests.models import generative

    found = {variable: value for variable, value in vars(generative).items() if isinstance(value, Generative)}
    return {value.name: value for variable, value in found.items() if small or not variable.endswith("_SMALL")}


_SMALL: set[str] = set()  # of the generative models, which are two cases each


def _of_generative(model: Generative, role: int) -> tuple[Any, list[Any], Any]:
    """One of its two programs: the first over a prompt, the second one step over a cache that holds as many rows."""
    module = model.modules()[model.names[role]]
    if role == 1:
        at = [(torch.tensor([[7]]), torch.tensor([position])) for position in (0, min(POSITION, model.length - 1), model.length - 1)]
        return module, at, None
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, model.vocab, (1, n), generator=generator) for n in (8, min(PROMPT, model.length), 1)]
    return module, [(p,) for p in prompts], ({1: torch.export.Dim("prompt", min=1, max=model.length)},)


def _of_zoo(case: zoo.Case) -> tuple[Any, list[Any], Any]:
    sizes = [(1, 128), *case.sizes] if case.name == "minilm" else case.sizes
    return case.module(), [case.example(), *(case.inputs(size, 0) for size in sizes)], case.dynamic_shapes


def _cases_in(values: list[Any]) -> Iterator[ModelCase]:
    for value in values:
        if isinstance(value, ModelCase):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (v for v in value if isinstance(v, ModelCase))
        elif isinstance(value, dict):
            yield from (v for v in value.values() if isinstance(v, ModelCase))


def title(name: str) -> str:
    return TITLES.get(name, name)
