"""Writes the seeds of the fuzzer: small sound files of every kind. Needs nibabel and numpy."""
import gzip
import pathlib

import nibabel as nib
import numpy as np

folder = pathlib.Path(__file__).parent / "corpus" / "nifti"
folder.mkdir(parents=True, exist_ok=True)
values = np.arange(12).reshape(3, 2, 2)
affine = np.array([[0, 2, 0, 5], [-1.5, 0, 0, 7], [0, 0, 3, -9], [0, 0, 0, 1.0]])


def save(name, image):
    nib.save(image, folder / name)


for kind in ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]:
    save(f"one_{kind}.nii", nib.Nifti1Image(values.astype(kind), affine, dtype=np.dtype(kind)))
save("two_f4.nii", nib.Nifti2Image(values.astype("f4"), affine))
big = nib.Nifti1Header(endianness=">")
big.set_data_dtype(">i2")
save("big.nii", nib.Nifti1Image(values.astype(">i2"), affine, big))
scaled = nib.Nifti1Image(values.astype("u1"), affine)
scaled.header.set_slope_inter(0.5, -3)
save("scaled.nii", scaled)
save("series.nii", nib.Nifti1Image(np.arange(24, dtype="u1").reshape(3, 2, 2, 2), affine))
qform = nib.Nifti1Image(values.astype("u1"), affine)
qform.set_sform(None, 0)
save("qform.nii", qform)
vectors = nib.Nifti1Image(np.ones((3, 2, 2, 1, 3), dtype="f4"), affine)
vectors.header.set_intent("vector")
save("vectors.nii", vectors)
labels = nib.Nifti1Image(values.astype("u1"), affine)
labels.header.set_intent("label")
save("labels.nii", labels)
extended = nib.Nifti1Image(values.astype("u1"), affine)
extended.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"a comment"))
save("extension.nii", extended)

plain = (folder / "one_f4.nii").read_bytes()
(folder / "packed.nii.gz").write_bytes(gzip.compress(plain, mtime=0))
members = [gzip.compress(part, mtime=0) for part in (plain[:100], plain[100:360], plain[360:])]
(folder / "members.nii.gz").write_bytes(b"".join(members))
