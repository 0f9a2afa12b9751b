"""Networks trained on the fifteen training brains of `brains.py` alone, on the pairs of its ten test brains.

All brains are first brought into one space: the mean of the training brains after affine registration, on a grid around
it. There the networks are trained, and there they, the engine and the headers are compared, so that all differ in the
deformation alone. A row that stands in the output is not run again.

    python scripts/peers/brains_networks.py prepare --data FOLDER --ffdp target/release/ffdp --device cuda -o SPACE
    ffdp train --data SPACE/images.csv --out SPACE/small --variant small ..
    python scripts/peers/brains_networks.py evaluate --ffdp target/release/ffdp --device cuda -o SPACE --json FILE
"""
import argparse, csv, json, pathlib, statistics, subprocess, time

import nibabel, numpy

from brains import SETS, of_pair, pairs

# The last two of the training brains choose the epoch.
VALIDATION = SETS["train"][-2:]
# Voxels of background around the brain.
MARGIN = 6
# Thirty structures of both sides together, by the numbers of the protocol (Neuromorphometrics).
GROUPS = [
    [4], [11], [23, 30], [31, 32], [35], [36, 37], [38, 39], [40, 41], [44, 45], [47, 48], [49, 50], [51, 52], [55, 56],
    [57, 58], [59, 60], [61, 62], [71, 72, 73], [75, 76],
    # Cortex: cingulate, insula, orbital, frontal, central, temporal (lateral, medial, pole and plane), parietal (lateral,
    # medial), occipital (lateral, medial), opercula.
    [100, 101, 138, 139, 166, 167, 186, 187], [102, 103, 172, 173],
    [104, 105, 124, 125, 136, 137, 140, 141, 146, 147, 178, 179],
    [120, 121, 142, 143, 152, 153, 190, 191, 192, 193], [148, 149, 150, 151, 176, 177, 182, 183],
    [132, 133, 154, 155, 200, 201], [116, 117, 122, 123, 170, 171], [180, 181, 184, 185, 202, 203, 206, 207],
    [106, 107, 194, 195, 198, 199], [168, 169],
    [128, 129, 144, 145, 156, 157, 160, 161, 196, 197], [108, 109, 114, 115, 134, 135],
]
ROWS = {
    "headers and affine": None,
    "greedy": "--aligned",
    "svf, quality": "--aligned --preset quality",
    "TransMorph-Small": "small",
    "TransMorph-Small, --refine 50": "small --refine 50",
    "TransMorph-Large": "large",
    "TransMorph-Large, --refine 50": "large --refine 50",
    "VoxelMorph": "voxelmorph",
    "VoxelMorph, --refine 50": "voxelmorph --refine 50",
}


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def prepare(args):
    """The space, the brains in it, and the list for the training."""
    out = args.output
    out.mkdir(parents=True, exist_ok=True)
    find = lambda name, kind: next(args.data.resolve().glob(f"{name}_{kind}.nii*"))
    lines = ["name,image", *(f"b{name},{find(name, 't1')}" for name in SETS["train"])]
    (out / "train.csv").write_text("\n".join(lines) + "\n")
    run(args.ffdp, "template", "-i", out / "train.csv", "-o", out / "mean", "--rounds", 0, "--device", args.device, "-q")
    mean = nibabel.load(out / "mean" / "template.nii.gz")
    data = mean.get_fdata()
    inside = numpy.argwhere(data > 0.1 * data.max())
    size = inside.max(0) - inside.min(0) + 1 + 2 * MARGIN
    size = (size + 15) // 16 * 16
    first = (inside.max(0) + inside.min(0) + 1 - size) // 2
    affine = mean.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ first
    space = numpy.zeros(size, numpy.float32)
    there = [slice(max(a, 0), min(a + n, m)) for a, n, m in zip(first, size, data.shape)]
    here = [slice(s.start - a, s.stop - a) for s, a in zip(there, first)]
    space[tuple(here)] = data[tuple(there)]
    nibabel.save(nibabel.Nifti1Image(space, affine), out / "space.nii.gz")
    lines = ["name,fixed,moving,moving_labels"]
    every = SETS["train"] + SETS["test"]
    lines += [f"{name},space.nii.gz,{find(name, 't1')},{find(name, 'seg')}" for name in every]
    (out / "affine.csv").write_text("\n".join(lines) + "\n")
    run(args.ffdp, "register", "--pairs", out / "affine.csv", "-o", out / "brains", "--transform", "affine", "--device",
        args.device, "-q")
    groups = numpy.zeros(256, numpy.uint8)
    for k, group in enumerate(GROUPS, 1):
        groups[group] = k
    lines = ["image,labels,part"]
    for name in SETS["train"]:
        folder = out / "brains" / name
        labels = nibabel.load(folder / "warped_labels.nii.gz")
        grouped = groups[numpy.asanyarray(labels.dataobj).astype(numpy.uint8)]
        nibabel.save(nibabel.Nifti1Image(grouped, labels.affine), folder / "groups.nii.gz")
        part = "validation" if name in VALIDATION else "train"
        lines.append(f"brains/{name}/warped.nii.gz,brains/{name}/groups.nii.gz,{part}")
    (out / "images.csv").write_text("\n".join(lines) + "\n")
    print("space", *size)


def of_prediction(folder, phase):
    m = json.loads((folder / "metrics.json").read_text())
    phases = {p["name"]: p["dice"] for p in m["phases"]}
    refined = list(phases)[-1] if phase else list(phases)[0]
    return {"dice": phases[refined], "folds": m["folds"]["voxels"], "folds_percent": m["folds"]["percent"],
            "sd_log_jacobian": m["folds"]["sd_log_jacobian"]}


def evaluate(args):
    done = json.loads(args.json.read_text()) if args.json.exists() else []
    out = args.output
    lines = ["fixed,moving,name,fixed_labels,moving_labels"]
    for a, b in pairs(SETS["test"], True):
        files = [f"brains/{x}/{kind}.nii.gz" for kind in ("warped", "warped_labels") for x in (a, b)]
        lines.append(f"{files[0]},{files[1]},{b}_to_{a},{files[2]},{files[3]}")
    (out / "pairs.csv").write_text("\n".join(lines) + "\n")
    for name, flags in ROWS.items():
        if any(row["row"] == name for row in done):
            continue
        network = flags is not None and not flags.startswith("--")
        folder = out / "evaluated" / name.replace(" ", "_").replace(",", "")
        if flags is None:
            command, of = [args.ffdp, "register", *ROWS["greedy"].split()], of_pair
        elif network:
            model, *words = flags.split()
            if not (out / model).exists():
                continue
            command, of = [args.ffdp, "predict", "--model", out / model, *words], lambda f: of_prediction(f, True)
        else:
            command, of = [args.ffdp, "register", *flags.split()], of_pair
        begun = time.time()
        run(*command, "--pairs", out / "pairs.csv", "-o", folder, "--device", args.device, "-q")
        seconds = time.time() - begun
        found = [of(f.parent) for f in sorted(folder.glob("*/metrics.json"))]
        if flags is None:
            found = [{"dice": pair["before"]} for pair in found]
        mean = lambda key: statistics.fmean(pair[key] for pair in found) if key in found[0] else None
        row = {"row": name, "pairs": len(found), "dice": mean("dice"), "worst": min(pair["dice"] for pair in found),
               "sd": statistics.pstdev(pair["dice"] for pair in found), "folds": mean("folds"),
               "folds_percent": mean("folds_percent"), "sd_log_jacobian": mean("sd_log_jacobian"),
               "seconds_a_pair": seconds / len(found)}
        done.append(row)
        args.json.write_text(json.dumps(done, indent=1) + "\n")
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["prepare", "evaluate"])
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    args.output = args.output.resolve()
    {"prepare": prepare, "evaluate": evaluate}[args.do](args)


if __name__ == "__main__":
    main()
