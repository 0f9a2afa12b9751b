"""Registration of 3-D images: finds the deformation that carries one image onto another.

Arrays have the axes (x, y, z), affines and points are in RAS mm, as nibabel has them.
Settings have the names of the command line's flags, with underscores.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__version__: str

_Path = str | PathLike[str]
_Image = Image | _Path | Any
"""An `Image`, a path, or an image of nibabel or SimpleITK."""
_Transform = Transform | _Path | NDArray[Any] | Sequence["_Transform"]
"""A `Transform`, a path, a 4x4 array in RAS mm, or a list of those, the first applied first."""
_Points = ArrayLike | _Path
"""Points (N, 3) in RAS mm, or a file of landmarks."""
_NanPolicy = Literal["error", "zero", "mask"]

class Error(Exception):
    """What ffdp refuses, or what failed, in the words of the command line."""

    help: str | None
    """What to do about it."""

class InputError(Error, ValueError):
    """An image, a file or a setting cannot be used."""

class FileError(Error, OSError):
    """A file could not be read or written."""

class OutOfMemoryError(Error, MemoryError):
    """Memory or disk do not suffice; found out before the work."""

class DeviceError(Error, RuntimeError):
    """A device failed, or something that must not happen did."""

@final
class Image:
    """An image: an array of two or three axes (x, y, z), and the affine from voxel indices to RAS mm."""

    def __new__(cls, array: ArrayLike, affine: ArrayLike) -> Image: ...
    @staticmethod
    def read(path: _Path, volume: int | None = None) -> Image:
        """The image of a file (NIfTI, OME-Zarr, NRRD, MetaImage, MGZ, DICOM, TIFF, PNG, JPEG), as float32.

        Of a file with several volumes, `volume` is the one to read, from 0.
        """

    def write(self, path: _Path) -> None:
        """Writes it in the format of the name: integers as a label map, anything else as float32."""

    @property
    def array(self) -> NDArray[Any]:
        """The voxels, (x, y, z); of the type that they were given in."""

    @property
    def affine(self) -> NDArray[np.float64]:
        """The 4x4 matrix from voxel indices to RAS mm."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def spacing(self) -> tuple[float, float, float]:
        """The distance of neighbouring voxels along each axis, in mm."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]: ...
    def to_nibabel(self) -> Any:
        """A `nibabel.Nifti1Image` of the same voxels."""

    def to_sitk(self) -> Any:
        """A `SimpleITK.Image` of the same voxels, in ITK's world (LPS)."""

@final
class Transform:
    """A map from points of the fixed to points of the moving image, in RAS mm."""

    def __new__(cls, matrix: ArrayLike | None = None) -> Transform:
        """An affine map by its 4x4 matrix in RAS mm; without one, the identity."""

    @staticmethod
    def read(*paths: _Path) -> Transform:
        """The chain of transforms in files (ITK, ANTs, FreeSurfer): the first one is applied first, as with
        `ffdp apply -t` and `antsApplyTransforms`."""

    @staticmethod
    def read_flirt(path: _Path, moving: _Image, fixed: _Image) -> Transform:
        """A matrix of FSL FLIRT, which is about these two images."""

    @staticmethod
    def from_displacement(vectors: ArrayLike, affine: ArrayLike) -> Transform:
        """The map `p + vectors` by an array (x, y, z, 3) in RAS mm on the grid with this affine."""

    def write(self, path: _Path) -> None:
        """Writes it for ITK and ANTs: a chain as `.h5`, an affine map as `.txt`, `.tfm` or `.mat`, one displacement
        as `.nii.gz`."""

    @property
    def matrix(self) -> NDArray[np.float64] | None:
        """The whole map as a 4x4 matrix in RAS mm; `None` if it deforms."""

    @property
    def steps(self) -> list[Transform]:
        """The maps that it is made of, the first applied first."""

    def displacement(self, reference: _Image) -> NDArray[np.float32]:
        """The whole map as displacements (x, y, z, 3) in RAS mm at the voxels of a grid."""

    def on_grid(self, reference: _Image) -> Transform:
        """The whole map as one displacement on a grid, which a displacement file can hold."""

    def then(self, next: Transform) -> Transform:
        """This map first, then `next`."""

    def inverse(self) -> Transform:
        """The inverse map; that of a displacement is solved for wherever it is needed."""

    def __call__(self, points: ArrayLike) -> NDArray[np.float64]:
        """Where points (N, 3) go, RAS mm."""

class _Progress(TypedDict):
    """What `progress` is called with, at the beginning of a level and whenever losses are read."""

    stage: str
    level: int
    levels: int
    shrink: float
    iteration: int
    iterations: int
    loss: float | None

@final
class Registration:
    """What a registration has found, and what it is worth."""

    @property
    def warped(self) -> Image:
        """The moving image on the grid of the fixed one, in its own intensities."""

    @property
    def warped_labels(self) -> Image | None:
        """The moving labels there."""

    @property
    def transform(self) -> Transform:
        """From points of the fixed to points of the moving image."""

    @property
    def inverse(self) -> Transform | None:
        """From points of the moving to points of the fixed image."""

    @property
    def verdict(self) -> Literal["aligned", "doubtful", "failed"]: ...
    @property
    def reasons(self) -> list[str]:
        """What speaks against the result, the worst first."""

    @property
    def losses(self) -> list[tuple[str, float, list[float]]]:
        """Stage, shrink factor and losses of each level, in the order of the run."""

    @property
    def metrics(self) -> dict[str, Any]:
        """All measures, by the names of `metrics.json`."""

    @property
    def settings(self) -> dict[str, Any] | None:
        """All settings; `register(.., settings=that)` repeats the run."""

def register(
    fixed: _Image,
    moving: _Image,
    *,
    fixed_mask: _Image | None = None,
    moving_mask: _Image | None = None,
    fixed_labels: _Image | None = None,
    moving_labels: _Image | None = None,
    channels: Sequence[tuple[_Image, _Image]] | None = None,
    landmarks: tuple[_Points, _Points] | None = None,
    initial: _Transform | None = None,
    progress: Callable[[_Progress], object] | None = None,
    settings: _Path | dict[str, Any] | None = None,
    preset: Literal["fast", "default", "quality", "multimodal", "hard"] | None = None,
    multimodal: bool = False,
    transform: str | None = None,
    centre: Literal["moments", "geometry", "header"] | None = None,
    aligned: bool = False,
    search: bool | float | None = None,
    landmark_sigma: float | tuple[float, float] | None = None,
    label_terms: Sequence[int] | None = None,
    label_weight: float | None = None,
    metric: str | None = None,
    features: str | None = None,
    window: int | None = None,
    bins: int | None = None,
    parzen: Literal["linear", "bspline3", "gaussian"] | None = None,
    match_histograms: bool = False,
    iterations: int | Sequence[int] | None = None,
    shrink: float | Sequence[float] | None = None,
    deterministic: bool = False,
    lr: float | None = None,
    diffusion: float | None = None,
    spacing_mm: float | Sequence[float] | None = None,
    beta: float | None = None,
    beta_div: float | None = None,
    determinant: tuple[float, float] | None = None,
    time_steps: int | None = None,
    preconditioner: str | None = None,
    sigma_grad: float | None = None,
    sigma_warp: float | None = None,
    labels: Sequence[int] | None = None,
    background: float | None = None,
    labels_as_images: bool = False,
    no_inverse: bool = False,
    volume: int | None = None,
    nan_policy: _NanPolicy = "error",
    device: str | None = None,
) -> Registration:
    """Finds the transform that carries `moving` onto `fixed`.

    The images may differ in spacing, orientation, size and origin. The settings are the flags of `ffdp register`
    (`ffdp register --help`); on the CPU the results are those of the command line to the bit.

    - `fixed_mask`, `moving_mask`: how much each voxel counts, 0 to 1.
    - `fixed_labels`, `moving_labels`: their overlap is measured, and with `label_terms` drives the registration.
    - `channels`: further pairs of images on the same grids.
    - `landmarks`: points that belong together; measured, and with `landmark_sigma` (mm) they drive the registration.
    - `initial`: where the search starts, from points of the fixed to points of the moving image.
    - `progress`: called with a dictionary, `_Progress` of the stubs; the run ends early where it returns `False`, and with its exception where it
      raises one.
    - `background`: intensity where the moving image does not reach; what its border shows, without.

    Other threads of Python run meanwhile. Ctrl-C ends it within some iterations.
    """

def apply(
    transform: _Transform | None,
    moving: _Image,
    reference: _Image | None = None,
    *,
    interpolation: Literal["linear", "cubic", "sinc", "nearest", "label"] = "linear",
    background: float = 0.0,
    inverse: bool = False,
    volume: int | None = None,
    nan_policy: _NanPolicy = "error",
    device: str | None = None,
) -> Image:
    """`moving` seen through a transform on the grid of `reference`, or of the displacement that comes first.

    `nearest` keeps integers of an array what they are; `label` is for label maps. Without a transform the image is
    resampled.
    """

def train(
    *,
    output: _Path = "transmorph-run",
    settings: _Path | dict[str, Any] | None = None,
    resume: bool = False,
    device: str | None = None,
    **recipe: Any,
) -> dict[str, Any]:
    """Trains a registration network; the recipe is the flags of `ffdp train` (`ffdp train --help`).

    Everything is written to the folder `output`, which `predict` takes. Returns the folder, the best epoch, the number of
    steps and their seconds, and the evaluation of held-out pairs. Ctrl-C ends it after a step; `resume=True` goes on.
    """

def predict(
    model: _Path,
    fixed: _Image,
    moving: _Image,
    *,
    fixed_labels: _Image | None = None,
    moving_labels: _Image | None = None,
    progress: Callable[[_Progress], object] | None = None,
    checkpoint: Literal["best", "last"] | int = "best",
    refine: int | None = None,
    size: int | str | None = None,
    align: str | None = None,
    volume: int | None = None,
    nan_policy: _NanPolicy = "error",
    device: str | None = None,
) -> Registration:
    """Registers two images with a network that `train` has trained; `model` is its folder.

    The transform is one displacement on the fixed grid. `refine` improves it by at most so many iterations of the
    registration engine. `losses` is empty, `settings` and `inverse` are `None`.
    """
