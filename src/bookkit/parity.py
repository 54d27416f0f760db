"""Appendix A3: other people's models, and the method of Figures 3 to 5."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bookkit import explorers, figures
from bookkit.heads import best, label
from transformer import (
    Transformer,
    TransformerConfig,
    beam_search,
    greedy_decode,
    padding_mask,
)
from transformer.attention import recording
from transformer.data.batches import make_batch, shift
from transformer.data.text import help_en_de
from transformer.pretrained import framework, load, marian
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


def marian_like(seed: int, *, moved: bool = True, **changes) -> Transformer:
    """A random model of MarianMT's kind in our code, in float64.

    Args:
        moved: gains that are not 1 and biases that are not 0, so that
            none can be left out unseen; as just made if False.
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
            if moved and weight.dim() == 1:
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
    ours = framework.parted(theirs.state_dict(), framework.ATTENTION)
    right = {
        name.removeprefix("project_"): ours[f"{name}.weight"]
        for name in framework.THREE
    }
    try:
        found = take_apart(theirs.in_proj_weight.detach())
    except NotImplementedError as error:
        return f"to do: {error}"
    if found is None:
        return "nothing came back: is there a return?"
    if len(found) != len(right):
        return f"{len(found)} matrices came back; three are needed"
    return ", ".join(
        f"{name}: {part_found(one, name, right)}"
        for name, one in zip(right, found, strict=True)
    )


def part_found(found: Tensor, name: str, right: dict[str, Tensor]) -> str:
    """What was found in the place of one matrix."""
    if found.shape != right[name].shape:
        return f"{tuple(found.shape)}, but {tuple(right[name].shape)} is needed"
    for other, matrix in right.items():
        if torch.equal(found, matrix):
            return "right" if other == name else f"that is the {other}"
    return "rows of several"


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


def final_norms(model: Transformer | nn.Transformer) -> nn.Module:
    """With a norm after each stack, as `nn.Transformer` comes."""
    other = copy.deepcopy(model)
    name, width = "final_norm", model
    if isinstance(model, nn.Transformer):
        name = "norm"
    else:
        width = model.config
    for stack in (other.encoder, other.decoder):
        norm = nn.LayerNorm(width.d_model).to(next(stack.parameters()))
        setattr(stack, name, norm)
    return other


def padding_seen(model: Transformer) -> Transformer:
    """With padding that may be attended to."""
    other = copy.deepcopy(model)
    other.padding_mask = lambda ids, pad_id: padding_mask(ids, -1)
    return other


def starts_with(target_in: Tensor, token: int) -> Tensor:
    """The decoder's input with another start token."""
    other = target_in.clone()
    other[:, 0] = token
    return other


Change = Callable[[Transformer], Transformer]


def changes(config: TransformerConfig) -> dict[str, Change]:
    """What such a model can be spoiled by, one thing at a time."""

    def other(field: str, one: Any, another: Any) -> Change:
        value = another if getattr(config, field) == one else one
        return lambda model: changed(model, **{field: value})

    found = {
        "epsilon of the norms": other("layer_norm_eps", 1e-5, 1e-6),
        "spacing of the sines": other("sinusoid_spacing", "printed", "published"),
        "order of the sines": other("sinusoid_layout", "concatenated", "interleaved"),
        "activation": other("activation", "swish", "relu"),
        "place of the norms": other("norm", "post", "pre"),
        "norms after the stacks": final_norms,
        "scale of the embeddings": unscaled,
        "padding mask": padding_seen,
    }
    biases = {"biases of attention": "attention_bias", "output bias": "output_bias"}
    for name, field in biases.items():
        if getattr(config, field):  # where there are none, none can be forgotten
            found[name] = other(field, True, False)
    return found


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
    """Each difference alone, all others matched; the smallest first.

    Positions of padding in the target do not count.
    """
    config = model.config
    found = {
        name: change(model)(source, target_in)
        for name, change in changes(config).items()
    }
    started = config.pad_id if config.start_id == config.bos_id else config.bos_id
    found["start token"] = model(source, starts_with(target_in, started))
    real = target_in != config.pad_id
    real[:, 0] = True  # PAD may be the start token
    right = model(source, target_in)[real]
    effects = {
        name: Effect(
            furthest(logits[real], right),
            (logits[real].argmax(-1) != right.argmax(-1)).double().mean().item(),
        )
        for name, logits in found.items()
    }
    return dict(sorted(effects.items(), key=lambda item: item[1].logits))


def trained_effects(pairs: int = 16) -> dict[str, Effect]:
    """The same with the model that comes with the book, in float64.

    Args:
        pairs: so many, the first of the test set.
    """
    model, tokenizer = load()
    sides = zip(*help_en_de("test")[:pairs], strict=True)
    batch = make_batch(*map(tokenizer.encode, sides))
    target_in, _ = shift(batch.target)
    return effects(model.double(), batch.source, target_in)


Models = Mapping[str, Mapping[str, Effect]]  # from a model's name


def effects_table(models: Models) -> str:
    """What each difference does to each model, a line for each."""
    names = list(next(iter(models.values())))
    head = "".join(f"  {name:>18}" for name in models)
    lines = [f"{'not matched':24}{head}"]
    for name in names:
        cells = (found.get(name) for found in models.values())
        said = (f"{e.logits:9.1e} {e.tokens:8.0%}" if e else "" for e in cells)
        lines.append(f"{name:24}" + "".join(f"  {cell:>18}" for cell in said))
    return "\n".join(line.rstrip() for line in lines)


def effects_figure(models: Models) -> figures.Figure:
    """Both numbers, a row for each difference, in the first model's order."""
    names = list(next(iter(models.values())))
    panels = {
        "logits": "largest difference of a logit",
        "tokens": "positions with another\nlikeliest token (share of 1)",
    }
    with figures.style():
        made, axes = figures.blank(0.36 * len(names) + 1.2, columns=2, sharey=True)
        for ax, (field, label) in zip(axes.flat, panels.items(), strict=True):
            for index, (model, found) in enumerate(models.items()):
                ax.plot(
                    [getattr(found[name], field) for name in names if name in found],
                    [row for row, name in enumerate(names) if name in found],
                    linestyle="",
                    marker=figures.MARKERS[index],
                    markersize=7,
                    color=figures.COLOURS[index],
                    fillstyle="none" if index else "full",
                    markeredgewidth=1.8 if index else 0,
                    label=model if field == "logits" else None,
                    clip_on=False,
                    zorder=3 + index,
                )
            ax.grid(visible=True)
            ax.tick_params(axis="y", length=0)
            ax.set_xlabel(label)
        logits, tokens = axes.flat
        logits.set_xscale("log")
        logits.set_yticks(range(len(names)), names)
        logits.set_ylim(len(names) - 0.5, -0.5)
        tokens.set_xlim(0, 1)
        tokens.set_xticks([0, 0.5, 1])
        made.legend(loc="outside upper left", ncols=len(models), handlelength=1)
    made.alt = (
        f"Largest difference of a logit, and share of positions with another"
        f" likeliest token, for {', '.join(models)}: {', '.join(names)}"
    )
    return made


# --- Figures 3 to 5 --------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Where the word `asking` looks, if it looks at the words `asked`."""

    figure: str
    sentence: str
    asking: str
    asked: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.figure}: {self.asking} → {', '.join(self.asked)}"


FIGURE_3 = Question(
    "Figure 3",
    "It is in this spirit that a majority of American governments have passed new"
    " laws since 2009 making the registration or voting process more difficult .",
    "making",
    ("more", "difficult"),
)
FIGURE_4 = Question(
    "Figure 4",
    "The Law will never be perfect , but its application should be just - this is"
    " what we are missing , in my opinion .",
    "its",
    ("Law",),  # "application" is the next word: any head that looks one on
)
QUESTIONS = (FIGURE_3, FIGURE_4)
SEEDS = range(5)  # of the control


@dataclass(frozen=True)
class Looks:
    """The encoder's weights on one sentence, and an answer in them.

    Args:
        tokens: pieces of the sentence.
        weights: (layer, head, query, key).
        shares: of the weight of `asking` on `asked`, (layer, head).
        others: the same from all other words, their mean.
        even: what a head gives that looks everywhere alike.
    """

    tokens: list[str]
    weights: Tensor
    shares: Tensor
    others: Tensor
    even: float

    @property
    def best(self) -> tuple[int, int]:
        """The layer and the head, from 0, with the largest share."""
        return best(self.shares)

    def __str__(self) -> str:
        return (
            f"head {label(self.best)} gives the most,"
            f" {self.shares[self.best].item():.2f}; from other words it gives"
            f" {self.others[self.best].item():.2f}, spread evenly it would be"
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
    given = weights[..., places["asked"]].sum(-1)  # (layer, head, query)
    asking = torch.zeros(len(tokens), dtype=torch.bool)
    asking[places["asking"]] = True
    even = len(places["asked"]) / len(tokens)
    found = given[..., asking].mean(-1), given[..., ~asking].mean(-1)
    return Looks(list(tokens), weights, *found, even)


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


Found = Mapping[Question, Mapping[str, Sequence[Looks]]]  # from a model's name


def looks_figure(found: Found) -> figures.Figure:
    """The share of each head, largest first, a panel for each question.

    Several looks of a model, one for each seed, are a band from the
    lowest to the highest; one is a dot for each head. As many heads
    as the smallest model has.
    """
    with figures.style():
        made, axes = figures.blank(3.4, columns=len(found), sharey=True)
        for ax, (question, models) in zip(axes.flat, found.items(), strict=True):
            every = [looks for seeds in models.values() for looks in seeds]
            count = min(looks.shares.numel() for looks in every)
            for index, (name, seeds) in enumerate(models.items()):
                shares = torch.stack([looks.shares.flatten() for looks in seeds])
                many = shares.sort(descending=True).values[:, :count]
                draw_shares(ax, many, name, index)
            ax.axhline(
                every[0].even,
                color=figures.INK,
                linewidth=1.1,
                linestyle=(0, (2, 2)),
                label="spread evenly",
            )
            ax.set_title(str(question))
            ax.set_xlabel("heads, the one that looks most first")
            ax.set_ylim(bottom=0)
        axes.flat[0].set_ylabel("weight on the words (share of 1)")
        made.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper left")
    names = next(iter(found.values()))
    made.alt = (
        "weight on the words over heads, the one that looks most first:"
        f" {', '.join(names)}; for {'; '.join(map(str, found))}"
    )
    return made


def draw_shares(ax: Any, many: Tensor, name: str, index: int) -> None:
    """Sorted shares, (seeds, heads): a band, or dots if there is one."""
    ranks = range(1, many.size(1) + 1)
    colour, kind = figures.COLOURS[index], dict(linestyle="-")
    if len(many) > 1:
        low, high = many.aminmax(dim=0)
        ax.fill_between(ranks, low, high, color=colour, alpha=0.25, linewidth=0)
        name = f"{name}, {len(many)} seeds: mean, lowest to highest"
    else:
        kind = dict(linestyle="", marker=figures.MARKERS[index], markersize=4)
    ax.plot(ranks, many.mean(0), color=colour, label=name, **kind)


# --- with a model from outside, or without ---------------------------------------

TRAINED = "opus-mt-en-de"
NONE_HERE = "FETCH is False: no model was loaded, and none is shown."
General = tuple[Transformer, Any]  # what `marian.load` gives


def first_words(general: General | None) -> str:
    """A translation of Figure 3's sentence, or why there is none."""
    if general is None:
        return NONE_HERE
    return translate(*general, [FIGURE_3.sentence])[0]


def control_and(general: General | None) -> dict[Question, dict[str, list[Looks]]]:
    """Looks of untrained models, and the trained one's if there is one."""
    looks: dict[Question, dict[str, list[Looks]]] = {}
    for question in QUESTIONS:
        control = [untrained_looks(question, seed) for seed in SEEDS]
        looks[question] = {"untrained": control}
        most = sorted(found.shares.max().item() for found in control)
        print(question)
        print(
            f"  untrained: the best of {control[0].shares.numel()} heads gives"
            f" {most[0]:.2f} to {most[-1]:.2f}; spread evenly it would be"
            f" {control[0].even:.2f}"
        )
        if general:
            looks[question][TRAINED] = [look_with(*general, question)]
            print(f"  {TRAINED}: {looks[question][TRAINED][0]}")
    return looks


def all_heads(
    looks: Found, question: Question = FIGURE_4, layer: int = 5
) -> explorers.Explorer | None:
    """The explorer with the trained model's heads, if there is one.

    Args:
        layer: to start from; the last if there are not so many.
    """
    if TRAINED not in looks[question]:
        print(NONE_HERE)
        return None
    (found,) = looks[question][TRAINED]
    return explorers.attention(
        {"encoder": found.weights}, found.tokens, layer=min(layer, len(found.weights))
    )
