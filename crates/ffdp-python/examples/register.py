"""Two images, registered, looked at and measured: a notebook's worth of ffdp. Each `# %%` begins a cell."""

# %% Two images as arrays with their affines. nibabel and SimpleITK images, and paths, do as well.
import numpy as np

import ffdp

affine = np.diag([3.0, 3.0, 3.0, 1.0])
affine[:3, 3] = -72
index = np.stack(np.meshgrid(*3 * [np.arange(49)], indexing="ij"), axis=-1)
points = index @ affine[:3, :3].T + affine[:3, 3]


def head(points):
    """An ellipsoid with folds."""
    x, y, z = np.moveaxis(points, -1, 0)
    inside = 1 / (1 + np.exp(4 * ((x / 50) ** 2 + (y / 58) ** 2 + (z / 48) ** 2 - 1) * 10))
    return 100 * inside * (1 + 0.4 * np.sin(x / 7) * np.cos(y / 9) * np.sin(z / 8 + 1))


def bend(points):
    """Some millimetres, smoothly."""
    return 4 * np.sin(points[..., [1, 2, 0]] / 30)


fixed = ffdp.Image(head(points), affine)
moving = ffdp.Image(head(points - bend(points)), affine)

# %% A registration, with its progress. The settings are the flags of `ffdp register`.
def show(event):
    if event["loss"] is not None:
        print(f"\r{event['stage']} 1/{event['shrink']:.0f}  {event['loss']:.4f}   ", end="")


found = ffdp.register(fixed, moving, preset="fast", transform="svf", progress=show)
print("\n", found)

# %% What it is worth.
similarity = found.metrics["similarity"]
print("local correlation", similarity["before"]["local_ncc_foreground"], "->", similarity["after"]["local_ncc_foreground"])
print("folds", found.metrics["folds"]["percent"], "%")
error = found.transform(points[20:30, 20:30, 24].reshape(-1, 3)) - points[20:30, 20:30, 24].reshape(-1, 3)
print("moved by", np.linalg.norm(error, axis=1).mean(), "mm on average in the middle")

# %% The result for other programs: images, and transforms for ITK and ANTs.
found.warped.write("warped.nii.gz")
found.transform.write("transform.h5")

# %% The same transform on labels, and backwards.
labels = ffdp.Image((moving.array > 50).astype(np.uint8), affine)
there = ffdp.apply(found.transform, labels, fixed, interpolation="label")
back = ffdp.apply(found.inverse, there, moving, interpolation="label")
both = np.logical_and(back.array, labels.array).sum()
print("Dice there and back", 2 * both / (back.array.sum() + labels.array.sum()))
