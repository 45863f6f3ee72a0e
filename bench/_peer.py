"""One peer engine behind JSON lines; run by the interpreter that has it, not by this project's own.

    PEER_PYTHON bench/_peer.py ENGINE MODEL.gguf THREADS

ENGINE is "llama.cpp" (needs llama-cpp-python) or "transformers" (needs torch and transformers). Each line asked is
{"ids": [...], "tokens": n} for greedy decoding, or {"ids": [...], "rows": n} for one pass over the last n ids after the
others; each line answered has the seconds and, for decoding, the ids.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
Engine = tuple[Callable[[list[int], int], list[float | int]], Callable[[list[int], int], float]]


def llama_cpp(path: Path, threads: int) -> Engine:
    """llama.cpp through its Python binding, keeping its own defaults but for threads."""
    import numpy as np
    from llama_cpp import Llama

    settings: dict[str, Any] = {"n_ctx": 2048, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
    decoder = Llama(str(path), **settings)
    scorer = Llama(str(path), logits_all=True, **settings)

    def decode(ids: list[int], tokens: int) -> list[float | int]:
        decoder.reset()
        decoder.eval(ids)
        started = time.perf_counter()
        out: list[float | int] = []
        while True:
            logits = decoder._ctx.get_logits()
            out.append(int(np.ctypeslib.as_array(logits, shape=(decoder.n_vocab(),)).argmax()))
            if len(out) == tokens:
                return [time.perf_counter() - started, *out]
            decoder.eval([int(out[-1])])

    def rows(ids: list[int], n: int) -> float:
        scorer.reset()
        scorer.eval(ids[:-n])
        started = time.perf_counter()
        scorer.eval(ids[-n:])
        return time.perf_counter() - started

    return decode, rows


def transformers(path: Path, threads: int) -> Engine:
    """transformers in float32, the weights of the same file unpacked."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32).eval()

    @torch.inference_mode()
    def decode(ids: list[int], tokens: int) -> list[float | int]:
        step = model(torch.tensor([ids]), use_cache=True)
        started = time.perf_counter()
        out: list[float | int] = []
        while True:
            out.append(int(step.logits[0, -1].argmax()))
            if len(out) == tokens:
                return [time.perf_counter() - started, *out]
            step = model(torch.tensor([[out[-1]]]), past_key_values=step.past_key_values, use_cache=True)

    @torch.inference_mode()
    def rows(ids: list[int], n: int) -> float:
        context = model(torch.tensor([ids[:-n]]), use_cache=True)
        started = time.perf_counter()
        model(torch.tensor([ids[-n:]]), past_key_values=context.past_key_values, use_cache=True)
        return time.perf_counter() - started

    return decode, rows


def main() -> None:
    """Answer one line for each line asked."""
    engine, path, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    answers = sys.stdout
    sys.stdout = sys.stderr  # what an engine prints is not an answer
    decode, rows = {"llama.cpp": llama_cpp, "transformers": transformers}[engine](path, threads)
    print(json.dumps({"ready": engine}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "tokens" in asked:
            seconds, *ids = decode(asked["ids"], asked["tokens"])
            answer: Answer = {"seconds": seconds, "ids": ids}
        else:
            answer = {"seconds": rows(asked["ids"], asked["rows"])}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
