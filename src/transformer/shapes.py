"""The tensors that pass between the parts of a model.

Tests check every shape at run time; axes of one name have one size
within a call.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

# Token ids, padded on the right.
SourceIds = Int[Tensor, "batch source"]
TargetIds = Int[Tensor, "batch target"]

# A vector for each token, in the encoder and in the decoder.
Source = Float[Tensor, "batch source d_model"]
Target = Float[Tensor, "batch target d_model"]

# True where a query may attend to a key; broadcasts to (batch, heads,
# query, key). None where every query may attend to every key.
Mask = Bool[Tensor, "..."] | None

# The decoder's output after its last layer, and what follows from it.
Logits = Float[Tensor, "batch target vocab"]
