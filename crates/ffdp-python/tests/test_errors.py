"""What goes wrong is said in the words of the command line."""

import numpy as np
import pytest

import ffdp


def said(text):
    """What the command line prints on stderr, as the text of an exception."""
    lines = [line.removeprefix("error: ") for line in text.splitlines() if line]
    return "\n".join(line for line in lines if not line.startswith(("Usage", "For more")))


def test_failures_have_the_words_of_the_command_line(command, pair, tmp_path):
    fixed, moving = pair.files["fixed"], pair.files["moving"]
    bad = tmp_path / "bad.toml"
    bad.write_text("[[stages]]\ntransform = 'greedy'\nlearning_rat = 1\n")
    # Driven by landmarks that are not given, and by none of the stages.
    guided, moments = tmp_path / "guided.toml", tmp_path / "moments.toml"
    guided.write_text("landmark_sigma_mm = 1.0\n")
    moments.write_text("[[stages]]\ntransform = 'moments'\n")
    maps = [pair.files["fixed_labels"], pair.files["moving_labels"]]
    damaged = tmp_path / "damaged.nii.gz"
    damaged.write_bytes(fixed.read_bytes()[:2000])
    for flags, arguments in [
        (["--window", "4"], {"window": 4}),
        (["--beta", "1"], {"beta": 1.0}),
        (["--aligned", "--transform", "rigid"], {"aligned": True, "transform": "rigid"}),
        (["--label-weight", "2"], {"label_weight": 2}),
        (["--settings", bad], {"settings": bad}),
        (["--iterations", "1,2,3,4,5"], {"iterations": [1, 2, 3, 4, 5]}),
        (["--spacing-mm", "1,2", "--transform", "ffd"], {"spacing_mm": [1, 2], "transform": "ffd"}),
        (["--landmark-sigma", "1"], {"landmark_sigma": 1}),
        (["--settings", guided], {"settings": guided}),
        (["--settings", moments, "--landmark-sigma", "1"], {"settings": moments, "landmark_sigma": 1}),
        (["--label-terms", "1"], {"label_terms": [1]}),
        (
            ["--fixed-labels", maps[0], "--moving-labels", maps[1], "--labels", "1,99"],
            {"fixed_labels": maps[0], "moving_labels": maps[1], "labels": [1, 99]},
        ),
    ]:
        theirs = command("register", "-f", fixed, "-m", moving, "-o", tmp_path / "o", *flags, fails=True)
        with pytest.raises(ffdp.InputError) as ours:
            ffdp.register(fixed, moving, **arguments)
        assert str(ours.value) == said(theirs), arguments
        assert ours.value.help and str(ours.value).endswith(ours.value.help)
    theirs = command("register", "-f", damaged, "-m", moving, "-o", tmp_path / "o", fails=True)
    with pytest.raises(ffdp.Error) as ours:
        ffdp.register(damaged, moving)
    assert str(ours.value) == said(theirs)


def test_values_that_are_none_of_a_choice_are_answered_with_the_choice(pair):
    for arguments, words in [
        ({"settings": {"stage": []}}, "^settings: line 1: unknown field `stage`"),
        ({"settings": {"stages": float("nan")}}, "a dictionary of numbers, text and lists"),
        ({"metric": "demons"}, "the nearest that ffdp has is 'mse'"),
        ({"transform": "elastic"}, "possible values: rigid"),
        ({"preset": "best"}, "multimodal"),
        ({"device": "cuda:x"}, "the number of a CUDA device"),
        ({"iterations": "many"}, '"many" is no number'),
        ({"lr": "fast"}, "invalid float literal"),
    ]:
        with pytest.raises(ValueError, match=words):
            ffdp.register(pair.files["fixed"], pair.files["moving"], **arguments)


def test_unknown_arguments_are_type_errors_with_the_one_that_is_meant(pair):
    fixed, moving = pair.files["fixed"], pair.files["moving"]
    with pytest.raises(TypeError, match="--iterations"):
        ffdp.register(fixed, moving, iteration=3)
    with pytest.raises(TypeError, match="apply.*--gamma"):
        ffdp.apply(None, fixed, moving, gamma=3)
    with pytest.raises(TypeError, match="progress must be a function"):
        ffdp.register(fixed, moving, progress=3)


def test_kinds_of_errors_are_pythons_own(pair, tmp_path):
    fixed, moving = pair.files["fixed"], pair.files["moving"]
    assert issubclass(ffdp.InputError, (ffdp.Error, ValueError))
    assert issubclass(ffdp.FileError, OSError) and issubclass(ffdp.FileError, ffdp.Error)
    assert issubclass(ffdp.OutOfMemoryError, MemoryError)
    assert issubclass(ffdp.DeviceError, RuntimeError)
    with pytest.raises(ffdp.FileError):
        ffdp.register(tmp_path / "none.nii.gz", moving)
    with pytest.raises(ffdp.InputError, match="no labels drive|there are no label maps"):
        ffdp.register(fixed, moving, label_terms=[1])
    with pytest.raises(ffdp.InputError, match="--landmark-sigma. says how exactly"):
        ffdp.register(fixed, moving, landmark_sigma=1)
    with pytest.raises(ffdp.InputError, match="as many, and some, got .2, 1."):
        ffdp.register(fixed, moving, landmarks=(np.zeros((2, 3)), np.zeros((1, 3))))
    with pytest.raises(ffdp.InputError, match="another grid"):
        ffdp.register(
            fixed,
            moving,
            fixed_labels=pair.files["moving_labels"],
            moving_labels=pair.files["moving_labels"],
        )
    constant = ffdp.Image(np.ones((32, 32, 32)), np.diag([5, 5, 5, 1.0]))
    with pytest.raises(ffdp.InputError, match="constant"):
        ffdp.register(constant, moving)
