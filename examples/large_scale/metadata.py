"""Which build did a model file come from? One hook stamps every file that the process writes.

PyTorch's documentation does this for TorchScript in C++ with SetExportModuleExtraFilesHook; this reaches torch.save, torch.export.save and sealift's
packages as well. `sealift bridge build` once before.

    python examples/large_scale/metadata.py
"""

import os
import tempfile

import torch

from sealift import observe

observe.set_metadata_hook(lambda file: {"producer": "trainer", "build": "2026-11-29.3", "format": file.format})

with tempfile.TemporaryDirectory() as folder:
    script, weights = os.path.join(folder, "model.ts"), os.path.join(folder, "weights.pt")
    model = torch.nn.Linear(4, 4)
    torch.jit.save(torch.jit.script(model), script)
    torch.save(model.state_dict(), weights)

    extra = {"sealift_metadata.json": ""}
    torch.jit.load(script, _extra_files=extra)  # PyTorch's own way to read it
    print("in the TorchScript archive:", "trainer" in str(extra["sealift_metadata.json"]))
    torch.load(weights, weights_only=True)
    for path in (script, weights):
        document = observe.read_metadata(path)
        assert document is not None
        print(os.path.basename(path), document["metadata"])
    saved, loaded = (e for e in observe.model_events() if e.path == weights)
    print("saved and loaded are one file:", saved.serialization_id == loaded.serialization_id)
