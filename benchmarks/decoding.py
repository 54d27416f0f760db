"""How fast tokens are said: with a cache, without, and by others.

    python benchmarks/decoding.py

writes book/results/decoding.json and prints a table. Every candidate gets
the same weights and the same sentences, may not end a sentence early, and
says 50 tokens in each; what it says must be what the first candidate says.
The candidates take turns in one process on one thread, and the clock is the
process's CPU time. A ratio is a candidate's time over the first one's in the
same round: above 1, the candidate is slower.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

from provenance import RESULTS, provenance, write_json

from transformer import Transformer, TransformerConfig, beam_search, greedy_decode
from transformer.pretrained import marian

TOKENS, SOURCE_TOKENS = 50, 30
SHAPES = {
    "d=128": dict(vocab_size=4000, layers=2, d_model=128, d_ff=512, heads=4),
    "d=256": dict(vocab_size=4000, layers=3, d_model=256, d_ff=1024, heads=4),
}
# Beam size and sentences at once; a beam of 1 is greedy decoding.
CASES = {
    "greedy, batch 1": (1, 1),
    "greedy, batch 32": (1, 32),
    "beam 4, batch 1": (4, 1),
    "beam 4, batch 32": (4, 32),
}

Decoder = Callable[[Tensor, int], list[list[int]]]


def ours(model: Transformer, **options) -> Decoder:
    """Our own decoding: source and beam size to the tokens of each sentence."""

    def decode(source: Tensor, beam_size: int) -> list[list[int]]:
        limit = dict(max_length=TOKENS, **options)
        if beam_size == 1:
            return greedy_decode(model, source, **limit).tolist()
        found = beam_search(model, source, beam_size=beam_size, **limit)
        return [hypotheses[0].ids for hypotheses in found]

    return decode


def marian_generate(model: Transformer) -> Decoder:
    """Hugging Face's MarianMT with our weights, and its own `generate`."""
    from transformers import MarianMTModel

    with tempfile.TemporaryDirectory() as folder:
        marian.save(model, folder)
        theirs = MarianMTModel.from_pretrained(folder).eval()

    def decode(source: Tensor, beam_size: int) -> list[list[int]]:
        output = theirs.generate(
            input_ids=source,
            attention_mask=torch.ones_like(source),
            num_beams=beam_size,
            do_sample=False,
            max_new_tokens=TOKENS,
        )
        return output[:, 1:].tolist()

    return decode


# Name: makes a decoder from our model. The first is what others are held to.
CANDIDATES: dict[str, Callable[[Transformer], Decoder]] = {
    "cached": ours,
    "uncached": lambda model: ours(model, use_cache=False),
    "MarianMT generate": marian_generate,
}


def make_model(shape: str) -> Transformer:
    """Random weights of a model that MarianMT can hold as well.

    It has biases and that model's epsilon, and never says EOS.
    """
    config = TransformerConfig(
        **SHAPES[shape],
        dropout=0.0,
        attention_bias=True,
        output_bias=True,
        layer_norm_eps=1e-5,
        max_length=256,
    )
    torch.manual_seed(0)
    model = Transformer(config).eval()
    with torch.no_grad():
        for banned in (config.eos_id, config.pad_id, config.bos_id):
            model.output_projection.bias[banned] = -1e4
    return model


def measure(shape: str, case: str, rounds: int, names: list[str]) -> dict:
    """All candidates on one case, turn by turn."""
    model = make_model(shape)
    beam_size, batch = CASES[case]
    generator = torch.Generator().manual_seed(1)
    size = (batch, SOURCE_TOKENS)
    source = torch.randint(4, model.config.vocab_size, size, generator=generator)
    source[:, -1] = model.config.eos_id
    decoders = {name: CANDIDATES[name](model) for name in names}
    said = {name: decode(source, beam_size) for name, decode in decoders.items()}
    assert {len(ids) for ids in said[names[0]]} == {TOKENS}, said[names[0]]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 else names[::-1]:
            started = time.process_time()
            decoders[name](source, beam_size)
            seconds[name].append(time.process_time() - started)
    first = seconds[names[0]]
    return {
        name: {
            "seconds": spread(seconds[name]),
            "tokens_per_second": batch * TOKENS / statistics.median(seconds[name]),
            "ratio": spread([a / b for a, b in zip(seconds[name], first, strict=True)]),
            "same_tokens": said[name] == said[names[0]],
        }
        for name in names
    }


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"quartile_1": low, "median": middle, "quartile_3": high}


def in_words(found: dict) -> str:
    """What was measured, on one line."""
    ratio = found["ratio"]
    return (
        f"{found['tokens_per_second']:8.0f} tokens/s  {ratio['median']:5.2f}"
        f" ({ratio['quartile_1']:.2f} to {ratio['quartile_3']:.2f})"
        f"{'' if found['same_tokens'] else '  OTHER TOKENS'}"
    )


def main() -> None:
    """Measure each case; write the result after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[*SHAPES])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument(
        "--only", nargs="+", choices=CANDIDATES, default=[*CANDIDATES], metavar="NAME"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "decoding.json")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "provenance": provenance(allow_dirty=options.allow_dirty),
        "settings": {
            "clock": "CPU seconds of the process, one thread",
            "tokens": TOKENS,
            "source_tokens": SOURCE_TOKENS,
            "rounds": options.rounds,
            "ratio": f"over {options.only[0]}: above 1, slower",
            "shapes": {name: SHAPES[name] for name in options.shapes},
        },
        "shapes": {},
    }
    for shape in options.shapes:
        result["shapes"][shape] = cases = {}
        for case in options.cases:
            cases[case] = measure(shape, case, options.rounds, options.only)
            for name, found in cases[case].items():
                print(f"{shape:6} {case:17} {name:16} {in_words(found)}", flush=True)
            write_json(options.out, result)


if __name__ == "__main__":
    main()
