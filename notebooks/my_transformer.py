"""Your Transformer: eight parts, which at first are all the book's.

Write a part where its line stands, under the same name, and run the last
cells of chapter 15: they put your parts in the place of the book's, run
every check on the whole, and train it. To check one part alone:

    from bookkit import check
    import my_transformer
    check.attention(my_transformer.scaled_dot_product_attention)

A part is called as the book's is; the comments say how. Keywords such as
`dropout` and `cache` may be missing as long as nothing asks for them.
Where several names make up a part, any of them makes it yours.
"""

import bookkit
import transformer

# 1. Attention, section 3.2.1, chapter 04. Tested by check.attention.
#    (query, key, value, mask=None, *, dropout=0.0, return_weights=False)
#    -> output, or (output, weights). The mask is True where a query may
#    attend to a key.
scaled_dot_product_attention = transformer.scaled_dot_product_attention

# 2. Heads, section 3.2.2. Tested by check.heads.
#    A module: made as (d_model, heads), called as (query, key, value,
#    mask). Its matrices have other names than ours? See OPTIONS.
MultiHeadAttention = transformer.MultiHeadAttention

# 3. Masks, section 3.2.3, chapter 06. Tested by check.masks.
#    padding_mask(ids, pad_id) -> (batch, 1, 1, key), True at real tokens;
#    causal_mask(length, device=None) -> (length, length), True up to the
#    diagonal.
padding_mask = transformer.padding_mask
causal_mask = transformer.causal_mask

# 4. Feed-forward, section 3.3. Tested by check.feed_forward.
#    A module: made as (d_model, d_ff), called as (x). OPTIONS again.
PositionwiseFeedForward = transformer.PositionwiseFeedForward

# 5. Embedding, section 3.4. Tested by check.embedding.
#    A module: made as (vocab_size, d_model), called as (ids). Its `weight`,
#    (vocab_size, d_model), also makes the model's logits.
TokenEmbedding = transformer.TokenEmbedding

# 6. Positions, section 3.5, chapter 09. Tested by
#    check.positional_encoding. sinusoidal_encoding(length, d_model) gives
#    the table; PositionalEncoding, a module made as (d_model, max_length),
#    adds it to x.
sinusoidal_encoding = transformer.sinusoidal_encoding
PositionalEncoding = transformer.PositionalEncoding

# 7. Layers, section 3.1. Tested by check.connection and check.layers.
#    AddAndNorm: made as (d_model, dropout=0.1), called as (x, sublayer).
#    The layers are made from attentions, feed-forward and `connect`, which
#    makes an AddAndNorm. They are called as (x, mask) and as (x, memory,
#    target_mask, memory_mask).
AddAndNorm = transformer.AddAndNorm
EncoderLayer = transformer.EncoderLayer
DecoderLayer = transformer.DecoderLayer

# 8. Loss and schedule, sections 5.4 and 5.3, chapter 15. Tested by
#    check.loss and check.schedule. LabelSmoothingLoss: made as (smoothing,
#    pad_id), called as (logits, target). NoamScheduler: made as (optimizer,
#    d_model, warmup_steps=4000, factor=1.0), with a step() that sets the
#    optimizer's next rate.
LabelSmoothingLoss = transformer.LabelSmoothingLoss
NoamScheduler = transformer.NoamScheduler

# What a check must be told about your parts, such as where the weights are:
# OPTIONS = dict(feed_forward=dict(weights=lambda mine: (mine.w1, mine.b1,
# mine.w2, mine.b2))). help(check.heads) says what each check takes.
OPTIONS = {}

# What is yours: every name that no longer stands for the book's own.
NAMES = [name for names in bookkit.PARTS.values() for name in names]
MINE = {name: globals()[name] for name in NAMES}
PARTS = {
    name: part
    for name, part in MINE.items()
    if part is not getattr(transformer, name)
}
