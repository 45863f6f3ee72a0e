"""The course as data: its modules, the files each one builds, what each needs, and where its tests are.

Everything that `ol` says about the course follows from this table and from the files it names, so that a module is
described in one place.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # the course: the folder with tinyllm/, tests/ and book/


@dataclass(frozen=True)
class Module:
    """One thing to build: the files that a learner writes, and the modules whose code they call."""

    id: str
    title: str
    files: tuple[str, ...]  # relative to ROOT and, with the same names, to the learner's folder
    needs: tuple[str, ...] = ()
    chapters: tuple[str, ...] = ()  # names in book/, without the ending


_SPEC_CHAPTERS = (
    "08-by-hand",
    "09-the-verifier",
    "10-three-drafts",
    "11-rollback",
    "12-how-fast",
    "13-the-milestone",
    "14-twelve-ways-to-be-wrong",
)

# In the order in which one builds them.
MODULES: dict[str, Module] = {
    module.id: module
    for module in (
        Module("M06.3", "randomness you can replay", ("tinyllm/num/rng.py",), (), ("01-replayable-randomness",)),
        Module(
            "M07.1",
            "from a uniform to an outcome",
            ("tinyllm/prob/sampling.py",),
            (),
            ("01-replayable-randomness",),
        ),
        Module(
            "M07.6",
            "rejection sampling",
            ("tinyllm/prob/rejection.py",),
            ("M07.1",),
            ("03-accept-or-replace",),
        ),
        Module("M11.1", "entropy and distances", ("tinyllm/info/entropy.py",), (), ("02-distances",)),
        Module("L2.1", "n-gram language model", ("tinyllm/lm/ngram.py",), (), ("04-a-model-made-of-counts",)),
        Module(
            "L8.1",
            "from logits to a token",
            ("tinyllm/infer/sample.py",),
            ("M06.3", "M07.1", "M11.1"),
            ("05-from-logits-to-a-token",),
        ),
        Module(
            "L8.2",
            "KV cache and generate",
            ("tinyllm/infer/kvcache.py", "tinyllm/infer/generate.py"),
            ("L8.1",),
            ("06-one-token-a-pass",),
        ),
        Module(
            "L8.6",
            "speculative decoding",
            ("tinyllm/infer/spec.py",),
            ("M07.6", "L8.2", "L2.1", "L8.1"),
            _SPEC_CHAPTERS,
        ),
        Module("L10.8", "speculation in another engine", (), ("L8.6",)),
    )
}


def module(module_id: str) -> Module:
    """The module of that id, in any case of letters. ValueError naming near ids for one that does not exist."""
    by_lower = {known.lower(): found for known, found in MODULES.items()}
    if found := by_lower.get(module_id.strip().lower()):
        return found
    near = difflib.get_close_matches(module_id.lower(), list(by_lower), n=3, cutoff=0.5)
    names = [by_lower[name].id for name in near] or list(MODULES)
    raise ValueError(f"there is no module {module_id!r}; did you mean {_listed(names)}?")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def needed(module: Module) -> list[Module]:
    """Every module that `module` needs, directly or through another, in the order in which one builds them."""
    ids: set[str] = set()
    open_ids = list(module.needs)
    while open_ids:
        if (next_id := open_ids.pop()) not in ids:
            ids.add(next_id)
            open_ids += MODULES[next_id].needs
    return [other for other in MODULES.values() if other.id in ids]


def slug(module: Module) -> str:
    """The module as a folder name, such as "l8-6-spec"."""
    number = module.id.lower().replace(".", "-")
    return f"{number}-{Path(module.files[-1]).stem}" if module.files else number


def tests_folder(module: Module) -> Path:
    """Where the course's own tests of the module are."""
    return ROOT / "tests" / module.id


def reference(file: str) -> Path:
    """The course's own version of one of a module's files."""
    return ROOT / file


def dotted(file: str) -> str:
    """The import name of a file, such as "tinyllm.infer.spec"."""
    return file.removesuffix(".py").replace("/", ".")


def notebook(chapter: str) -> Path:
    """The notebook of a chapter, such as "08-by-hand"."""
    return ROOT / "book" / f"{chapter}.ipynb"
