"""Transforms: as ITK has them, and images through them as the command line and SimpleITK show them."""

import nibabel
import numpy as np
import pytest

import ffdp

LPS = np.array([-1, -1, 1])


def resampled(sitk, transform, moving, fixed):
    """By SimpleITK, (x, y, z)."""
    images = [sitk.ReadImage(str(path), sitk.sitkFloat64) for path in [moving, fixed]]
    transform = sitk.ReadTransform(str(transform))
    seen = sitk.Resample(images[0], images[1], transform, sitk.sitkLinear, 0.0)
    return sitk.GetArrayFromImage(seen).T


def test_itk_shows_what_a_registration_shows(sitk, pair, found, tmp_path):
    path = tmp_path / "found.h5"
    found.transform.write(path)
    theirs = resampled(sitk, path, pair.files["moving"], pair.files["fixed"])
    # Float32 here, float64 there, of intensities up to 200; at the border of the moving image ITK ends half a voxel
    # further out.
    ours, inside = found.warped.array, slice(4, -4)
    np.testing.assert_allclose(ours[inside, inside, inside], theirs[inside, inside, inside], atol=0.02)


def test_points_go_where_itk_sends_them(sitk, found, tmp_path):
    points = np.random.default_rng(3).uniform(-50, 50, (40, 3))
    for transform in [found.transform, found.transform.steps[1]]:
        path = tmp_path / "transform.h5"
        transform.write(path)
        itk = sitk.ReadTransform(str(path))
        theirs = [np.array(itk.TransformPoint(list(point * LPS))) * LPS for point in points]
        # Displacements in files are float32.
        np.testing.assert_allclose(transform(points), theirs, atol=1e-4)
        np.testing.assert_allclose(ffdp.Transform.read(path)(points), transform(points), atol=1e-4)


def test_matrices_are_those_of_files(found, tmp_path):
    affine = found.transform.steps[1]
    for name in ["affine.txt", "affine.mat", "affine.tfm", "affine.h5"]:
        affine.write(tmp_path / name)
        read = ffdp.Transform.read(tmp_path / name)
        np.testing.assert_allclose(read.matrix, affine.matrix, rtol=1e-12, atol=1e-12)
        assert np.array_equal(ffdp.Transform(affine.matrix).matrix, affine.matrix)
    assert found.transform.matrix is None
    assert np.array_equal(ffdp.Transform().matrix, np.eye(4))


def test_displacements_are_those_of_points(pair, found):
    fixed = nibabel.load(pair.files["fixed"])
    vectors = found.transform.displacement(fixed)
    assert vectors.shape == (*fixed.shape, 3) and vectors.dtype == np.float32
    index = np.array([[3, 5, 7], [20, 22, 18], [36, 40, 30]])
    points = index @ fixed.affine[:3, :3].T + fixed.affine[:3, 3]
    moved = points + vectors[tuple(index.T)]
    np.testing.assert_allclose(moved, found.transform(points), atol=1e-4)  # float32 of some 100 mm
    back = ffdp.Transform.from_displacement(vectors, fixed.affine)
    np.testing.assert_allclose(back(points), found.transform(points), atol=1e-4)
    np.testing.assert_allclose(found.transform.on_grid(fixed)(points), back(points), atol=1e-4)


def test_inverses_lead_back_and_chains_are_applied_in_order(found):
    points = np.random.default_rng(4).uniform(-40, 40, (30, 3))
    there = found.transform(points)
    np.testing.assert_allclose(found.transform.inverse()(there), points, atol=1e-3)
    # That of the grid, between whose voxels of 4 mm it is interpolated.
    np.testing.assert_allclose(found.inverse(there), points, atol=0.5)
    shift = np.eye(4)
    shift[:3, 3] = [1, 2, 3]
    scale = np.diag([2.0, 2.0, 2.0, 1.0])
    chain = ffdp.Transform(shift).then(ffdp.Transform(scale))
    np.testing.assert_allclose(chain([[1, 1, 1]]), [[4, 6, 8]])
    np.testing.assert_allclose(chain.matrix, scale @ shift)
    assert len(chain.steps) == 2 and "affine, then affine" in repr(chain)


@pytest.mark.parametrize("background", [0, -7.5])
@pytest.mark.parametrize("interpolation", ["linear", "cubic", "sinc", "nearest"])
def test_images_are_warped_as_by_the_command_line(
    command, pair, found, tmp_path, interpolation, background
):
    files, path, output = pair.files, tmp_path / "found.h5", tmp_path / "warped.nii.gz"
    found.transform.write(path)
    command(
        *["apply", "-i", files["moving"], "-r", files["fixed"], "-t", path, "-o", output],
        *["--interpolation", interpolation, "--background", background],
    )
    theirs = np.asanyarray(nibabel.load(output).dataobj)
    for moving in [files["moving"], nibabel.load(files["moving"])]:
        ours = ffdp.apply(
            path, moving, files["fixed"], interpolation=interpolation, background=background
        )
        assert np.array_equal(ours.array, theirs)


@pytest.mark.parametrize("background", [0, 9])
@pytest.mark.parametrize("interpolation", ["nearest", "label"])
def test_labels_are_warped_as_by_the_command_line(
    command, pair, found, tmp_path, interpolation, background
):
    files, path, output = pair.files, tmp_path / "found.h5", tmp_path / "warped.nii.gz"
    found.transform.write(path)
    command(
        *["apply", "-i", files["moving_labels"], "-r", files["fixed"], "-t", path, "-o", output],
        *["--interpolation", interpolation, "--background", background],
    )
    ours = ffdp.apply(
        path,
        nibabel.load(files["moving_labels"]),
        files["fixed"],
        interpolation=interpolation,
        background=background,
    )
    assert ours.array.dtype == np.int32
    assert np.array_equal(ours.array, np.asanyarray(nibabel.load(output).dataobj))


def test_a_transform_may_come_as_anything_that_is_one(pair, found, tmp_path):
    warp, affine = found.transform.steps
    files = [tmp_path / "warp.nii.gz", tmp_path / "affine.txt"]
    warp.write(files[0])
    affine.write(files[1])
    fixed, moving = pair.files["fixed"], pair.files["moving"]
    for transform in [found.transform, files, [warp, affine.matrix], ffdp.Transform.read(*files)]:
        seen = ffdp.apply(transform, moving, fixed)
        # A field in a file is rounded to float32 in LPS mm.
        np.testing.assert_allclose(seen.array, found.warped.array, atol=1e-3)
    # The grid of the field, where no reference is named.
    assert ffdp.apply(found.transform, moving).shape == found.warped.shape
    back = ffdp.apply(found.transform, found.warped, moving, inverse=True)
    correlation = np.corrcoef(back.array.ravel(), pair.arrays["moving"].ravel())[0, 1]
    assert correlation > 0.95


def test_what_is_no_transform_is_refused(pair, tmp_path):
    fixed, moving = pair.files["fixed"], pair.files["moving"]
    with pytest.raises(TypeError, match="a transform is"):
        ffdp.apply(3.0, moving, fixed)
    with pytest.raises(ffdp.InputError, match="the grid of the result is not known"):
        ffdp.apply(np.eye(4), moving)
    with pytest.raises(ffdp.InputError, match="one affine transform, displacement or B-spline"):
        warp = ffdp.Transform.from_displacement(np.zeros((4, 4, 4, 3)), np.eye(4))
        warp.then(ffdp.Transform(np.diag([2, 1, 1, 1]))).write(tmp_path / "both.nii.gz")
    with pytest.raises(ffdp.InputError, match="singular"):
        ffdp.Transform(np.diag([1, 1, 0, 1])).inverse()
    far = np.eye(4)
    far[0, 3] = 1e5
    with pytest.raises(ffdp.InputError, match="overlap by 0.00 %"):
        ffdp.apply(far, moving, fixed)
