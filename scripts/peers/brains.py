"""Real brains, each registered to the next and back, from scratch: our methods, one row each.

The images are those of the MICCAI 2012 multi-atlas challenge (138 structures drawn by hand), as NNNN_t1.nii.gz and
NNNN_seg.nii.gz in one folder. A row that stands in the output is not run again.

    scripts/peers/brains.py --data FOLDER --set test --ffdp target/release/ffdp --device cuda -o benchmarks/brains.json
"""
import argparse, json, pathlib, statistics, subprocess, tempfile, time

SETS = {
    "train": "1000 1001 1002 1006 1007 1008 1009 1010 1011 1012 1013 1014 1015 1017 1036".split(),
    "test": "1003 1004 1005 1018 1019 1023 1024 1025 1038 1039".split(),
}
# What the table has; the flags of `ffdp register`.
ROWS = {
    "affine": "--transform affine",
    "fast": "--preset fast",
    "default": "",
    "quality": "--preset quality",
    "syn": "--transform syn",
    "svf": "--transform svf",
    "ffd, NMI": "--transform ffd --metric nmi",
    "ffd, LNCC, 3 mm": "--transform ffd --metric lncc --spacing-mm 3",
    "gnk, MSE": "--transform gnk --metric mse --match-histograms",
    "gnk, LNCC": "--transform gnk --metric lncc",
    "multimodal": "--preset multimodal",
    "hard": "--preset hard",
}
# Labels of the cortex in this protocol start here.
CORTEX = 100


def pairs(names, both_ways):
    there = list(zip(names, names[1:] + names[:1]))
    return there + [(b, a) for a, b in there] if both_ways else there


def of_pair(folder):
    m = json.loads((folder / "metrics.json").read_text())
    dice = [(label["id"], label["after"]) for label in m["dice"]["labels"] if label["after"] is not None]
    mean = lambda values: statistics.fmean(values) if values else float("nan")
    return {
        "dice": m["dice"]["mean"]["after"], "before": m["dice"]["mean"]["before"],
        "cortex": mean([d for i, d in dice if i >= CORTEX]), "deep": mean([d for i, d in dice if i < CORTEX]),
        "hd95_mm": m["dice"]["surfaces"]["hd95_mm"]["after"], "folds": m["folds"]["voxels"],
        "folds_percent": m["folds"]["percent"], "sd_log_jacobian": m["folds"]["sd_log_jacobian"],
        "inverse_p95_voxels": (m.get("inverse") or {}).get("p95_voxels"),
        "register_s": m["seconds"]["register"], "verdict": m["verdict"],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--set", choices=SETS, default="test")
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", nargs="*", help="names of the table, or NAME=FLAGS")
    parser.add_argument("--one-way", action="store_true")
    parser.add_argument("--most-seconds", type=float, default=1e9, help="begin no row after so many")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    done = json.loads(args.output.read_text()) if args.output.exists() else {"set": args.set, "rows": []}
    wanted = {}
    for row in args.rows or ROWS:
        name, given, flags = row.partition("=")
        wanted[name] = flags if given else ROWS[name]
    begun = time.time()
    for name, flags in wanted.items():
        if any(row["name"] == name and row["device"] == args.device for row in done["rows"]):
            continue
        if time.time() - begun > args.most_seconds:
            print("no time for", name)
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            lines = ["fixed,moving,name,fixed_labels,moving_labels"]
            for a, b in pairs(SETS[args.set], not args.one_way):
                files = [args.data.resolve() / f"{x}_{kind}.nii.gz" for kind in ("t1", "seg") for x in (a, b)]
                lines.append(f"{files[0]},{files[1]},{b}_to_{a},{files[2]},{files[3]}")
            (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
            command = [args.ffdp, "register", "--pairs", folder / "pairs.csv", "-o", folder / "out", "--device", args.device,
                       "-q", *flags.split()]
            start = time.time()
            ran = subprocess.run(command, capture_output=True, text=True)
            seconds = time.time() - start
            found = [of_pair(f.parent) for f in sorted((folder / "out").glob("*/metrics.json"))]
        if not found:
            print(name, "failed:", ran.stderr.strip()[-300:])
            continue
        column = lambda key: [pair[key] for pair in found if pair[key] is not None]
        dice = column("dice")
        row = {"name": name, "flags": flags, "device": args.device, "pairs": len(found),
               "seconds_a_pair": round(seconds / len(found), 2), "dice": round(statistics.fmean(dice), 4),
               "dice_sd": round(statistics.pstdev(dice), 4), "dice_worst": round(min(dice), 4)}
        for key, digits in [("before", 4), ("cortex", 4), ("deep", 4), ("hd95_mm", 3), ("folds", 1), ("folds_percent", 5),
                            ("sd_log_jacobian", 4), ("inverse_p95_voxels", 3), ("register_s", 3)]:
            values = column(key)
            row[key] = round(statistics.fmean(values), digits) if values else None
        row["folds_worst"] = max(column("folds"))
        row["not_aligned"] = sum(verdict != "aligned" for verdict in column("verdict"))
        done["rows"].append(row)
        args.output.write_text(json.dumps(done, indent=1) + "\n")
        print(f"{name:28} {len(found)} pairs  dice {row['dice']:.4f} (sd {row['dice_sd']:.3f}, worst {row['dice_worst']:.3f}; "
              f"cortex {row['cortex']:.3f}, deep {row['deep']:.3f})  hd95 {row['hd95_mm']:.2f}  folds {row['folds']:.0f} "
              f"({row['folds_worst']} worst, {row['folds_percent']:.4f} %)  sd lnJ {row['sd_log_jacobian']:.3f}  "
              f"{row['seconds_a_pair']:.2f} s  doubtful {row['not_aligned']}", flush=True)


if __name__ == "__main__":
    main()
