"""The package's layers: a module imports from below, never from above or beside."""

import ast

import pytest
from _source import ROOT, imports, modules

# From the bottom up. The longest name that fits a module is its layer; a module that fits none fails the test.
LAYERS: list[set[str]] = [
    {"tinyllm.num"},
    {"tinyllm.info"},
    {"tinyllm.xfmr.gguf"},  # the file that holds weights and vocabulary: both tok and xfmr read it
    {"tinyllm.prob", "tinyllm.lm", "tinyllm.tok", "tinyllm.xfmr"},
    {"tinyllm.infer.sample", "tinyllm.infer.kvcache"},
    {"tinyllm.infer.generate"},
    {"tinyllm.infer.spec"},
    {"tinyllm.infer.vector_cases"},
    {"tinyllm.infer.vectors"},
    {"tinyllm.zoo"},
    {"tinyllm.smollm2_text"},
    {"tinyllm.smollm2"},
    {"tinyllm.explore"},
]
# The loops serve any model with a `forward`, so they may not know the one that ships.
FORBIDDEN = [("tinyllm.infer", "tinyllm.xfmr"), ("tinyllm", "ol"), ("tinyllm", "book"), ("tinyllm", "tests")]
PACKAGES = {"tinyllm", "tinyllm.infer"}  # their __init__ files import nothing


def within(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def layer(name: str) -> tuple[int, str]:
    fitting = [(len(part), height, part) for height, parts in enumerate(LAYERS) for part in parts if within(name, part)]
    assert fitting, f"{name} has no layer: say in LAYERS where it belongs"
    _, height, part = max(fitting)
    return height, part


def wrong_imports(name: str, tree: ast.Module, known: set[str]) -> list[str]:
    found = []
    for target in imports(name, tree, known):
        for above, below in FORBIDDEN:
            if within(name, above) and within(target, below):
                found.append(f"{name} imports {target}")
        if within(target, "tinyllm") and target not in PACKAGES:
            if name in PACKAGES:
                found.append(f"{name} imports {target}, and a package file imports nothing")
                continue
            (mine, here), (theirs, there) = layer(name), layer(target)
            if here != there and theirs >= mine:
                found.append(f"{name} imports {target}, which is not below it")
    return found


def test_every_module_imports_downward_only() -> None:
    """A reader can learn the package from the bottom up, and a layer can be tested without those above.

    KIND: property.
    """
    trees = modules()
    assert len(trees) > 10
    found = [wrong for name, tree in trees.items() for wrong in wrong_imports(name, tree, set(trees))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("tinyllm.num.rng", "from tinyllm.infer.spec import verify_draft"),
        ("tinyllm.prob.sampling", "from ..xfmr import llama"),
        ("tinyllm.infer.generate", "def f():\n    import tinyllm.xfmr.llama"),
        ("tinyllm.infer.sample", "from .kvcache import KVCache"),
        ("tinyllm.explore.overlap", "import ol"),
        ("tinyllm", "from tinyllm.num import rng"),
        ("tinyllm.infer", "from . import spec"),
    ],
)
def test_an_import_that_breaks_the_layers_is_found(name: str, line: str) -> None:
    """The check above would be worth nothing if it overlooked relative imports or those inside functions.

    KIND: boundary.
    """
    assert wrong_imports(name, ast.parse(line), set(modules()) | {"tinyllm.infer.spec"}) != []


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, [] when there is none."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name not in done:
            for target in sorted(graph[name]):
                if found := walk(target, [*path, name]):
                    return found
            done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := walk(name, []))), [])


def test_the_learners_command_has_no_import_cycle() -> None:
    """`ol` sits on top of the package; inside it, what runs learner code must not need what prints.

    KIND: property.
    """
    trees = {f"ol.{path.stem}": ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "ol").glob("*.py")}
    del trees["ol.__init__"]  # hands the function over that notebooks call, and is imported by all of them
    graph = {name: set(imports(name, tree, set(trees))) & set(trees) for name, tree in trees.items()}
    assert sum(map(len, graph.values())) > 10
    assert cycle(graph) == []
    assert {name for name, targets in graph.items() if "ol.cli" in targets} <= {"ol.__main__"}
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_an_import_from_below_is_allowed() -> None:
    """The check must not forbid what the layers are for.

    KIND: unit.
    """
    line = "import numpy\nfrom tinyllm.num import rng\nfrom .generate import generate\nfrom ..prob import rejection"
    assert wrong_imports("tinyllm.infer.spec", ast.parse(line), set(modules())) == []
