"""The same requests on llama.cpp and transformers: plain greedy decoding, and what a pass over n rows costs there.

    python bench/peers.py --peer-python PATH [--json PATH] [--plot PATH]

The peers run in an interpreter that has them (llama-cpp-python; torch and transformers), on the same file with the same
number of threads, one request at a time in turn with ours. Engines that it does not have are left out, by name.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from _measure import arguments, finish, table  # isort: split  # before NumPy is loaded

from tinyllm import smollm2
from tinyllm.infer.generate import generate, last_logits, new_cache
from tinyllm.infer.sample import SamplingParams
from tinyllm.xfmr import kernels
from tinyllm.zoo import smollm2 as load
from tinyllm.zoo import smollm2_path

ENGINES = ("llama.cpp", "transformers")
ROWS = (1, 5, 9)


class Peer:
    """One engine in a process of its own."""

    def __init__(self, python: Path, engine: str) -> None:
        script = Path(__file__).with_name("_peer.py")
        self._process = subprocess.Popen(
            [str(python), str(script), engine, str(smollm2_path()), str(kernels.threads())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if not self._read():
            raise ImportError(f"{python} does not have what {engine} needs.")

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def ask(self, **question: Any) -> dict[str, Any]:
        """The answer to one question; RuntimeError when the engine died over it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        if not (line := self._read()):
            raise RuntimeError(f"the peer ended over {question}.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def plot(path: Path, speed: dict[str, float]) -> None:
    """Draw the speeds of plain decoding."""
    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure(height=1.8)
    ax.barh(list(speed), list(speed.values()), color=PALETTE["target"])
    ax.invert_yaxis()
    ax.set(xlabel="tokens a second, plain greedy decoding")
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(repetitions=3)
    parser.add_argument("--peer-python", type=Path, help="the interpreter that has the peers")
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    if options.peer_python is None:
        print("nothing to compare with: name an interpreter that has the peers with --peer-python PATH")
        return
    model, tok = load()
    peers: dict[str, Peer] = {}
    for engine in ENGINES:
        try:
            peers[engine] = Peer(options.peer_python, engine)
        except ImportError as reason:
            print(f"left out: {reason}")
    p = SamplingParams(temperature=0, max_tokens=options.tokens)
    seconds: dict[str, list[float]] = {name: [] for name in ("tinyllm", *peers)}
    passes: dict[str, dict[int, list[float]]] = {name: {n: [] for n in ROWS} for name in seconds}
    same: dict[str, list[float]] = {name: [] for name in peers}
    cache = new_cache(model, 512)
    try:
        for repetition in range(options.repetitions + 1):  # the first is a warm-up
            for prompt in smollm2.requests(tok).values():
                ours = generate(model, tok, prompt, p)
                found = {"tinyllm": ours.timings["decode_s"] / (options.tokens - 1)}
                for name, peer in peers.items():
                    answer = peer.ask(ids=ours.prompt_ids, tokens=options.tokens)
                    found[name] = answer["seconds"] / (options.tokens - 1)
                    same[name].append(sum(map(int.__eq__, answer["ids"], ours.ids)) / options.tokens)
                for n in ROWS:
                    ids = list(range(100, 164 + n))
                    cache.truncate(0)
                    last_logits(model, ids[:64], cache, 1)
                    started = time.perf_counter()
                    last_logits(model, ids[64:], cache, n)
                    timed = time.perf_counter() - started
                    rows = {"tinyllm": timed} | {k: v.ask(ids=ids, rows=n)["seconds"] for k, v in peers.items()}
                    if repetition:
                        for name, value in rows.items():
                            passes[name][n].append(value)
                if repetition:
                    for name, value in found.items():
                        seconds[name].append(value)
    finally:
        for peer in peers.values():
            peer.close()

    speed = {name: 1 / statistics.median(found_s) for name, found_s in seconds.items()}
    ratios = {
        name: {n: statistics.median(times[n]) / statistics.median(times[1]) for n in ROWS}
        for name, times in passes.items()
    }
    table(
        ["engine", "plain tok/s", "ours against it", "T(5)/T(1)", "T(9)/T(1)", "same ids"],
        [
            [
                name,
                f"{value:.1f}",
                f"{speed['tinyllm'] / value:.2f}",
                f"{ratios[name][5]:.2f}",
                f"{ratios[name][9]:.2f}",
                f"{statistics.mean(same[name]):.0%}" if name in same else "",
            ]
            for name, value in speed.items()
        ],
    )
    if options.plot:
        plot(options.plot, speed)
    finish(options, {"tokens_per_s": speed, "ratio": {k: {str(n): r for n, r in v.items()} for k, v in ratios.items()}})


if __name__ == "__main__":
    main()
