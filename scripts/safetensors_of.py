"""A PyTorch checkpoint as a safetensors file, for `ffdp import`.

    python3 -m venv v && v/bin/pip install torch numpy safetensors
    v/bin/python scripts/safetensors_of.py TransMorph.pth.tar TransMorph.safetensors

The checkpoint is a state_dict, or a dict that has one as "state_dict" or "model". Names that data-parallel
training puts in front ("module.") are taken away. Only tensors are unpickled.
"""

import sys

import torch
from safetensors.torch import save_file

checkpoint = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
for key in ("state_dict", "model"):
    checkpoint = checkpoint.get(key, checkpoint)
tensors = {
    name.removeprefix("module."): tensor.contiguous()
    for name, tensor in checkpoint.items()
    if isinstance(tensor, torch.Tensor)
}
save_file(tensors, sys.argv[2])
print(f"{len(tensors)} tensors, {sum(t.numel() for t in tensors.values())} numbers")
