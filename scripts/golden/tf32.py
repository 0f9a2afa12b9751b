"""Why gradients of a whole TransMorph differ by several percent between TF32 and f32 convolutions.

    v/bin/python scripts/golden/tf32.py          (CPU; needs torch and numpy, as transmorph.py)

The network of transmorph.py in f64, once exact and once with the factors of every 3^3 convolution rounded to
TF32, in both passes; with the published slope of LeakyReLU and with slope 1, where there is no kink. Printed:
the largest difference of the displacement and of its gradients to both images, relative to their largest entry.
PyTorch 2.15: slope 0.01: 8e-4, 6e-2, 8e-2; slope 1: 5e-4, 1e-3, 1e-3. What rounding moves across a kink
changes its gradient by a factor of 100, so the difference belongs to the rounding, not to anybody's kernels.
"""

import torch
import torch.nn.functional as F
from torch import nn

from transmorph import SIZE, TransMorph, fill


def tf32(x):
    """To nearest with 10 bits after the point."""
    bits = (x.float().contiguous().view(torch.int32) + 0x1000) & ~0x1FFF
    return bits.view(torch.float32).to(x.dtype)


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return F.conv3d(tf32(x), tf32(w), padding=1)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        to_x = torch.nn.grad.conv3d_input(x.shape, tf32(w), tf32(g), padding=1)
        return to_x, torch.nn.grad.conv3d_weight(tf32(x), w.shape, tf32(g), padding=1)


class RoundedConv(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        y = Rounded.apply(x, self.conv.weight)
        return y if self.conv.bias is None else y + self.conv.bias.view(1, -1, 1, 1, 1)


def run(slope, rounded):
    network = TransMorph(True)
    fill(network)
    network = network.double()
    with torch.no_grad():
        # An untrained head: nearly no motion.
        network.reg_head[0].weight *= 1e-3
        network.reg_head[0].bias *= 0
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.LeakyReLU):
                setattr(module, name, nn.LeakyReLU(slope))
            if rounded and isinstance(child, nn.Conv3d) and child.kernel_size[0] == 3:
                setattr(module, name, RoundedConv(child))
    torch.manual_seed(3)
    images = [torch.randn(1, 1, *SIZE, dtype=torch.float64).requires_grad_() for _ in range(2)]
    flow = network(*images)
    (flow * flow.detach().sin()).sum().backward()
    return [flow.detach()] + [image.grad for image in images]


for slope in (0.01, 1.0):
    exact, rounded = run(slope, False), run(slope, True)
    apart = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(rounded, exact)]
    print(f"slope {slope}: displacement {apart[0]:.1e}, gradients {apart[1]:.1e} {apart[2]:.1e}")
