"""What the guide and the example show, runs; the stubs name what the module has."""

import ast
import inspect
import re
import runpy
from pathlib import Path

import ffdp

CRATE = Path(__file__).parent.parent
PAGE = CRATE / "../../docs/python.md"


def test_the_programs_of_the_guide_run(sitk, pair, tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) >= 4
    monkeypatch.chdir(pair.folder)
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(CRATE / "examples/register.py"))
    assert (tmp_path / "warped.nii.gz").exists()


def test_the_stubs_name_what_there_is():
    tree = ast.parse((CRATE / "ffdp.pyi").read_text())
    stubs = {node.name: node for node in tree.body if hasattr(node, "name")}
    stubs = {name: node for name, node in stubs.items() if not name.startswith("_")}
    public = {name for name in dir(ffdp) if not name.startswith("_")} - {"ffdp"}
    assert set(stubs) == public
    for name, node in stubs.items():
        if isinstance(node, ast.ClassDef) and not name.endswith("Error"):
            members = {part.name for part in node.body if hasattr(part, "name")}
            theirs = {member for member in vars(getattr(ffdp, name)) if not member.startswith("__")}
            assert {member for member in members if not member.startswith("__")} == theirs, name
        if isinstance(node, ast.FunctionDef):
            own = inspect.signature(getattr(ffdp, name)).parameters.values()
            plain = [parameter.name for parameter in own if parameter.kind != parameter.VAR_KEYWORD]
            named = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            assert set(plain) <= set(named), name


def test_every_setting_of_the_stubs_is_one_of_the_command_line(command):
    tree = ast.parse((CRATE / "ffdp.pyi").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    # Objects of Python, which files stand for in a command.
    own = {"register": {"progress"}, "predict": {"progress"}, "apply": {"moving"}, "train": set()}
    for name, objects in own.items():
        help_text = command(name, "--help")
        for argument in functions[name].args.args + functions[name].args.kwonlyargs:
            flag = "--" + argument.arg.replace("_", "-")
            assert argument.arg in objects or re.search(rf"{flag}\b", help_text), (name, flag)


def test_every_flag_of_a_registration_is_in_the_stubs_or_about_files(command):
    flags = set(re.findall(r"^\s+(?:-\w, )?--([a-z][a-z-]*)", command("register", "--help"), re.M))
    tree = ast.parse((CRATE / "ffdp.pyi").read_text())
    register = next(node for node in tree.body if getattr(node, "name", "") == "register")
    named = {argument.arg.replace("_", "-") for argument in register.args.kwonlyargs}
    # Of folders and lists, of images larger than memory or one device, of series, and of what is printed or written.
    left_out = {
        *["fixed", "moving", "reference", "pairs", "output", "landmark-space", "format", "strict"],
        *["jacobian", "label-names"],
        *["devices", "shards", "device-memory", "slabs", "resume", "overwrite", "ignore-disk"],
        *["checkpoint-every", "plan", "json", "quiet", "verbose", "help", "version"],
    }
    assert flags - named == left_out, (flags - named) ^ left_out
