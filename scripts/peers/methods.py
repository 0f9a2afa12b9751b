"""The peers: each registers two image files and writes its displacement on the fixed grid.

A method is a function (fixed, moving, warp) of three paths. It trusts the headers (the pairs of the
comparison are aligned), writes an ITK displacement (LPS mm, 5-D NIfTI, intent 1007) to `warp`, and
returns the seconds of the registration alone: without reading the images and writing the result.
"""

import shutil
import subprocess
import time
from pathlib import Path


def ants_syn(fixed: Path, moving: Path, warp: Path) -> float:
    """ANTs SyN with cross-correlation, as antsRegistrationSyN.sh has it (100x70x50x20 iterations)."""
    return by_antspyx(fixed, moving, warp, type_of_transform="antsRegistrationSyN[so]")


def ants_syn_short(fixed: Path, moving: Path, warp: Path) -> float:
    """ANTs SyN with cross-correlation (radius 4) and antspyx's other defaults: 40x20x0 iterations."""
    return by_antspyx(
        fixed, moving, warp, type_of_transform="SyNOnly", syn_metric="CC", syn_sampling=4
    )


def by_antspyx(fixed: Path, moving: Path, warp: Path, **choices) -> float:
    """A deformation by antspyx alone, from the headers."""
    import ants

    images = [ants.image_read(str(path)) for path in (fixed, moving)]
    start = time.perf_counter()
    found = ants.registration(
        *images,
        initial_transform="Identity",
        outprefix=str(warp.parent / "ants_"),
        **choices,
    )
    seconds = time.perf_counter() - start
    (field,) = [path for path in found["fwdtransforms"] if path.endswith(".nii.gz")]
    shutil.move(field, warp)
    return seconds


def sitk_demons(fixed: Path, moving: Path, warp: Path) -> float:
    """SimpleITK's diffeomorphic demons on matched histograms, shrink 4, 2, 1, 100 iterations each."""
    import SimpleITK as sitk

    fixed_image, moving_image = (sitk.ReadImage(str(p), sitk.sitkFloat32) for p in (fixed, moving))
    start = time.perf_counter()
    moving_image = sitk.HistogramMatching(moving_image, fixed_image, 256, 7, True)
    demons = sitk.DiffeomorphicDemonsRegistrationFilter()
    demons.SetNumberOfIterations(100)
    demons.SetStandardDeviations(1.5)
    field = None
    for shrink in (4, 2, 1):
        level = [
            sitk.Shrink(sitk.SmoothingRecursiveGaussian(image, shrink / 2), [shrink] * 3)
            if shrink > 1
            else image
            for image in (fixed_image, moving_image)
        ]
        if field is None:
            field = demons.Execute(*level)
        else:
            field = demons.Execute(*level, sitk.Resample(field, level[0]))
    seconds = time.perf_counter() - start
    sitk.WriteImage(sitk.Cast(field, sitk.sitkVectorFloat32), str(warp))
    return seconds


def elastix_bspline(fixed: Path, moving: Path, warp: Path) -> float:
    """Elastix: B-splines with its default parameter map (mutual information, 4 levels, 10 mm)."""
    return by_elastix(fixed, moving, warp, (4, 10.0), {})


DENSE_ITERATIONS = 30


def elastix_bspline_dense(fixed: Path, moving: Path, warp: Path) -> float:
    """Elastix: the same with all voxels in every evaluation, as `ffdp` has them: 3 levels of 30 evaluations, 5 mm."""
    changes = {
        "ImageSampler": ["Full"],
        "NewSamplesEveryIteration": ["false"],
        "MaximumNumberOfIterations": [str(DENSE_ITERATIONS)],
    }
    return by_elastix(fixed, moving, warp, (3, 5.0), changes)


def by_elastix(
    fixed: Path, moving: Path, warp: Path, levels: tuple[int, float], changes: dict[str, list[str]]
) -> float:
    """Elastix with its default parameters but for `changes`: levels, and mm between the final knots."""
    import itk
    import SimpleITK as sitk

    images = [itk.imread(str(path), itk.F) for path in (fixed, moving)]
    parameters = itk.ParameterObject.New()
    parameters.AddParameterMap(
        {**parameters.GetDefaultParameterMap("bspline", *levels), **changes}
    )
    start = time.perf_counter()
    _, transform = itk.elastix_registration_method(*images, parameter_object=parameters)
    seconds = time.perf_counter() - start
    values = itk.transformix_deformation_field(images[1], transform)
    field = sitk.GetImageFromArray(itk.array_from_image(values), isVector=True)
    field.CopyInformation(sitk.ReadImage(str(fixed)))
    sitk.WriteImage(sitk.Cast(field, sitk.sitkVectorFloat32), str(warp))
    return seconds


PLASTIMATCH_STAGES = ((4, 20), (2, 10), (1, 5))  # voxels that are skipped, mm between knots


def plastimatch_bspline(fixed: Path, moving: Path, warp: Path) -> float:
    """plastimatch (the program): B-splines by mutual information of 32 bins, L-BFGS-B, 100 iterations a stage, final
    knots every 5 mm, no penalty."""
    import SimpleITK as sitk

    stages = (
        f"[STAGE]\nxform=bspline\noptim=lbfgsb\nimpl=plastimatch\nthreading=openmp\nmetric=mi\n"
        f"mi_histogram_bins=32\nmax_its=100\nres={skip} {skip} {skip}\ngrid_spac={mm} {mm} {mm}\n"
        for skip, mm in PLASTIMATCH_STAGES
    )
    field = warp.parent / "plastimatch.nii.gz"
    request = warp.parent / "plastimatch.txt"
    head = f"[GLOBAL]\nfixed={fixed}\nmoving={moving}\nvf_out={field}\n"
    request.write_text("\n".join([head, *stages]))
    start = time.perf_counter()
    subprocess.run(["plastimatch", "register", str(request)], check=True, capture_output=True)
    seconds = time.perf_counter() - start
    values = sitk.ReadImage(str(field), sitk.sitkVectorFloat32)
    values.CopyInformation(sitk.ReadImage(str(fixed)))
    sitk.WriteImage(values, str(warp))
    return seconds


METHODS = {
    "ANTs SyN (CC, short)": (ants_syn_short, "antspyx"),
    "ANTs SyN (CC)": (ants_syn, "antspyx"),
    "SimpleITK demons": (sitk_demons, "SimpleITK"),
    "elastix B-spline (MI)": (elastix_bspline, "itk-elastix"),
    "elastix B-spline (MI, all voxels)": (elastix_bspline_dense, "itk-elastix"),
    "plastimatch B-spline (MI)": (plastimatch_bspline, "plastimatch"),
}
