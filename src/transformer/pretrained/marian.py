"""MarianMT models, such as Helsinki-NLP/opus-mt-en-de, in our code.

    model, tokenizer = marian.load("Helsinki-NLP/opus-mt-en-de")
    translate(model, tokenizer, ["The file is open."])

They are the paper's base model but for what `configuration` sets, and
are read from the files that Hugging Face's `transformers` writes;
`save` writes such files. Neither needs that library.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer.config import TransformerConfig
from transformer.files import write_then_rename
from transformer.model import Transformer
from transformer.pretrained.hub import folder_of
from transformer.pretrained.sentence_pieces import SentencePieces
from transformer.variants import sinusoids

CONFIG, GENERATION = "config.json", "generation_config.json"
TENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
SMALL = (CONFIG, GENERATION, "tokenizer_config.json")
SMALL += ("source.spm", "target.spm", "vocab.json")
SMALL += ("target_vocab.json",)

# The beginnings of names: ours, MarianMT's.
ENCODER_LAYER = {
    "self_attention.project_query.": "self_attn.q_proj.",
    "self_attention.project_key.": "self_attn.k_proj.",
    "self_attention.project_value.": "self_attn.v_proj.",
    "self_attention.project_output.": "self_attn.out_proj.",
    "feed_forward.widen.": "fc1.",
    "feed_forward.narrow.": "fc2.",
    "around_attention.norm.": "self_attn_layer_norm.",
    "around_feed_forward.norm.": "final_layer_norm.",
}
DECODER_LAYER = {
    "self_attention.project_query.": "self_attn.q_proj.",
    "self_attention.project_key.": "self_attn.k_proj.",
    "self_attention.project_value.": "self_attn.v_proj.",
    "self_attention.project_output.": "self_attn.out_proj.",
    "cross_attention.project_query.": "encoder_attn.q_proj.",
    "cross_attention.project_key.": "encoder_attn.k_proj.",
    "cross_attention.project_value.": "encoder_attn.v_proj.",
    "cross_attention.project_output.": "encoder_attn.out_proj.",
    "feed_forward.widen.": "fc1.",
    "feed_forward.narrow.": "fc2.",
    "around_self_attention.norm.": "self_attn_layer_norm.",
    "around_cross_attention.norm.": "encoder_attn_layer_norm.",
    "around_feed_forward.norm.": "final_layer_norm.",
}
SHARED = "model.shared.weight"
SOURCE = "model.encoder.embed_tokens.weight"
TARGET = "model.decoder.embed_tokens.weight"
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
POSITIONS = (
    "model.encoder.embed_positions.weight",
    "model.decoder.embed_positions.weight",
)
EPS = 1e-5  # not a field of theirs

NEEDED = (
    "vocab_size",
    "d_model",
    "max_position_embeddings",
    "encoder_layers",
    "decoder_layers",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "encoder_attention_heads",
    "decoder_attention_heads",
)
# What `transformers` takes where a field is not there.
DEFAULTS = {
    "decoder_vocab_size": None,
    "activation_function": "gelu",
    "scale_embedding": False,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "pad_token_id": 58100,
    "eos_token_id": 0,
    "decoder_start_token_id": 58100,
    "bad_words_ids": None,
}
# What must be so if it is there: we know no other.
FIXED = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "static_position_embeddings": True,
    "is_encoder_decoder": True,
    "encoder_layerdrop": 0,
    "decoder_layerdrop": 0,
    "forced_bos_token_id": None,
    "do_sample": False,
    "num_beam_groups": 1,
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1,
    "encoder_repetition_penalty": 1,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
ACTIVATIONS |= {"silu": "swish"}

State = Mapping[str, Tensor]


def load(name: Path | str) -> tuple[Transformer, SentencePieces]:
    """A MarianMT model and its tokenizer.

    Args:
        name: a folder, or a model's name at huggingface.co, such as
            "Helsinki-NLP/opus-mt-en-de". By name it is fetched once,
            about 300 MB, and kept where `huggingface_hub` keeps it.

    Raises:
        NotHere: no such folder, and no network or no such name.
        ImportError: `sentencepiece` is not installed.
        OSError: a file is missing or cannot be read.
        ValueError: it is no MarianMT model, or one that we cannot
            match: the field is named.
    """
    folder = folder_of(name, SMALL, (TENSORS, PICKLED))
    return load_model(folder), SentencePieces.load(folder)


def load_model(name: Path | str) -> Transformer:
    """The model alone, as float32, in evaluation mode.

    Raises:
        NotHere, ImportError, OSError, ValueError: as `load` does.
    """
    folder = folder_of(name, SMALL, (TENSORS, PICKLED))
    try:
        fields = read_fields(folder)
        state = read_state(folder)
        model = Transformer(configuration(fields, state))
        model.load_state_dict(our_state(state, fields))
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{folder}: {error}") from error
    return model.eval()


def configuration(fields: dict, state: State) -> TransformerConfig:
    """Our configuration of a MarianMT model.

    All that differs from the paper's base model stands here: the
    biases, the activation, the order of sines and cosines, the
    norm's epsilon, and PAD as the start token, which is why decoding
    must not say it (`TransformerConfig.banned_ids`).

    Args:
        fields: of config.json and generation_config.json.
        state: theirs. A table of positions in it says how sines and
            cosines are laid out.

    Raises:
        ValueError: naming the field that we cannot match.
    """
    check_fields(fields)
    pad, eos = fields["pad_token_id"], fields["eos_token_id"]
    return TransformerConfig(
        vocab_size=fields["vocab_size"],
        target_vocab_size=target_vocab_size(fields),
        layers=fields["encoder_layers"],
        d_model=fields["d_model"],
        d_ff=fields["encoder_ffn_dim"],
        heads=fields["encoder_attention_heads"],
        dropout=fields["dropout"],
        attention_dropout=fields["attention_dropout"],
        activation_dropout=fields["activation_dropout"],
        pad_id=pad,
        bos_id=min({0, 1, 2} - {pad, eos}),  # has no meaning there
        eos_id=eos,
        start_id=fields["decoder_start_token_id"],
        max_length=fields["max_position_embeddings"],
        layer_norm_eps=EPS,
        attention_bias=True,
        activation=ACTIVATIONS[fields["activation_function"]],
        # Unscaled embeddings cannot be the output matrix as well.
        tied=is_tied(fields) and fields["scale_embedding"],
        output_bias=True,
        **layout(fields, state),
    )


def check_fields(fields: dict) -> None:
    """Raise a ValueError that names the field we cannot match."""
    if fields.get("model_type") != "marian":
        raise ValueError(
            f"model_type={fields.get('model_type')!r} in {CONFIG} must"
            " be 'marian'"
        )
    for name in NEEDED:
        if name not in fields:
            raise ValueError(f"{name} is missing in {CONFIG}")
    for name, ours in FIXED.items():
        value = fields.get(name)
        if value is not None and value != ours:
            raise ValueError(
                f"{name}={value!r}, but we know {ours!r} only"
            )
    for name in ("layers", "ffn_dim", "attention_heads"):
        one, other = (
            fields[f"encoder_{name}"],
            fields[f"decoder_{name}"],
        )
        if one != other:
            raise ValueError(
                f"decoder_{name}={other}, but encoder_{name}={one}:"
                " our two stacks are alike"
            )
    activation = fields["activation_function"]
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"activation_function={activation!r} must be one of"
            f" {', '.join(map(repr, ACTIVATIONS))}"
        )
    smallest = min(fields["vocab_size"], target_vocab_size(fields))
    for name in (
        "pad_token_id",
        "eos_token_id",
        "decoder_start_token_id",
    ):
        if fields[name] not in range(smallest):
            raise ValueError(
                f"{name}={fields[name]!r} is not an id of a vocabulary"
                f" of {smallest}"
            )
    # Ours bans PAD, and only where it is the start token.
    pad, banned = fields["pad_token_id"], fields["bad_words_ids"]
    start = fields["decoder_start_token_id"]
    if banned and not (banned == [[pad]] and start == pad):
        raise ValueError(
            f"bad_words_ids={banned!r}, but we know [[{pad}]] only,"
            " which is PAD, and where PAD is the start token"
        )


def is_tied(fields: dict) -> bool:
    """Whether one matrix serves in three places."""
    shared = fields["share_encoder_decoder_embeddings"]
    return shared and fields["tie_word_embeddings"]


def target_vocab_size(fields: dict) -> int:
    """The target's own vocabulary, or the source's."""
    own = None
    if not fields["share_encoder_decoder_embeddings"]:
        own = fields["decoder_vocab_size"]
    return own or fields["vocab_size"]


def layout(fields: dict, state: State) -> dict[str, str]:
    """The kind of sinusoids: theirs unless a table says otherwise.

    Raises:
        ValueError: the tables are no sinusoids.
    """
    size = fields["max_position_embeddings"], fields["d_model"]
    tables = [state[name] for name in POSITIONS if name in state]
    for order in ("concatenated", "interleaved"):
        for spacing in ("printed", "published"):
            own = sinusoids(*size, layout=order, spacing=spacing)
            if all(
                table.shape == own.shape
                and torch.allclose(
                    table.float(),
                    own.to(table.dtype).float(),
                    atol=1e-5,
                )
                for table in tables
            ):
                kind = dict(sinusoid_layout=order)
                return kind | dict(sinusoid_spacing=spacing)
    raise ValueError(
        f"{POSITIONS[0]} and its like are no sinusoids, and we know"
        " no other fixed positions"
    )


def layer_names(layers: int) -> dict[str, str]:
    """Our parts of both stacks and theirs, with what is in them."""
    parts = {"encoder": ENCODER_LAYER, "decoder": DECODER_LAYER}
    return {
        f"{stack}.layers.{i}.{our}{kind}": (
            f"model.{stack}.layers.{i}.{their}{kind}"
        )
        for stack, names in parts.items()
        for i in range(layers)
        for our, their in names.items()
        for kind in ("weight", "bias")
    }


def our_state(state: State, fields: dict) -> dict[str, Tensor]:
    """Their tensors under our names.

    Raises:
        ValueError: one is missing, or one is left over.
    """
    names = layer_names(fields["encoder_layers"])
    # Of one matrix with several names a file may keep any.
    source, target, output = (SOURCE,), (TARGET,), (OUTPUT,)
    if fields["share_encoder_decoder_embeddings"]:
        source, target = (SOURCE, SHARED), (TARGET, SHARED)
    if fields["tie_word_embeddings"]:
        target = output = (*target, OUTPUT)
    if is_tied(fields):
        source = target = output = (SHARED, SOURCE, TARGET, OUTPUT)
    ours = {our: take(state, their) for our, their in names.items()}
    scale = 1.0
    if not fields["scale_embedding"]:  # ours always is
        scale = fields["d_model"] ** -0.5
    ours |= {
        "source_embedding.weight": take(state, *source) * scale,
        "target_embedding.weight": take(state, *target) * scale,
        "output_projection.weight": take(state, *output),
    }
    classes = len(ours["output_projection.weight"])
    bias = state.get(BIAS, torch.zeros(1, classes))
    ours["output_projection.bias"] = bias.flatten()
    known = {*names.values(), *POSITIONS, *source, *target, *output}
    if odd := sorted(state.keys() - known - {BIAS}):
        raise ValueError(f"not part of the model: {', '.join(odd)}")
    return ours


def take(state: State, *names: str) -> Tensor:
    """The tensor that has one of these names.

    Raises:
        ValueError: none has.
    """
    for name in names:
        if name in state:
            return state[name]
    raise ValueError(f"{' or '.join(names)} is missing")


def read_fields(folder: Path) -> dict:
    """The fields of both configurations, with their defaults.

    Raises:
        OSError: config.json cannot be read.
        ValueError: a file is no JSON object.
    """
    fields = dict(DEFAULTS)
    for name in (CONFIG, GENERATION):
        path = folder / name
        if name == GENERATION and not path.exists():
            continue  # older models have all in config.json
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{name}: no JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"{name}: no JSON object")
        # A null in the second does not undo the first.
        fields |= {
            key: value
            for key, value in found.items()
            if value is not None or key not in fields
        }
    return fields


def read_state(folder: Path) -> dict[str, Tensor]:
    """The tensors of safetensors, or of torch's own format.

    Of the latter tensors alone are read; nothing else that such a
    file could hold is unpickled.

    Raises:
        OSError: there is neither, or it cannot be read.
        ValueError: the file holds something else.
    """
    path = folder / TENSORS
    if path.exists():
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{TENSORS}: {error}") from error
    path = folder / PICKLED
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} has neither {TENSORS} nor {PICKLED}"
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{PICKLED} holds more than tensors, or is broken"
        ) from error
    if not isinstance(state, dict) or not all(
        isinstance(tensor, Tensor) for tensor in state.values()
    ):
        raise ValueError(f"{PICKLED} holds no dictionary of tensors")
    return dict(state)


def save(model: Transformer, folder: Path | str) -> None:
    """Write a model of ours so that `transformers` reads it.

    Args:
        folder: made where it is missing. It gets config.json,
            generation_config.json and model.safetensors; no
            tokenizer.

    Raises:
        ValueError: naming the field that MarianMT does not have.
    """
    fields = their_fields(model.config)
    generation = {
        name: fields.pop(name)
        for name in ("bad_words_ids", "forced_eos_token_id")
    }
    generation |= {
        name: fields[name]
        for name in (
            "pad_token_id",
            "eos_token_id",
            "decoder_start_token_id",
        )
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in ((CONFIG, fields), (GENERATION, generation)):
        with write_then_rename(folder / name) as draft:
            text = json.dumps(found, indent=2) + "\n"
            draft.write_text(text, encoding="utf-8")
    with write_then_rename(folder / TENSORS) as draft:
        save_file(their_state(model), draft, {"format": "pt"})


def their_fields(config: TransformerConfig) -> dict:
    """config.json of a model of ours, and what generation needs.

    Raises:
        ValueError: naming the field that MarianMT does not have.
    """
    wanted = {
        "norm": "post",
        "layer_norm_eps": EPS,
        "positions": "sinusoidal",
        "d_k": config.d_model // config.heads,
        "d_v": config.d_model // config.heads,
    }
    for name, theirs in wanted.items():
        if getattr(config, name) != theirs:
            raise ValueError(
                f"{name}={getattr(config, name)!r}, but a MarianMT"
                f" model has {theirs!r} only"
            )
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": config.vocab_size,
        "decoder_vocab_size": config.target_vocab_size,
        "d_model": config.d_model,
        "max_position_embeddings": config.max_length,
        "encoder_layers": config.layers,
        "decoder_layers": config.layers,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "activation_function": config.activation,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tied,
        "tie_word_embeddings": config.tied,
        "pad_token_id": config.pad_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.start_id,
        "bad_words_ids": [[i] for i in config.banned_ids] or None,
        "forced_eos_token_id": None,
    }


def their_state(model: Transformer) -> dict[str, Tensor]:
    """Our tensors under their names; biases that we lack are 0.

    With the tables of positions: theirs would be concatenated.
    """
    ours, config = model.state_dict(), model.config
    theirs = {}
    for our, their in layer_names(config.layers).items():
        width = len(ours[our.replace(".bias", ".weight")])
        theirs[their] = ours.get(our, torch.zeros(width))
    theirs[SHARED] = ours["source_embedding.weight"]
    if not config.tied:
        theirs[SOURCE] = theirs.pop(SHARED)
        theirs[TARGET] = ours["target_embedding.weight"]
        theirs[OUTPUT] = ours["output_projection.weight"]
    bias = ours.get(
        "output_projection.bias", torch.zeros(config.target_vocab_size)
    )
    theirs[BIAS] = bias[None]
    for name in POSITIONS:
        theirs[name] = model.source_positions.table.clone()
    return {name: x.contiguous() for name, x in theirs.items()}
