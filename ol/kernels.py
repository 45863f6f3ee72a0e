"""The compiled loops of the reference, compiled once and lent to every run of learners' code.

The same, apart from that, for loops in learners' own files, which only runs of the same file load again.

A run has a home of its own, so Numba would compile everything anew in each, for seconds. Instead a trusted process,
which runs nothing but the reference, fills a folder with what Numba keeps, and every run gets a copy: it can use it,
and add to its copy, but what it writes reaches nobody else. A folder is made anew when a source, Numba or Python
changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

ROOT = Path(__file__).resolve().parents[1]
KEPT_FILES = 200  # placed files of learners, the newest
SOURCES = {"small": ("num", "prob", "info", "lm"), "model": ("xfmr",)}


def lend(folder: Path, model: bool) -> None:
    """Copy what is compiled into `folder`, compiling it first if need be; without it a run is only slower."""
    for part in ("small", "model") if model else ("small",):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            shutil.copytree(_kept(part), folder, dirs_exist_ok=True)


def settle(path: Path, folder: Path) -> Path | None:
    """A copy, at a place that stays, of a learner's file that compiles loops; `folder` gets what was kept of it.

    Numba tells sources apart by their place and time, so a file in a folder that is thrown away would be compiled anew
    in every run. The place is named after the contents. None for a file that compiles nothing, or without a place.
    """
    try:
        content = path.read_bytes()
        if b"numba" not in content and b"compiled" not in content:
            return None
        digest = hashlib.sha256(content).hexdigest()[:24]
        place = _cache() / "files" / digest / path.name
        if not place.is_file() or place.read_bytes() != content:
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                file.write(content)
            Path(file.name).replace(place)
            _forget_oldest(place.parent.parent)
        for kept in (place.parent / "compiled").glob("*"):
            shutil.copytree(kept, folder / kept.name, dirs_exist_ok=True)
    except OSError:
        return None
    return place


def keep(folder: Path, files: Iterable[Path]) -> None:
    """Keep what a run compiled of files that `settle` placed. Only runs of the very same file will load it."""
    for path in files:
        with contextlib.suppress(OSError):
            for made in folder.glob(f"{path.parent.name}_*"):  # Numba names a sub-folder after the source's folder
                target = path.parent / "compiled" / made.name
                if not target.is_dir():
                    with tempfile.TemporaryDirectory(dir=path.parent) as part:
                        shutil.copytree(made, Path(part, "copy"))
                        target.parent.mkdir(exist_ok=True)
                        Path(part, "copy").rename(target)


def _forget_oldest(folder: Path) -> None:
    places = sorted(folder.iterdir(), key=lambda place: place.stat().st_mtime)
    for old in places[:-KEPT_FILES]:
        shutil.rmtree(old, ignore_errors=True)


def _cache() -> Path:
    return user_cache_path("tinyllm", appauthor=False) / "compiled"


def _kept(part: str) -> Path:
    """The folder with the compiled loops of a part of the package, filled if it is not there."""
    target = _cache() / f"{part}-{_key(part)}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="part-", dir=target.parent) as made:
            _fill(Path(made), part)
            with contextlib.suppress(OSError):  # another run was faster
                Path(made, "filled").rename(target)
        for old in target.parent.glob(f"{part}-*"):
            if old != target:
                shutil.rmtree(old, ignore_errors=True)
    return target


def _key(part: str) -> str:
    """What the compiled code depends on: the sources as Numba tells them apart, Numba, Python and the place."""
    total = hashlib.sha256(f"{version('numba')} {version('numpy')} {sys.version} {ROOT}".encode())
    for source in sorted(path for name in SOURCES[part] for path in (ROOT / "tinyllm" / name).glob("*.py")):
        stat = source.stat()
        total.update(f"{source.name} {stat.st_mtime_ns} {stat.st_size}\n".encode())
    return total.hexdigest()[:16]


def _fill(folder: Path, part: str) -> None:
    """Compile in a process of its own, where Numba is told to keep things in `folder`/filled."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "filled")}
    command = [sys.executable, "-I", str(Path(__file__).resolve()), part]
    subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True, timeout=600)


def compile_small() -> None:
    """Call every compiled loop of the small modules once, with the types that the course calls it with."""
    import numpy as np

    from tinyllm.infer.sample import SamplingParams, sample, token_logprobs
    from tinyllm.info.entropy import cross_entropy, entropy, kl_divergence, total_variation
    from tinyllm.lm.ngram import NGramLM
    from tinyllm.num.rng import PCG32
    from tinyllm.prob.rejection import acceptance_probability, rejection_sample, speculative_step

    p, q = np.array([0.25, 0.75]), np.array([0.5, 0.5])
    entropy(p), cross_entropy(p, q), kl_divergence(p, q), total_variation(p, q), acceptance_probability(p, q)
    speculative_step(p, q, 0, 0.9, 0.5)
    rejection_sample(p, q, 2.0, PCG32(0))
    NGramLM(2).fit([[0, 1, 0]]).logprobs([0])
    for dtype in (np.float64, np.float32):
        logits = np.array([0.0, 1.0, 2.0], dtype=dtype)
        for knobs in (SamplingParams(), SamplingParams(top_k=2, top_p=0.9, min_p=0.1, repetition_penalty=1.1)):
            sample(logits, knobs, [0], PCG32(0))
            token_logprobs(logits, knobs, [0])


def compile_model() -> None:
    """Run the real model over a prompt, over one token and over several, which is all that decoding does with it."""
    from tinyllm.infer.generate import generate
    from tinyllm.infer.sample import SamplingParams
    from tinyllm.infer.spec import ModelDraft, speculative_generate
    from tinyllm.zoo import smollm2

    model, tok = smollm2()
    p = SamplingParams(temperature=0, max_tokens=8)
    generate(model, tok, "The capital of France is", p)
    speculative_generate(model, ModelDraft(model.first_layers(2)), tok, "The capital of France is", p)


def load() -> None:
    """Bring Numba up and load what every module calls, so that the first test does not wait for it."""
    import numpy as np

    from tinyllm.num import exact

    x = np.zeros(2)
    exact.softmax(x), exact.exp_sum(x, 0.0), exact.ascending_sum(x)


if __name__ == "__main__":
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    {"small": compile_small, "model": compile_model}[sys.argv[1]]()
