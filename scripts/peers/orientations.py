"""Real heads in random orientations, found by `ffdp register --transform rigid --search`.

Each head is registered to itself under a header that turns it by a random rotation and moves it by up to 50 mm; of the
last, the moving image is the half of the head in front of its middle. An error is the mean distance over the head between
the map that was found and the truth.

    scripts/peers/orientations.py --data ../shared/data --ffdp target/release/ffdp --count 100 -o benchmarks/orientations.json
"""
import argparse, json, pathlib, subprocess, tempfile, time

import nibabel as nib
import numpy as np

HEADS = ["cfireants/T1_head_2mm.nii.gz", "fireants/atlas_2mm_1000_3.nii.gz", "cfireants/MNI152_T1_2mm.nii.gz"]


def rotation(rng):
    """Uniform over all rotations (Shoemake)."""
    x, y, z, w = (q := rng.standard_normal(4)) / np.linalg.norm(q)
    return np.array([[1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                     [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                     [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]])


def read_affine(path):
    """A matrix in RAS mm from ITK's text, in LPS mm."""
    lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    p, c = (np.array(lines[k].split(), float) for k in ("Parameters", "FixedParameters"))
    m, lps = np.eye(4), np.diag([-1.0, -1, 1, 1])
    m[:3, :3] = p[:9].reshape(3, 3)
    m[:3, 3] = p[9:] + c - m[:3, :3] @ c
    return lps @ m @ lps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", default="1/1", help="K/N: every N-th orientation, from the K-th on")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    rng, rows = np.random.default_rng(2026), []
    part, parts = map(int, args.part.split("/"))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for i in range(args.count):
            name = HEADS[i % 3]
            image = nib.load(args.data / name)
            values, affine = np.asanyarray(image.dataobj), image.affine
            half = i % 3 == 2
            turn = np.eye(4)
            turn[:3, :3], turn[:3, 3] = rotation(rng), rng.uniform(-50, 50, 3)
            if i % parts != part - 1:
                continue
            seen = values
            if half:
                y = np.abs(affine[1, :3]).argmax()
                front = [slice(None)] * 3
                middle = values.shape[y] // 2
                front[y] = slice(middle, None) if affine[1, y] > 0 else slice(None, middle)
                seen, shift = values[tuple(front)], np.eye(4)
                shift[:3, 3] = [s.start or 0 for s in front]
                placed = turn @ affine @ shift
            else:
                placed = turn @ affine
            fixed, moving, out = folder / "f.nii", folder / "m.nii", folder / f"o{i}"
            nib.save(nib.Nifti1Image(values.astype(np.float32), affine), fixed)
            nib.save(nib.Nifti1Image(seen.astype(np.float32), placed), moving)
            start = time.time()
            command = [args.ffdp, "register", "-f", fixed, "-m", moving, "--transform", "rigid", "--search", "-o", out, "-q",
                       "--overwrite", "--device", args.device]
            done = subprocess.run(command, capture_output=True, text=True)
            seconds = time.time() - start
            if done.returncode:
                rows.append({"head": name, "half": half, "error": done.stderr.strip()[-200:]})
                print(rows[-1], flush=True)
                continue
            inside = np.argwhere(values > 0.2 * np.percentile(values, 99))[::97]
            points = np.c_[inside, np.ones(len(inside))] @ affine.T
            off = np.linalg.norm((points @ (read_affine(out / "affine.txt") - turn).T)[:, :3], axis=1).mean()
            metrics = json.loads((out / "metrics.json").read_text())
            stage = metrics["stages"][0]
            angle = np.degrees(np.arccos(np.clip((np.trace(turn[:3, :3]) - 1) / 2, -1, 1)))
            rows.append({"head": name, "half": half, "degrees": round(float(angle), 1), "error_mm": round(float(off), 3),
                         "margin": round(stage.get("margin") or 0, 3), "search_s": round(stage["seconds"], 2),
                         "total_s": round(seconds, 2), "verdict": metrics["verdict"]})
            print(rows[-1], flush=True)
    errors = np.array([row.get("error_mm", np.inf) for row in rows])
    summary = {"count": len(rows), "found_to_2_mm": int((errors < 2).sum()),
               "median_error_mm": round(float(np.median(errors)), 3),
               "search_s": round(float(np.median([r["search_s"] for r in rows if "search_s" in r])), 2),
               "total_s": round(float(np.median([r["total_s"] for r in rows if "total_s" in r])), 2)}
    print(summary)
    if args.output:
        text = ",\n".join("    " + json.dumps(row) for row in rows)
        head = json.dumps({"device": args.device, "summary": summary})[1:-1]
        args.output.write_text("{" + head + ', "rows": [\n' + text + "\n]}\n")


if __name__ == "__main__":
    main()
