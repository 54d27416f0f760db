"""Appendix A3: other people's models, and the method of Figures 3 to 5."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bookkit import explorers, figures
from bookkit.heads import best, label, shares
from transformer import (
    Transformer,
    TransformerConfig,
    beam_search,
    greedy_decode,
    padding_mask,
)
from transformer.attention import recording
from transformer.pretrained import framework, marian
from transformer.translation import translate

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that widgets are missing
        from transformers import MarianMTModel
        from transformers.utils import logging

    logging.disable_progress_bar()
except ImportError:
    MarianMTModel = None

MISSING = (
    "The package transformers is not installed, so nothing is compared here:"
    " pip install transformers"
)


def marian_like(seed: int, **changes) -> Transformer:
    """A random model of MarianMT's kind in our code, in float64.

    No weight is at its start value, so that none can be left out
    unseen: gains are not 1 and biases not 0.

    Args:
        changes: fields of the configuration that shall be otherwise.
    """
    shape = dict(vocab_size=1000, layers=3, d_model=128, d_ff=512, heads=4)
    shape |= dict(dropout=0.0, max_length=64, pad_id=999, eos_id=0, start_id=999)
    shape |= dict(layer_norm_eps=1e-5, attention_bias=True, output_bias=True)
    shape |= dict(activation="swish", sinusoid_layout="concatenated")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Transformer(TransformerConfig(**(shape | changes)))
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.data += 0.2 * torch.randn_like(weight)
    return model.double().eval()


def batch(seed: int, config: TransformerConfig) -> tuple[Tensor, Tensor]:
    """Random sources of four lengths, and decoder inputs."""
    generator = torch.Generator().manual_seed(seed)
    shape = dict(size=(4, 12), generator=generator)
    source = torch.randint(3, config.vocab_size - 1, **shape)
    target_in = torch.randint(3, config.vocab_size - 1, **shape)
    target_in[:, 0] = config.start_id
    for row, length in enumerate((12, 10, 7, 3)):
        source[row, length - 1], source[row, length:] = config.eos_id, config.pad_id
    return source, target_in


def furthest(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors."""
    return (one - other).abs().max().item()


# --- there and back --------------------------------------------------------------


def three_of_one(take_apart: Callable[[Tensor], Sequence[Tensor]]) -> str:
    """Whether it finds query, key and value in the framework's one matrix."""
    theirs = nn.MultiheadAttention(8, 2, bias=False)
    try:
        found = take_apart(theirs.in_proj_weight)
    except NotImplementedError as error:
        return str(error)
    ours = framework.parted(theirs.state_dict(), framework.ATTENTION)
    right = {
        name.removeprefix("project_"): ours[f"{name}.weight"]
        for name in framework.THREE
    }
    said = [
        f"{name}: {'right' if torch.equal(one, other) else 'another matrix'}"
        for (name, one), other in zip(right.items(), found, strict=True)
    ]
    return ", ".join(said)


def without_final_norms(core: nn.Transformer) -> nn.Transformer:
    """The framework's Transformer as the paper prints it."""
    core.encoder.norm = core.decoder.norm = None
    return core


def refusal(function: Callable, *arguments: Any) -> str:
    """What a call says that is refused.

    Raises:
        AssertionError: it is not refused.
    """
    try:
        function(*arguments)
    except ValueError as error:
        return str(error)
    raise AssertionError("the call was not refused")


def exchange(ours: Transformer, source: Tensor, target_in: Tensor) -> tuple:
    """Our model in transformers, and what it saves in our code again."""
    with tempfile.TemporaryDirectory() as folder:
        marian.save(ours, folder)
        theirs = MarianMTModel.from_pretrained(folder).eval()
        theirs.save_pretrained(Path(folder, "again"))
        back = Transformer.from_marian(Path(folder, "again"))
    with torch.no_grad():
        asked = theirs(
            input_ids=source,
            attention_mask=(source != ours.config.pad_id).long(),
            decoder_input_ids=target_in,
        ).logits
        for model in (ours, back):
            assert furthest(model(source, target_in), asked) < 1e-5
    return theirs, back


def same_output(ours: Transformer, theirs: Any, source: Tensor) -> dict[str, bool]:
    """Greedy and with a beam of 4: 20 tokens, all outputs of one length."""
    theirs.final_logits_bias[0, ours.config.eos_id] = -1e4  # no early end
    ours.output_projection.bias.data[ours.config.eos_id] = -1e4
    settings = dict(
        input_ids=source,
        attention_mask=(source != ours.config.pad_id).long(),
        max_new_tokens=20,
        do_sample=False,
        forced_eos_token_id=None,
        renormalize_logits=True,
    )
    greedy = greedy_decode(ours, source, max_length=20)
    said = theirs.generate(num_beams=1, **settings)
    beam = beam_search(ours, source, beam_size=4, alpha=0.0, max_length=20)
    best = theirs.generate(num_beams=4, length_penalty=0.0, **settings)
    return {
        "greedy": torch.equal(greedy, said[:, 1:]),
        "beam 4": [found.ids for (found,) in beam] == best[:, 1:].tolist(),
    }


# --- what each difference does -------------------------------------------------


def changed(model: Transformer, **fields) -> Transformer:
    """The same weights in a model whose configuration differs.

    A weight that it does not have is left out; one that it has more
    starts as it does in an untrained model.
    """
    other = Transformer(replace(model.config, **fields))
    other.to(model.output_projection.weight).eval()
    other.load_state_dict(model.state_dict(), strict=False)
    return other


def unscaled(model: Transformer) -> Transformer:
    """Without the factor sqrt(d_model) on the embeddings."""
    other = changed(model, tied=False)
    for embedding in (other.source_embedding, other.target_embedding):
        embedding.weight.data /= model.config.d_model**0.5
    return other


def final_norms(model: Transformer) -> Transformer:
    """With a norm after each stack, as `nn.Transformer` comes."""
    other = copy.deepcopy(model)
    for stack in (other.encoder, other.decoder):
        stack.final_norm = nn.LayerNorm(model.config.d_model).double()
    return other


def padding_seen(model: Transformer) -> Transformer:
    """With padding that may be attended to."""
    other = copy.deepcopy(model)
    other.padding_mask = lambda ids, pad_id: padding_mask(ids, -1)
    return other


def starts_with(model: Transformer, target_in: Tensor, token: int) -> Tensor:
    """The decoder's input with another start token."""
    other = target_in.clone()
    other[:, 0] = token
    return other


CHANGES: dict[str, Callable[[Transformer], Transformer]] = {
    "norm's epsilon 1e-6": lambda m: changed(m, layer_norm_eps=1e-6),
    "published spacing of the sines": lambda m: changed(
        m, sinusoid_spacing="published"
    ),
    "ReLU": lambda m: changed(m, activation="relu"),
    "no biases in attention": lambda m: changed(m, attention_bias=False),
    "no bias of the output": lambda m: changed(m, output_bias=False),
    "sines and cosines by turns": lambda m: changed(m, sinusoid_layout="interleaved"),
    "a norm after each stack": final_norms,
    "norm before the sub-layer": lambda m: changed(m, norm="pre"),
    "embeddings not scaled": unscaled,
    "padding not hidden": padding_seen,
}


@dataclass(frozen=True)
class Effect:
    """What one change does.

    Args:
        logits: the largest difference of a logit.
        tokens: share of positions whose likeliest token is another.
    """

    logits: float
    tokens: float


@torch.no_grad()
def effects(model: Transformer, source: Tensor, target_in: Tensor) -> dict[str, Effect]:
    """Each difference alone, all others matched; the smallest first."""
    right = model(source, target_in)
    found = {name: change(model)(source, target_in) for name, change in CHANGES.items()}
    bos = starts_with(model, target_in, model.config.bos_id)
    found["another start token"] = model(source, bos)
    effects = {
        name: Effect(
            (logits - right).abs().max().item(),
            (logits.argmax(-1) != right.argmax(-1)).double().mean().item(),
        )
        for name, logits in found.items()
    }
    return dict(sorted(effects.items(), key=lambda item: item[1].logits))


def effects_figure(found: dict[str, Effect]) -> figures.Figure:
    """The share of tokens that change, the smallest first."""
    tokens = {name: effect.tokens for name, effect in found.items()}
    return figures.bars(
        dict(sorted(tokens.items(), key=lambda item: item[1])),
        label="positions where another token is likeliest (share of 1)",
        digits=2,
    )


# --- Figures 3 to 5 --------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Where the word `asking` looks, if it looks at the words `asked`."""

    sentence: str
    asking: str
    asked: tuple[str, ...]


FIGURE_3 = Question(
    "It is in this spirit that a majority of American governments have passed new"
    " laws since 2009 making the registration or voting process more difficult .",
    "making",
    ("more", "difficult"),
)
FIGURE_4 = Question(
    "The Law will never be perfect , but its application should be just - this is"
    " what we are missing , in my opinion .",
    "its",
    ("Law", "application"),
)


@dataclass(frozen=True)
class Looks:
    """The encoder's weights on one sentence, and an answer in them.

    Args:
        tokens: pieces of the sentence.
        weights: (layer, head, query, key).
        shares: of the weight of `asking` on `asked`, (layer, head).
        even: what a head gives that looks everywhere alike.
    """

    tokens: list[str]
    weights: Tensor
    shares: Tensor
    even: float

    @property
    def best(self) -> tuple[int, int]:
        """The layer and the head, from 0, with the largest share."""
        return best(self.shares)

    def __str__(self) -> str:
        layer, head = self.best
        return (
            f"head {label(self.best)} gives the most,"
            f" {self.shares[layer, head].item():.2f}; spread evenly it would be"
            f" {self.even:.2f}"
        )


def words(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Words and where their pieces stand; "▁" begins a word."""
    found: list[tuple[str, list[int]]] = []
    for place, piece in enumerate(pieces):
        if piece.startswith("▁") or piece == "</s>" or not found:
            found.append((piece.removeprefix("▁"), [place]))
        else:
            word, places = found[-1]
            found[-1] = (word + piece, [*places, place])
    return found


@torch.no_grad()
def look(
    model: Transformer, ids: Sequence[int], tokens: Sequence[str], question: Question
) -> Looks:
    """How much each head of the encoder looks from a word to others.

    Args:
        ids: of the sentence, with EOS.
        tokens: its pieces, as many; "▁" begins a word.

    Raises:
        ValueError: a word of the question is not in the tokens.
    """
    places = {"asking": [], "asked": []}
    for name, asked in (("asking", (question.asking,)), ("asked", question.asked)):
        for word in asked:
            hits = [where for text, where in words(tokens) if text == word]
            if not hits:
                raise ValueError(f"{word!r} is not a word of {list(tokens)}")
            places[name] += hits[0]
    source = torch.tensor([list(ids)])
    parts = [layer.self_attention for layer in model.encoder.layers]
    with recording(parts):
        model.encode(source, None)
        weights = torch.stack([part.weights[0] for part in parts])
    wanted = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for row in places["asking"]:
        wanted[row, places["asked"]] = True
    found = shares(weights, wanted).mean(-1)
    even = len(places["asked"]) / len(tokens)
    return Looks(list(tokens), weights, found, even)


def look_with(model: Transformer, tokenizer, question: Question) -> Looks:
    """`look` with a model's own tokenizer."""
    (ids,) = tokenizer.encode([question.sentence])
    tokens = [*tokenizer.pieces(question.sentence), "</s>"]
    return look(model, [*ids, model.config.eos_id], tokens, question)


@cache
def untrained_looks(question: Question, seed: int = 0) -> Looks:
    """The same with random weights at the paper's size: the control.

    Its tokens are whole words.
    """
    tokens = ["▁" + word for word in question.sentence.split()] + ["</s>"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Transformer(TransformerConfig.base(len(tokens) + 3)).eval()
    ids = [*range(3, len(tokens) + 2), model.config.eos_id]
    return look(model, ids, tokens, question)


def look_figure(looks: dict[str, Looks]) -> figures.Figure:
    """The share of each head, largest first, a line for each model.

    As many heads as the smallest model has.
    """
    count = min(found.shares.numel() for found in looks.values())
    values = {
        name: found.shares.flatten().sort(descending=True).values[:count].tolist()
        for name, found in looks.items()
    }
    first = next(iter(looks.values()))
    ranks = list(range(1, count + 1))
    return figures.lines(
        ranks,
        values,
        expected={"spread evenly": [first.even] * count},
        xlabel="heads, the one that looks most first",
        ylabel="weight on the words (share of 1)",
    )


# --- with a model from outside, or without ---------------------------------------

TRAINED = "opus-mt-en-de"
NONE_HERE = "FETCH is False: no model was loaded, and none is shown."
General = tuple[Transformer, Any]  # what `marian.load` gives


def first_words(general: General | None) -> str:
    """A translation of Figure 3's sentence, or why there is none."""
    if general is None:
        return NONE_HERE
    return translate(*general, [FIGURE_3.sentence])[0]


def control_and(general: General | None, question: Question) -> dict[str, Looks]:
    """An untrained model's looks, and the trained one's if there is one."""
    looks = {"untrained": untrained_looks(question)}
    if general:
        looks[TRAINED] = look_with(*general, question)
    for name, found in looks.items():
        print(f"{name}: {found}")
    return looks


def all_heads(looks: dict[str, Looks]) -> explorers.Explorer | str:
    """The explorer with the trained model's heads, or why there is none."""
    if TRAINED not in looks:
        return NONE_HERE
    found = looks[TRAINED]
    return explorers.attention({"encoder": found.weights}, found.tokens)
