"""Training and prediction: those of the command line, by the same settings."""

import json
import signal
import subprocess
import sys
import textwrap

import nibabel
import numpy as np
import pytest

import ffdp

SHORT = {"size": 32, "pairs": 1, "epochs": 1, "plain": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A network that has seen one pair."""
    folder = tmp_path_factory.mktemp("model") / "run"
    return ffdp.train(output=folder, **SHORT), folder


def test_a_training_leaves_a_folder_and_figures(model):
    trained, folder = model
    assert trained["folder"] == str(folder) and trained["epoch"] == 1 and trained["steps"] == 2
    assert all(len(pair["dice"]) == 2 for pair in trained["evaluation"]["pairs"])
    assert (folder / "report.html").exists() and (folder / "settings.toml").exists()
    with pytest.raises(ffdp.InputError, match="--output must name a folder without a run in it"):
        ffdp.train(output=folder, **SHORT)
    with pytest.raises(TypeError, match="--epoch"):
        ffdp.train(output=folder, epoch=3)


def test_a_prediction_is_that_of_the_command_line(command, model, pair, tmp_path):
    (_, folder), files = model, pair.files
    out = tmp_path / "out"
    command(
        *["predict", "--model", folder, "-f", files["fixed"], "-m", files["moving"], "-o", out],
        *["--fixed-labels", files["fixed_labels"], "--moving-labels", files["moving_labels"]],
        *["--refine", "5", "--quiet"],
    )
    found = ffdp.predict(
        folder,
        nibabel.load(files["fixed"]),
        files["moving"],
        fixed_labels=files["fixed_labels"],
        moving_labels=files["moving_labels"],
        refine=5,
    )
    for image, name in [(found.warped, "warped"), (found.warped_labels, "warped_labels")]:
        assert np.array_equal(image.array, np.asanyarray(nibabel.load(out / f"{name}.nii.gz").dataobj))
    found.transform.write(tmp_path / "warp.nii.gz")
    warps = [np.asanyarray(nibabel.load(of / "warp.nii.gz").dataobj) for of in [tmp_path, out]]
    assert np.array_equal(*warps)
    metrics = json.loads((out / "metrics.json").read_text())
    for measure in ["epoch", "phases", "dice", "folds", "verdict", "reasons"]:
        assert found.metrics[measure] == metrics[measure], measure
    assert [phase["name"] for phase in found.metrics["phases"]] == ["before", "predicted", "refined"]
    assert found.losses == [] and found.settings is None and found.inverse is None


def test_ctrl_c_ends_a_training_and_keeps_what_is_done(tmp_path):
    script = textwrap.dedent(
        f"""
        import ffdp
        try:
            ffdp.train(output={str(tmp_path / "run")!r}, size=32, pairs=2, epochs=1000, plain=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    # A line for each epoch comes on stderr.
    while "epoch" not in (line := process.stderr.readline()).lower():
        assert line, "it ended before its first epoch"
    process.send_signal(signal.SIGINT)
    printed, rest = process.communicate(timeout=120)
    assert printed == "interrupted\n" and process.returncode == 0, rest
    assert "--resume" in rest
    assert (tmp_path / "run" / "settings.toml").exists()
