"""Axes, affines and types: those of nibabel, and of SimpleITK in its own order and world."""

import nibabel
import numpy as np
import pytest

import ffdp


def test_an_array_is_what_it_was_and_lies_where_its_affine_says(pair):
    array, affine = pair.arrays["fixed"], pair.affines["fixed"]
    image = ffdp.Image(array, affine)
    assert image.array.dtype == np.float32 and np.array_equal(image.array, array)
    assert np.array_equal(np.asarray(image), array)
    np.testing.assert_allclose(image.affine, affine, rtol=1e-12)
    assert image.shape == array.shape
    np.testing.assert_allclose(image.spacing, (4, 4.25, 4.5), rtol=1e-6)  # the file has float32
    assert "40 x 44 x 36 float32" in repr(image)


def test_a_file_is_read_as_nibabel_reads_it(pair):
    for name in ["fixed", "moving", "fixed_labels"]:
        image, other = ffdp.Image.read(pair.files[name]), nibabel.load(pair.files[name])
        assert np.array_equal(image.array, other.get_fdata(dtype=np.float32))
        np.testing.assert_allclose(image.affine, other.affine, rtol=1e-12, atol=1e-12)


def test_files_that_are_written_are_read_by_both(sitk, pair, tmp_path):
    for name, ending in [("moving", "nii.gz"), ("moving", "nrrd"), ("moving_labels", "nii")]:
        array, affine = pair.arrays[name], pair.affines["moving"]
        path = tmp_path / f"{name}.{ending}"
        ffdp.Image(array, affine).write(path)
        seen = sitk.ReadImage(str(path))
        assert np.array_equal(sitk.GetArrayFromImage(seen).T, array)
        # A header of NIfTI holds float32: positions of some 100 mm to 1e-5.
        corner = np.array(seen.TransformIndexToPhysicalPoint([41, 39, 37])) * [-1, -1, 1]
        np.testing.assert_allclose(corner, affine[:3] @ [41, 39, 37, 1], atol=1e-4)
        assert np.array_equal(ffdp.Image.read(path).array, array)


def test_images_of_nibabel_and_simpleitk_are_the_same_image(sitk, pair):
    file = pair.files["moving"]
    direct = ffdp.apply(None, file, file)
    for image in [nibabel.load(file), sitk.ReadImage(str(file))]:
        # Resampled onto the grid of the file: nothing moves, but for the rounding of a header's directions.
        again = ffdp.apply(None, image, file)
        np.testing.assert_allclose(again.array, direct.array, atol=0.01)  # of 100
        onto = ffdp.apply(None, file, image)
        np.testing.assert_allclose(onto.array, direct.array, atol=0.01)
        np.testing.assert_allclose(onto.affine, direct.affine, atol=1e-4)


def test_images_are_handed_to_nibabel_and_simpleitk(sitk, pair):
    image = ffdp.Image(pair.arrays["fixed"], pair.affines["fixed"])
    other = image.to_nibabel()
    assert np.array_equal(other.get_fdata(), image.array)
    np.testing.assert_allclose(other.affine, image.affine, rtol=1e-12)
    other = image.to_sitk()
    assert other.GetSize() == image.shape
    index = [3, 17, 30]
    assert other.GetPixel(index) == image.array[3, 17, 30]
    ras = np.array(other.TransformIndexToPhysicalPoint(index)) * [-1, -1, 1]
    np.testing.assert_allclose(ras, image.affine[:3] @ [*index, 1], atol=1e-9)


def test_any_order_in_memory_and_any_type_of_numbers_is_the_same_image():
    array = np.arange(24.0).reshape(2, 3, 4)
    seen = []
    for given in [array, np.asfortranarray(array), array.astype(">i2"), array[::-1][::-1]]:
        image = ffdp.Image(given, np.diag([2, 2, 2, 1]))
        assert image.array.dtype == given.dtype
        seen.append(ffdp.apply(None, image, image).array)
        assert np.array_equal(seen[-1], array) and seen[-1].dtype == np.float32
    flat = ffdp.Image(array[0], np.eye(4))
    assert flat.shape == (3, 4, 1)


def test_what_is_no_image_is_refused(pair, tmp_path):
    with pytest.raises(TypeError, match="an array comes with its affine"):
        ffdp.register(pair.arrays["fixed"], pair.files["moving"])
    with pytest.raises(TypeError, match="real numbers, got complex128"):
        ffdp.Image(np.zeros((4, 4, 4), complex), np.eye(4))
    with pytest.raises(ffdp.InputError, match=r"two or three axes .*\[4, 4, 4, 2\]"):
        ffdp.Image(np.zeros((4, 4, 4, 2)), np.eye(4))
    with pytest.raises(ValueError, match="4x4"):
        ffdp.Image(np.zeros((4, 4, 4)), np.eye(3))
    with pytest.raises(ValueError, match="last row"):
        ffdp.Image(np.zeros((4, 4, 4)), np.eye(4) + 1e-3)
    with pytest.raises(ValueError, match="singular"):
        ffdp.Image(np.zeros((4, 4, 4)), np.diag([1, 1, 1e-9, 1]))
    with pytest.raises(OSError, match="missing.nii.gz"):
        ffdp.Image.read(tmp_path / "missing.nii.gz")


def test_an_image_of_vectors_is_refused(sitk, pair):
    with pytest.raises(ffdp.InputError, match="one number for each voxel, got 3"):
        ffdp.apply(None, sitk.Image([4, 4, 4], sitk.sitkVectorFloat32, 3), pair.files["fixed"])
