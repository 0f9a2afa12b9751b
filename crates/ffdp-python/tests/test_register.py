"""Registrations: the results of the command line to the bit, whatever the images come as."""

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time

import nibabel
import numpy as np
import pytest

import ffdp


def voxels(path):
    """The voxels of a file as they are stored."""
    return np.asanyarray(nibabel.load(path).dataobj)


def compare(found, folder):
    """The files of a run of the command line, with a result."""
    assert np.array_equal(found.warped.array, voxels(folder / "warped.nii.gz"))
    metrics = json.loads((folder / "metrics.json").read_text())
    assert found.verdict == metrics["verdict"] and found.reasons == metrics["reasons"]
    shared = set(found.metrics) & set(metrics)
    assert shared >= {"similarity", "folds", "loss", "affine", "stages", "motion_mm", "overlap_percent"}
    for of_one in [found.metrics, metrics]:
        for stage in of_one["stages"]:
            for timed in [stage, *stage["levels"]]:
                del timed["seconds"]
    for name in shared:
        assert found.metrics[name] == metrics[name], name
    if (folder / "warp.nii.gz").exists():
        warp, affine = found.transform.steps
        for transform, name in [(warp, "warp.nii.gz"), (found.inverse.steps[1], "inverse_warp.nii.gz")]:
            again = folder / f"again_{name}"
            transform.write(again)
            assert np.array_equal(voxels(again), voxels(folder / name)), name
        affine.write(folder / "again.mat")
        assert (folder / "again.mat").read_bytes() == (folder / "affine.mat").read_bytes()
    if found.warped_labels is not None:
        assert np.array_equal(found.warped_labels.array, voxels(folder / "warped_labels.nii.gz"))


def both(command, pair, folder, flags, **arguments):
    """The same registration by the command line and here, which are compared."""
    images = ["-f", pair.files["fixed"], "-m", pair.files["moving"]]
    command("register", *images, "-o", folder, "--quiet", *flags)
    found = ffdp.register(pair.files["fixed"], pair.files["moving"], **arguments)
    compare(found, folder)
    return found


def test_a_registration_is_that_of_the_command_line(command, pair, tmp_path):
    files = pair.files
    flags = ["--preset", "fast", "--fixed-labels", files["fixed_labels"]]
    flags += ["--moving-labels", files["moving_labels"], "--labels", "1,2,4"]
    flags += ["--landmarks", files["fixed_points"], files["moving_points"]]
    found = both(
        command,
        pair,
        tmp_path,
        flags,
        preset="fast",
        fixed_labels=files["fixed_labels"],
        moving_labels=files["moving_labels"],
        labels=[1, 2, 4],
        landmarks=(files["fixed_points"], files["moving_points"]),
    )
    assert found.verdict == "aligned"
    assert found.metrics["dice"]["mean"]["after"] > 0.85 > found.metrics["dice"]["mean"]["before"]
    landmarks = found.metrics["landmarks_mm"]
    assert landmarks["after"]["mean"] < landmarks["before"]["mean"] / 2
    # Images in memory instead of files.
    names = ["fixed", "moving", "fixed_labels", "moving_labels"]
    fixed, moving, fixed_labels, moving_labels = [nibabel.load(files[name]) for name in names]
    again = ffdp.register(
        fixed,
        moving,
        preset="fast",
        fixed_labels=fixed_labels,
        moving_labels=moving_labels,
        labels=np.array([1, 2, 4]),
        landmarks=pair.landmarks,
    )
    compare(again, tmp_path)


def test_what_guides_a_registration_is_that_of_the_command_line(command, pair, tmp_path, found):
    files = pair.files
    start = tmp_path / "start.mat"
    found.transform.steps[1].write(start)
    flags = ["--transform", "syn", "--aligned", "--shrink", "4,2", "--iterations", "20,10"]
    flags += ["--metric", "mse", "--sigma-grad", "2", "--initial", start, "--background", "-5"]
    flags += ["--fixed-mask", files["fixed_mask"], "--moving-mask", files["moving_mask"]]
    flags += ["--channels", files["fixed_edges"], files["moving_edges"]]
    flags += ["--fixed-labels", files["fixed_labels"], "--moving-labels", files["moving_labels"]]
    flags += ["--label-terms", "1,3", "--label-weight", "0.5"]
    flags += ["--landmarks", files["fixed_points"], files["moving_points"], "--landmark-sigma", "2"]
    both(
        command,
        pair,
        tmp_path / "out",
        flags,
        transform="syn",
        aligned=True,
        shrink=[4, 2],
        iterations=(20, 10),
        metric="mse",
        sigma_grad=2,
        initial=start,
        background=-5,
        fixed_mask=files["fixed_mask"],
        moving_mask=nibabel.load(files["moving_mask"]),
        channels=[(files["fixed_edges"], nibabel.load(files["moving_edges"]))],
        fixed_labels=files["fixed_labels"],
        moving_labels=files["moving_labels"],
        label_terms=np.array([1, 3]),
        label_weight=0.5,
        landmarks=pair.landmarks,
        landmark_sigma=2.0,
    )


def test_a_rigid_registration_has_no_warp(command, pair, tmp_path):
    found = both(command, pair, tmp_path, ["--transform", "rigid"], transform="rigid")
    matrix = found.transform.matrix
    np.testing.assert_allclose(matrix[:3, :3] @ matrix[:3, :3].T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(found.inverse.matrix @ matrix, np.eye(4), atol=1e-9)


def test_settings_of_a_result_repeat_it(pair, found, tmp_path):
    again = ffdp.register(pair.files["fixed"], pair.files["moving"], settings=found.settings)
    assert again.settings == found.settings
    assert np.array_equal(again.warped.array, found.warped.array)
    other = ffdp.register(
        pair.files["fixed"], pair.files["moving"], settings=found.settings, transform="affine", no_inverse=True
    )
    assert [stage["transform"] for stage in other.settings["stages"]][-1] == "affine"
    assert other.inverse is None and other.transform.matrix is not None


def test_losses_and_progress_follow_the_run(pair):
    events = []
    found = ffdp.register(
        pair.files["fixed"], pair.files["moving"], preset="fast", progress=events.append
    )
    levels = [(stage, shrink) for stage, shrink, _ in found.losses]
    begun = [(event["stage"], event["shrink"]) for event in events if event["iteration"] == 0]
    assert set(begun) <= set(levels) and ("greedy", 2.0) in begun
    assert all(1 <= event["level"] <= event["levels"] for event in events)
    deformed = [losses for stage, _, losses in found.losses if stage == "greedy"]
    assert all(losses[-1] < losses[0] for losses in deformed)
    ended = ffdp.register(
        pair.files["fixed"],
        pair.files["moving"],
        preset="fast",
        progress=lambda event: event["stage"] != "greedy" or event["iteration"] == 0,
    )
    assert ended.verdict == "doubtful" and "ended early" in ended.reasons[0]
    assert sum(len(losses) for stage, _, losses in ended.losses if stage == "greedy") < 40


def test_an_exception_of_progress_ends_the_run(pair):
    def fail(event):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ffdp.register(pair.files["fixed"], pair.files["moving"], progress=fail)


def test_other_threads_run_meanwhile(pair):
    counts, ended = [0], threading.Event()

    def count():
        while not ended.is_set():
            counts[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    start = time.monotonic()
    ffdp.register(pair.files["fixed"], pair.files["moving"], preset="fast")
    seconds = time.monotonic() - start
    ended.set()
    thread.join()
    # A thread that had to wait for the interpreter would count a few times; this machine may be busy.
    assert counts[0] > 20 * seconds, (counts, seconds)


def test_ctrl_c_ends_a_registration(pair):
    script = textwrap.dedent(
        f"""
        import ffdp
        fixed, moving = {str(pair.files["fixed"])!r}, {str(pair.files["moving"])!r}
        begun = []

        def progress(event):
            if not begun:
                begun.append(event)
                print("begun", flush=True)

        try:
            # Nothing that is left of this takes less than a second.
            flags = dict(shrink=[1] * 20, iterations=[1000] * 20)
            ffdp.register(fixed, moving, aligned=True, progress=progress, **flags)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert rest == "interrupted\n" and process.returncode == 0


def test_voxels_that_are_not_finite_are_refused_or_left_out(pair):
    array = pair.arrays["moving"].copy()
    array[5, 6, 7] = np.nan
    moving = ffdp.Image(array, pair.affines["moving"])
    with pytest.raises(ffdp.InputError, match=r"moving holds 1 NaN .*\[5, 6, 7\]"):
        ffdp.register(pair.files["fixed"], moving)
    for policy in ["zero", "mask"]:
        with pytest.warns(UserWarning, match="1 NaN or infinite voxels were set to 0"):
            found = ffdp.register(
                pair.files["fixed"], moving, transform="rigid", nan_policy=policy
            )
        assert found.verdict == "aligned"
