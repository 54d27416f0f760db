"""MarianMT models of `transformers`, random, and a tokenizer's files."""

from __future__ import annotations

import json
from pathlib import Path

import torch

SMALL = dict(
    vocab_size=60,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_position_embeddings=64,
    activation_function="swish",
    scale_embedding=True,
    eos_token_id=0,
)
OPUS = dict(  # Helsinki-NLP/opus-mt-en-de
    vocab_size=58101,
    d_model=512,
    encoder_layers=6,
    decoder_layers=6,
    encoder_attention_heads=8,
    decoder_attention_heads=8,
    encoder_ffn_dim=2048,
    decoder_ffn_dim=2048,
    max_position_embeddings=512,
    activation_function="swish",
    scale_embedding=True,
    eos_token_id=0,
)


def make_marian(folder: Path | None = None, *, seed: int = 0, size=SMALL, **changes):
    """A random model with no weight at its start value, saved.

    Its last id is PAD, which is the start token and banned, and beam search
    counts with probabilities of what is left, as in the published models.
    """
    from transformers import MarianConfig, MarianMTModel

    fields = size | changes
    pad = fields["vocab_size"] - 1
    fields = dict(pad_token_id=pad, decoder_start_token_id=pad) | fields
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MarianMTModel(MarianConfig(**fields)).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "embed_positions" in name:
                    continue
                if weight.dim() == 1:
                    weight += 0.2 * torch.randn_like(weight)
                else:
                    weight.normal_(std=weight.size(-1) ** -0.5)
            model.final_logits_bias.normal_()
    generation = model.generation_config
    generation.bad_words_ids = [[pad]]
    generation.renormalize_logits = True
    if folder:
        model.save_pretrained(folder)
    return model


def random_pairs(generator, vocab_size, *, size=4, source=9, target=7):
    """Source and decoder input, padded; both begin as the model wants."""
    pad = vocab_size - 1
    ids = torch.randint(2, pad, (size, source), generator=generator)
    target_in = torch.randint(2, pad, (size, target), generator=generator)
    target_in[:, 0] = pad
    for row in range(size):
        end = source - 1 - row % (source - 1)
        ids[row, end], ids[row, end + 1 :] = 0, pad
        target_in[row, target - row % (target - 2) :] = pad
    return ids, target_in


def write_tokenizer(folder: Path, pairs, *, size: int = 300, languages=()) -> None:
    """source.spm, target.spm and vocab.json, as the published models have."""
    import sentencepiece

    sides = {}
    for name, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_prefix=str(folder / name),
            vocab_size=size,
            num_threads=1,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        model = sentencepiece.SentencePieceProcessor(str(folder / f"{name}.spm"))
        sides[name] = [model.id_to_piece(i) for i in range(3, len(model))]
    # Not every piece of the source model has an id, and the order is no one's.
    pieces = sorted({*sides["source"][5:], *sides["target"]})
    words = ["</s>", "<unk>", *languages, *pieces, "<pad>"]
    text = json.dumps({piece: i for i, piece in enumerate(words)})
    (folder / "vocab.json").write_text(text, "utf-8")
