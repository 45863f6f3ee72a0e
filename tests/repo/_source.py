"""The repository's own files, for the tests that read them."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tinyllm"


def committed_files() -> list[Path]:
    """Every file of the repository that git does not ignore, committed or about to be."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        encoding="utf-8",
    ).stdout
    return sorted({ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()})


def module_name(path: Path) -> str:
    """The dotted name of a file of the package, such as "tinyllm.infer.spec"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    return {module_name(p): ast.parse(p.read_text(encoding="utf-8"), str(p)) for p in sorted(PACKAGE.rglob("*.py"))}


def imports(name: str, tree: ast.Module, known: set[str]) -> Iterator[str]:
    """Dotted names of the modules that a module imports anywhere, inside functions too."""
    package = name if (PACKAGE.parent / Path(*name.split(".")) / "__init__.py").exists() else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in known else base
