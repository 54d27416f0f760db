"""The Transformer of "Attention Is All You Need" (2017), executed."""

from transformer.attention import (
    KeyValueCache,
    MultiHeadAttention,
    scaled_dot_product_attention,
)
from transformer.config import (
    BOS,
    EOS,
    PAD,
    TrainingConfig,
    TransformerConfig,
)
from transformer.decoding import Hypothesis, beam_search, greedy_decode
from transformer.embeddings import TokenEmbedding
from transformer.encoder_decoder import (
    AddAndNorm,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
)
from transformer.feed_forward import PositionwiseFeedForward
from transformer.masks import causal_mask, padding_mask
from transformer.model import Transformer
from transformer.positional_encoding import (
    PositionalEncoding,
    sinusoidal_encoding,
)
from transformer.training import (
    LabelSmoothingLoss,
    NoamScheduler,
    noam_rate,
    train,
)

__version__ = "0.1.0"

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "AddAndNorm",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "Hypothesis",
    "KeyValueCache",
    "LabelSmoothingLoss",
    "MultiHeadAttention",
    "NoamScheduler",
    "PositionalEncoding",
    "PositionwiseFeedForward",
    "TokenEmbedding",
    "TrainingConfig",
    "Transformer",
    "TransformerConfig",
    "beam_search",
    "causal_mask",
    "greedy_decode",
    "noam_rate",
    "padding_mask",
    "scaled_dot_product_attention",
    "sinusoidal_encoding",
    "train",
]
