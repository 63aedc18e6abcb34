"""GPT-2 as prefill and one-token decode over one cache, in one package whose models share their weights.

    python examples/gpt2_generate.py --out gpt2.pt2 --tokens 40            # compile, then write two texts at once
    python examples/gpt2_generate.py --layers 2 --width 64 --heads 4       # a small one, compiled in seconds

The weights are random (there is no network here); for GPT-2's own, put GPT2LMHeadModel.from_pretrained("gpt2") in their place.
Generating imports numpy and sealift alone."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

import sealift

if TYPE_CHECKING:
    import torch


def compile_gpt2(path: Path, layers: int, width: int, heads: int, vocab: int, length: int) -> Path:
    """prefill(input_ids [1, n]) -> logits of the last token; decode(token [1, 1], position [1]) -> logits. Both over 2 * layers buffers
    [1, heads, length, width / heads], which they write rows of."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    class Cached(torch.nn.Module):
        def __init__(self, gpt2: GPT2LMHeadModel) -> None:
            super().__init__()
            self.gpt2 = gpt2
            for i in range(layers):
                for name in ("key", "value"):
                    self.register_buffer(f"{name}{i}", torch.zeros(1, heads, length, width // heads))

        def logits(self, tokens: torch.Tensor, at: torch.Tensor, reads: torch.Tensor) -> torch.Tensor:
            """`at`: the tokens' positions; `reads`: those of the keys they look at."""
            self.at = at
            mask = reads <= at[:, None]
            body = self.gpt2.transformer(input_ids=tokens, position_ids=at[None], attention_mask=mask[None, None], cache=self, use_cache=True)
            return self.gpt2.lm_head(body.last_hidden_state[:, -1])

        def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            key, value = getattr(self, f"key{layer}"), getattr(self, f"value{layer}")
            key.index_copy_(2, self.at, keys)
            value.index_copy_(2, self.at, values)
            return key, value

    class Prefill(Cached):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            positions = torch.arange(input_ids.shape[1])
            return self.logits(input_ids, positions, positions)

        def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, **_: object) -> tuple[torch.Tensor, torch.Tensor]:
            """What transformers calls on its caches: prefill writes the rows and looks at them where they come from."""
            self.write(layer, keys, values)
            return keys, values

    class Decode(Cached):
        def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            return self.logits(token, position, torch.arange(length))

        def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, **_: object) -> tuple[torch.Tensor, torch.Tensor]:
            return self.write(layer, keys, values)

    torch.manual_seed(0)
    config = GPT2Config(n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocab, n_positions=length, bos_token_id=0, eos_token_id=0)
    gpt2 = GPT2LMHeadModel(config).eval()
    for parameter in gpt2.parameters():
        parameter.data.mul_(3.0 if parameter.ndim == 2 else 1.0)  # random weights as small as GPT-2's at its birth say one word only
    n = torch.export.Dim("n", min=1, max=length)
    one = torch.zeros(1, dtype=torch.int64)
    prefill = torch.export.export(Prefill(gpt2), (torch.zeros(1, 8, dtype=torch.int64),), dynamic_shapes=({1: n},))
    decode = torch.export.export(Decode(gpt2), (one[None], one))
    return sealift.compile({"prefill": prefill, "decode": decode}, path)


def generate(session: sealift.Session, prompt: list[int], count: int) -> list[int]:
    """Greedy: the likeliest token, `count` times."""
    logits = session["prefill"](np.array([prompt]))
    tokens: list[int] = []
    for k in range(count):
        tokens.append(int(logits.argmax()))
        logits = session["decode"](np.array([tokens[-1:]]), np.array([len(prompt) + k]))
    return tokens


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpt2.pt2"))
    for name, default in (("tokens", 20), ("layers", 12), ("width", 768), ("heads", 12), ("vocab", 50257), ("length", 1024)):
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args(argv)
    start = time.perf_counter()
    path = compile_gpt2(a.out, a.layers, a.width, a.heads, a.vocab, a.length)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, compiled in {time.perf_counter() - start:.1f} s")

    package = sealift.load_package(path, num_threads=1)
    prompts = [[1, 2, 3, 4, 5], [6, 7, 8]]
    texts: list[list[int]] = [[], []]

    def write(which: int) -> None:
        texts[which] = generate(package.session(), prompts[which], a.tokens)  # a session for each text: nothing mixes

    threads = [Thread(target=write, args=(which,)) for which in range(len(prompts))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    for prompt, text in zip(prompts, texts):
        print(f"{prompt} -> {text}")
    print(f"{len(prompts) * a.tokens / took:.0f} tokens/s, two texts at once")

    session = package.session()
    session["prefill"](np.array([prompts[0]]))
    branch = session.clone()  # goes on from here by itself
    token, position = np.array([texts[0][:1]]), np.array([len(prompts[0])])
    assert np.array_equal(session["decode"](token, position), branch["decode"](token, position))
    session.reset()  # the cache as it was compiled: zeros
    assert generate(session, prompts[0], a.tokens) == texts[0]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
