"""Other programs, each from two image files whose heads lie anywhere: a start, linear maps, a deformation.

A method is a function (fixed, moving, warp, threads) of three paths. It writes the whole map, from points of the fixed
to points of the moving image, as one ITK displacement (LPS mm) on the fixed grid to `warp`, and returns the seconds from
the images in memory to the transform; programs that read the files themselves count the reading, too. The settings are
those that the program's documentation gives for such images.
"""

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable


def picsl_greedy(fixed: Path, moving: Path, warp: Path, threads: int) -> float:
    """The two steps of greedy's documentation: affine by NMI from the centres, then WNCC in windows of 5 voxels."""
    from picsl_greedy import Greedy3D

    affine, deformation = (str(warp.parent / name) for name in ("affine.mat", "greedy.nii.gz"))
    images = f"-i {fixed} {moving} -n 100x50x10 -threads {threads}"
    start = time.perf_counter()
    Greedy3D().execute(f"{images} -a -dof 12 -m NMI -ia-image-centers -o {affine}")
    Greedy3D().execute(f"{images} -m WNCC 2x2x2 -it {affine} -o {deformation}")
    seconds = time.perf_counter() - start
    Greedy3D().execute(f"-rf {fixed} -r {deformation} {affine} -rc {warp} -threads {threads}")
    return seconds


def ants(kind: str) -> Callable:
    """`ants.registration` with one of its names, all else its defaults."""

    def method(fixed: Path, moving: Path, warp: Path, threads: int) -> float:
        import ants

        images = {"fixed": ants.image_read(str(fixed)), "moving": ants.image_read(str(moving))}
        prefix = f"{warp.parent}/ants_"
        start = time.perf_counter()
        found = ants.registration(**images, type_of_transform=kind, outprefix=prefix)
        seconds = time.perf_counter() - start
        composed = ants.apply_transforms(**images, transformlist=found["fwdtransforms"], compose=prefix)
        # It is always compressed.
        shutil.move(composed, f"{warp}.gz")
        return seconds

    return method


DEMONS_SHRINK = (4, 2, 1)


def demons(fixed: Path, moving: Path, warp: Path, threads: int) -> float:
    """SimpleITK: moments, rigid and affine by mutual information of 20 % of the voxels, diffeomorphic demons on matched
    histograms, 100 iterations a level."""
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(threads)
    images = [sitk.ReadImage(str(path), sitk.sitkFloat32) for path in (fixed, moving)]
    start = time.perf_counter()
    linear = sitk.CenteredTransformInitializer(
        *images, sitk.Euler3DTransform(), sitk.CenteredTransformInitializerFilter.MOMENTS
    )
    linear = by_mutual_information(*images, linear)
    rigid, linear = linear, sitk.AffineTransform(3)
    linear.SetMatrix(rigid.GetMatrix())
    linear.SetCenter(rigid.GetCenter())
    linear.SetTranslation(rigid.GetTranslation())
    linear = by_mutual_information(*images, linear)
    moved = sitk.HistogramMatching(sitk.Resample(images[1], images[0], linear), images[0], 256, 7, True)
    filter = sitk.DiffeomorphicDemonsRegistrationFilter()
    filter.SetNumberOfIterations(100)
    filter.SetStandardDeviations(1.5)
    displacement = None
    for shrink in DEMONS_SHRINK:
        level = [
            sitk.Shrink(sitk.SmoothingRecursiveGaussian(image, shrink / 2), [shrink] * 3) if shrink > 1 else image
            for image in (images[0], moved)
        ]
        start_at = [] if displacement is None else [sitk.Resample(displacement, level[0])]
        displacement = filter.Execute(*level, *start_at)
    seconds = time.perf_counter() - start
    # A transform takes the field that it is given.
    deformation = sitk.DisplacementFieldTransform(sitk.Cast(displacement, sitk.sitkVectorFloat64))
    whole = sitk.CompositeTransform([linear, deformation])
    write_displacement(sitk.TransformToDisplacementField(whole, sitk.sitkVectorFloat32, *grid(images[0])), warp)
    return seconds


def grid(image) -> tuple:
    return image.GetSize(), image.GetOrigin(), image.GetSpacing(), image.GetDirection()


def write_displacement(displacement, warp: Path) -> None:
    import SimpleITK as sitk

    sitk.WriteImage(sitk.Cast(displacement, sitk.sitkVectorFloat32), str(warp))


def by_mutual_information(fixed, moving, start):
    """A linear transform that is improved on levels of 4, 2 and 1 voxels."""
    import SimpleITK as sitk

    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(32)
    method.SetMetricSamplingStrategy(method.REGULAR)
    # A seed: without one the clock draws the samples.
    method.SetMetricSamplingPercentage(0.2, 1)
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsGradientDescent(1.0, 100, 1e-6, 10)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel([4, 2, 1])
    method.SetSmoothingSigmasPerLevel([2, 1, 0])
    method.SetInitialTransform(start, inPlace=True)
    method.Execute(fixed, moving)
    return start


def elastix(*maps: str) -> Callable:
    """Rigid, affine and B-splines one after the other, each by its default parameter map (mutual information of random
    samples)."""

    def method(fixed: Path, moving: Path, warp: Path, threads: int) -> float:
        import itk

        images = [itk.imread(str(path), itk.F) for path in (fixed, moving)]
        parameters = itk.ParameterObject.New()
        for name in maps:
            parameters.AddParameterMap(itk.ParameterObject.GetDefaultParameterMap(name))
        itk.MultiThreaderBase.SetGlobalDefaultNumberOfThreads(threads)
        start = time.perf_counter()
        _, found = itk.elastix_registration_method(*images, parameter_object=parameters)
        seconds = time.perf_counter() - start
        itk.imwrite(itk.transformix_deformation_field(images[1], found, output_directory=str(warp.parent)), str(warp))
        return seconds

    return method


# Of FireANTs' quick start for greedy, and of its script for CUMC12 (brains of 1 mm, labels drawn by hand) for SyN.
FIREANTS = {
    "greedy": {"iterations": [200, 100, 25]},
    "syn": {"iterations": [100, 50, 25]},
}
LINEAR_RATE = 3e-3
"""Of the affine stage in the quick start. Ten times as much, the default of the classes, was 0.002 of Dice worse on two
training pairs of 4 mm."""


def fireants(kind: str) -> Callable:
    """Centre of mass, rigid, affine and a deformation, all by cross-correlation in windows of 5 voxels."""

    def method(fixed: Path, moving: Path, warp: Path, threads: int) -> float:
        import torch
        from fireants.io.image import BatchedImages, Image
        from fireants.registration.greedy import GreedyRegistration
        from fireants.registration.syn import SyNRegistration

        device = torch_device(threads)
        images = [BatchedImages([Image.load_file(str(path), device=device)]) for path in (fixed, moving)]
        synchronize()
        start = time.perf_counter()
        deformation = {"greedy": GreedyRegistration, "syn": SyNRegistration}[kind](
            scales=[4, 2, 1], fixed_images=images[0], moving_images=images[1], loss_type=fireants_loss(device),
            cc_kernel_size=5, deformation_type="compositive", smooth_grad_sigma=1, optimizer="adam", optimizer_lr=0.5,
            init_affine=fireants_affine(*images, fireants_loss(device)), progress_bar=False, **FIREANTS[kind],
        )  # fmt: skip
        deformation.optimize()
        synchronize()
        seconds = time.perf_counter() - start
        deformation.save_as_ants_transforms(str(warp))
        return seconds

    return method


def fireants_affine(fixed, moving, loss: str):
    from fireants.registration.affine import AffineRegistration
    from fireants.registration.moments import MomentsRegistration
    from fireants.registration.rigid import RigidRegistration

    moments = MomentsRegistration(scale=4, fixed_images=fixed, moving_images=moving, moments=1)
    moments.optimize()
    settings = {
        "scales": [4, 2, 1], "iterations": [200, 100, 50], "fixed_images": fixed, "moving_images": moving,
        "loss_type": loss, "optimizer": "Adam", "optimizer_lr": LINEAR_RATE, "cc_kernel_size": 5,
        "progress_bar": False,
    }  # fmt: skip
    rigid = RigidRegistration(**settings, **moments.get_rigid_init_dict())
    rigid.optimize()
    affine = AffineRegistration(**settings, init_rigid=rigid.get_rigid_matrix().detach())
    affine.optimize()
    return affine.get_affine_matrix().detach()


def fireants_loss(device) -> str:
    from importlib.util import find_spec

    return "fusedcc" if device.type == "cuda" and find_spec("fireants_fused_ops") else "cc"


def torch_device(threads: int):
    import torch

    torch.set_num_threads(threads)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def convex_adam(fixed: Path, moving: Path, warp: Path, threads: int) -> float:
    """ConvexAdam with MIND features and the defaults of its function, after the affine map of `ffdp`: it is made for
    aligned pairs. Its seconds are without those of the affine map, which count in the whole."""
    import nibabel
    import numpy as np
    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt

    ffdp, device = os.environ["PEERS_FFDP"], torch_device(threads)
    here = ["--device", os.environ.get("PEERS_FFDP_DEVICE", "cpu")]
    aligned = warp.parent / "affine"
    request = [ffdp, "register", "-f", fixed, "-m", moving, "--transform", "affine", "-q", "--overwrite"]
    subprocess.run([*request, "-o", aligned, *here], check=True, capture_output=True)
    target, moved = nibabel.load(fixed), nibabel.load(aligned / "warped.nii.gz")
    images = [np.asarray(image.dataobj, dtype=np.float32) for image in (target, moved)]
    synchronize()
    start = time.perf_counter()
    voxels = convex_adam_pt(*(torch.from_numpy(image) for image in images), device=device)
    synchronize()
    seconds = time.perf_counter() - start
    # x + u in mm of the fixed image, then through the affine map of ITK.
    at = np.stack(np.meshgrid(*(np.arange(n) for n in target.shape), indexing="ij"), axis=-1)
    lps = np.diag([-1.0, -1, 1, 1]) @ target.affine
    there = (at + voxels) @ lps[:3, :3].T + lps[:3, 3]
    matrix, offset = itk_affine(aligned / "affine.txt")
    displacement = there @ matrix.T + offset - (at @ lps[:3, :3].T + lps[:3, 3])
    image = nibabel.Nifti1Image(displacement[:, :, :, None, :].astype(np.float32), target.affine)
    image.header.set_intent(1007)
    nibabel.save(image, warp)
    return seconds


def itk_affine(path: Path):
    """Matrix and offset of an affine map in ITK's text."""
    import numpy as np

    lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    values = np.array([float(v) for v in lines["Parameters"].split()])
    centre = np.array([float(v) for v in lines["FixedParameters"].split()])
    matrix = values[:9].reshape(3, 3)
    return matrix, values[9:] + centre - matrix @ centre


@dataclass
class Method:
    run: Callable
    packages: list[str]
    """Whose versions the row names, of PyPI but for fireants-fused-ops; the first one is the program."""
    device: str = "cpu"
    """"cuda": all pairs in one process, on the GPU where there is one."""
    notes: list[str] = field(default_factory=list)


METHODS = {
    "PICSL greedy": Method(picsl_greedy, ["picsl-greedy"]),
    "FireANTs greedy": Method(fireants("greedy"), ["fireants", "fireants-fused-ops"], "cuda"),
    "FireANTs SyN": Method(fireants("syn"), ["fireants", "fireants-fused-ops"], "cuda"),
    "ConvexAdam": Method(convex_adam, ["convexadam"], "cuda"),
    "ANTs SyN (MI)": Method(ants("SyN"), ["antspyx"]),
    "ANTs SyN (CC)": Method(ants("antsRegistrationSyN[s]"), ["antspyx"]),
    "ANTs SyNCC": Method(ants("SyNCC"), ["antspyx"]),
    "demons": Method(demons, ["simpleitk"]),
    "elastix": Method(elastix("rigid", "affine", "bspline"), ["itk-elastix"]),
}
