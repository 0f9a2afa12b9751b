"""A pair of images whose grids differ, in memory and as files, and the command line to compare with."""

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest

import ffdp

# The environment chooses devices of both sides otherwise.
os.environ["FFDP_DEVICE"] = "cpu"
# A shell that runs the tests in the background has what they start ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def rotation(degrees, axes):
    """A turn in the plane of two axes."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turn = np.eye(3)
    i, j = axes
    turn[i, i], turn[i, j], turn[j, i], turn[j, j] = c, -s, s, c
    return turn


def affine_of(shape, spacing, turn, flip=(1, 1, 1)):
    """The grid of a shape around the origin; as NIfTI keeps it, in float32."""
    affine = np.eye(4)
    affine[:3, :3] = turn @ np.diag(np.multiply(spacing, flip))
    affine[:3, 3] = -affine[:3, :3] @ ((np.array(shape) - 1) / 2)
    return affine.astype(np.float32).astype(float)


def points_of(shape, affine):
    """The position of every voxel, RAS mm: (x, y, z, 3)."""
    index = np.stack(np.meshgrid(*[np.arange(n) for n in shape], indexing="ij"), axis=-1)
    return index @ affine[:3, :3].T + affine[:3, 3]


def bend(points):
    """A smooth displacement of a few mm."""
    return np.stack(
        [
            4 * np.sin(points[..., 1] / 30),
            3 * np.cos(points[..., 2] / 25),
            3 * np.sin(points[..., 0] / 28 + 1),
        ],
        axis=-1,
    )


class Head:
    """Blobs in an ellipsoid, anywhere in space; the same for the same seed."""

    def __init__(self, seed=7):
        random = np.random.default_rng(seed)
        self.centres = random.uniform(-45, 45, (24, 3))
        self.widths = random.uniform(6, 14, 24)
        self.heights = random.uniform(-0.6, 0.9, 24)

    def intensities(self, points):
        inside = 1 / (1 + np.exp((np.linalg.norm(points / [68, 80, 62], axis=-1) - 0.85) * 30))
        value = np.ones(points.shape[:-1])
        for centre, width, height in zip(self.centres, self.widths, self.heights):
            value += height * np.exp(-(((points - centre) / width) ** 2).sum(-1) / 2)
        return (100 * inside * np.maximum(value, 0)).astype(np.float32)

    def labels(self, points):
        label = np.zeros(points.shape[:-1], np.uint8)
        for k in range(4):
            label[np.linalg.norm(points - self.centres[k], axis=-1) < self.widths[k] + 8] = k + 1
        return label


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """A fixed and a moving image with labels, landmarks and a mask; `files` has the paths of all."""
    folder, head = tmp_path_factory.mktemp("pair"), Head()
    shapes = {"fixed": (40, 44, 36), "moving": (42, 40, 38)}
    affines = {
        "fixed": affine_of(shapes["fixed"], (4, 4.25, 4.5), rotation(8, (0, 1))),
        "moving": affine_of(shapes["moving"], (4.25, 4.5, 4), rotation(-5, (1, 2)), (-1, -1, 1)),
    }
    made = SimpleNamespace(folder=folder, files={}, arrays={}, affines=affines)
    for name, affine in affines.items():
        points = points_of(shapes[name], affine)
        # What the fixed image shows at p lies at p + bend(p) in the moving one, but for a turn of its own.
        seen = points if name == "fixed" else (points - bend(points)) @ rotation(4, (0, 2)).T
        arrays = {
            name: head.intensities(seen),
            f"{name}_labels": head.labels(seen),
            f"{name}_mask": (np.linalg.norm(points, axis=-1) < 85).astype(np.float32),
            f"{name}_edges": np.gradient(head.intensities(seen), axis=0).astype(np.float32),
        }
        for key, array in arrays.items():
            image = nibabel.Nifti1Image(array, affine)
            image.set_sform(affine, 1)
            image.set_qform(None, 0)
            made.arrays[key] = array
            made.files[key] = folder / f"{key}.nii.gz"
            nibabel.save(image, made.files[key])
    points = head.centres[:8]
    turned = points @ rotation(4, (0, 2))
    made.landmarks = points, turned + bend(turned)
    for key, points in zip(["fixed_points", "moving_points"], made.landmarks):
        made.files[key] = folder / f"{key}.csv"
        np.savetxt(made.files[key], points, fmt="%.17g", delimiter=",", header="x,y,z", comments="")
    return made


@pytest.fixture(scope="session")
def command():
    """Runs `ffdp` and returns what it printed; the executable is named by FFDP_COMMAND."""
    name = os.environ.get("FFDP_COMMAND")
    if name is None:
        pytest.skip("FFDP_COMMAND does not name the executable ffdp of the same version")
    executable = Path(name).resolve(strict=True)

    def run(*words, fails=False):
        done = subprocess.run(
            [executable, *map(str, words)], capture_output=True, text=True, timeout=300
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


@pytest.fixture(scope="session")
def sitk():
    """SimpleITK, where it is installed."""
    return pytest.importorskip("SimpleITK", reason="SimpleITK is not installed")


@pytest.fixture(scope="session")
def found(pair):
    """The result that several tests look at."""
    return ffdp.register(pair.files["fixed"], pair.files["moving"], preset="fast")
