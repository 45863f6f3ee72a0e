"""The frame: what installs, what pins it, and that the commands the README shows are the ones that are run."""

import re
import subprocess
import sys
import tomllib

import pytest
from _source import ROOT, modules
from packaging.requirements import Requirement

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIRED = [Requirement(line) for line in [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]]
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_has_one_tested_version_and_a_reason() -> None:
    """A fresh environment next year gets the versions that were tested; a reader learns why each is there.

    KIND: unit.
    """
    pinned = {canonical(pin.name): pin for pin in PINS}
    for requirement in REQUIRED:
        (version,) = (spec.version for spec in pinned[canonical(requirement.name)].specifier)
        assert requirement.specifier.contains(version), f"{requirement} does not allow the tested {version}"
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    for requirement in REQUIRED:
        (line,) = (line for line in lines if line.strip().startswith(f'"{requirement}"'))
        assert re.search(r'",\s+# \w.{6,}', line), f"no reason given: {line.strip()}"


def test_the_tested_versions_are_plain_versions() -> None:
    """No address, no file, no range: the list works with any index, on each Python and system by its markers.

    KIND: unit.
    """
    for pin in PINS:
        assert pin.url is None and [spec.operator for spec in pin.specifier] == ["=="], str(pin)
    assert sorted({canonical(pin.name) for pin in PINS}) == list(dict.fromkeys(canonical(pin.name) for pin in PINS))


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_python_that_is_promised_has_a_version_of_everything(version: str) -> None:
    """A marker that leaves a Python out would let it install whatever is newest.

    KIND: boundary.
    """
    environment = {"python_version": version, "python_full_version": f"{version}.9"}
    held = {canonical(pin.name) for pin in PINS if pin.marker is None or pin.marker.evaluate(environment)}
    assert {canonical(requirement.name) for requirement in REQUIRED} <= held
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_the_package_imports_without_the_book() -> None:
    """The course is a package first: only the explorables may need what draws and what shows controls.

    KIND: boundary.
    """
    names = [name for name in modules() if not name.startswith("tinyllm.explore")]
    program = f"""
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in "matplotlib ipywidgets IPython jupytext nbformat nbclient pytest".split():
            raise ImportError(name + " belongs to an extra")
sys.meta_path.insert(0, Refuse())
for name in {names!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_readme_shows_the_lines_that_make_runs() -> None:
    """People without make type what make would have typed; the two must not drift apart.

    KIND: differential.
    """
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    installs = re.findall(r"(pip install) .*(-c constraints\.txt -e) '(\S+)'", makefile)
    assert len(installs) == 2
    for install, constraints, what in installs:
        assert f'{install} {constraints} "{what}"' in readme
    run = re.search(r"^test:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert run
    typed = [line.replace("$(WORKERS)", "2") for line in re.findall(r"^\t\$\(PY\) (.*)", run[1], flags=re.MULTILINE)]
    assert len(typed) >= 3
    for line in typed:
        assert f"python {line}" in readme, line


def test_ci_runs_the_command_that_a_clone_runs() -> None:
    """What CI proves must be what a reader can run.

    KIND: unit.
    """
    script = ROOT / ".ci" / "run"
    assert script.read_text(encoding="utf-8").rstrip().endswith("make test")
    assert script.stat().st_mode & 0o100 or sys.platform == "win32"
