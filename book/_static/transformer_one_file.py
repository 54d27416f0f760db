"""The Transformer of "Attention Is All You Need" (2017), on one page.

`python transformer_one_file.py` learns to copy and says how often it is right. Beside
the definitions: shapes in -> shapes out. Made by `python -m bookkit.one_file`.
"""
# fmt: off

import math
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.optim.lr_scheduler import LRScheduler

# --- Settings (chapters 02, 17) ---------------------------------------
# The ids that mean something to training and decoding alike.
# Ordinary tokens start at 3.
PAD, BOS, EOS = 0, 1, 2

@dataclass(frozen=True, kw_only=True)
class TransformerConfig:  # The shape of a model
    vocab_size: int
    layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    dropout: float = 0.1
    pad_id: int = PAD
    bos_id: int = BOS
    eos_id: int = EOS
    max_length: int = 2048

    @classmethod
    def tiny(cls, vocab_size=13, **changes):
        shape = dict(layers=2, d_model=64, d_ff=256, heads=2)
        shape |= dict(dropout=0.0, max_length=256)
        return cls(vocab_size=vocab_size, **(shape | changes))

@dataclass(frozen=True, kw_only=True)
class TrainingConfig:  # One training run, section 5
    steps: int = 100_000
    warmup_steps: int = 4000
    factor: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    adam_eps: float = 1e-9
    label_smoothing: float = 0.1
    average_last: int = 5
    snapshot_every: int = 1500
    seed: int = 0

    @classmethod
    def copy_task(cls, **changes):
        run = dict(steps=500, warmup_steps=100, factor=0.24)
        run |= dict(snapshot_every=25)
        return cls(**(run | changes))

# --- Section 3.2.3: who may attend to whom (chapter 06) ---------------
def padding_mask(ids, pad_id):  # (batch, key) -> (batch, 1, 1, key)
    return (ids != pad_id)[..., None, None, :]

def causal_mask(length, device=None):  # -> (length, length)
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()

# --- Section 3.2: attention (chapters 04, 05) -------------------------
class Linear(nn.Linear):  # A linear map that starts from Xavier-uniform weights, bias 0
    def reset_parameters(self):
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

def scaled_dot_product_attention(query, key, value, mask):
    # Equation 1: softmax(Q K^T / sqrt(d_k)) V
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.size(-1))
    scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    # A row of -inf alone comes out of softmax as NaN.
    weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights

class MultiHeadAttention(nn.Module):  # h attentions side by side
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        d_k = d_model // heads
        self.project_query = Linear(d_model, heads * d_k, bias=False)
        self.project_key = Linear(d_model, heads * d_k, bias=False)
        self.project_value = Linear(d_model, heads * d_k, bias=False)
        self.project_output = Linear(heads * d_k, d_model, bias=False)

    def forward(self, query, key, value, mask):  # -> (batch, query, d_model)
        q = self.split_heads(self.project_query(query))
        k = self.split_heads(self.project_key(key))
        v = self.split_heads(self.project_value(value))
        heads, self.weights = scaled_dot_product_attention(q, k, v, mask)
        return self.project_output(self.merge_heads(heads))

    def split_heads(self, x):  # (batch, length, width) -> (batch, heads, length, d)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def merge_heads(self, x):  # (batch, heads, length, d) -> (batch, length, width)
        return x.transpose(1, 2).flatten(-2)

# --- Section 3.3: feed-forward (chapter 07) ---------------------------
class PositionwiseFeedForward(nn.Module):
    # Equation 2: max(0, x W_1 + b_1) W_2 + b_2, at each position
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.widen = Linear(d_model, d_ff)
        self.narrow = Linear(d_ff, d_model)

    def forward(self, x):  # (..., d_model) -> (..., d_model)
        return self.narrow(F.relu(self.widen(x)))

# --- Section 3.4: embeddings (chapter 08) -----------------------------
class TokenEmbedding(nn.Embedding):  # A vector for each id, times sqrt(d_model)
    def reset_parameters(self):
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)

    def forward(self, ids):  # (batch, length) -> (batch, length, d_model)
        return super().forward(ids) * math.sqrt(self.embedding_dim)

# --- Section 3.5: positions (chapter 09) ------------------------------
def sinusoidal_encoding(length, d_model):  # -> (length, d_model)
    position = torch.arange(length, dtype=torch.float64)
    pair = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position[:, None] / 10000 ** (pair / d_model)
    table = torch.empty(length, d_model)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()
    return table

class PositionalEncoding(nn.Module):  # Adds row p of a table at position p
    def __init__(self, d_model, max_length):
        super().__init__()
        table = sinusoidal_encoding(max_length, d_model)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):  # (batch, length, d_model) -> (batch, length, d_model)
        return x + self.table[: x.size(1)]

# --- Section 3.1: layers and stacks (chapter 03) ----------------------
class AddAndNorm(nn.Module):  # LayerNorm(x + Dropout(Sublayer(x)))
    def __init__(self, d_model, *, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps=1e-6)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):  # -> (batch, length, d_model)
        return self.norm(x + self.dropout(sublayer(x)))

class EncoderLayer(nn.Module):  # Self-attention, then feed-forward
    def __init__(self, self_attention, feed_forward, connect):
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.around_attention = connect()
        self.around_feed_forward = connect()

    def forward(self, x, mask):  # (batch, source, d_model) -> (batch, source, d_model)
        def look_around(x):
            return self.self_attention(x, x, x, mask)

        x = self.around_attention(x, look_around)
        return self.around_feed_forward(x, self.feed_forward)

class DecoderLayer(nn.Module):  # Two attentions, then feed-forward
    def __init__(self, self_attention, cross_attention, feed_forward, connect):
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.around_self_attention = connect()
        self.around_cross_attention = connect()
        self.around_feed_forward = connect()

    def forward(self, x, memory, target_mask, memory_mask):
        def look_back(x):
            return self.self_attention(x, x, x, target_mask)

        def look_up(x):
            return self.cross_attention(x, memory, memory, memory_mask)

        x = self.around_self_attention(x, look_back)
        x = self.around_cross_attention(x, look_up)
        return self.around_feed_forward(x, self.feed_forward)

class Stack(nn.Module):  # N layers, one after the other
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

class Encoder(Stack):  # Layers that take (x, mask)
    def forward(self, x, mask):  # (batch, source, d_model) -> (batch, source, d_model)
        for layer in self.layers:
            x = layer(x, mask)
        return x

class Decoder(Stack):  # Layers that take (x, memory, target_mask, memory_mask)
    def forward(self, x, memory, target_mask, memory_mask):
        for layer in self.layers:
            x = layer(x, memory, target_mask, memory_mask)
        return x

# --- Section 3: the model (chapter 02) --------------------------------
class Transformer(nn.Module):  # An encoder and a decoder: token ids in, logits out
    def __init__(self, config):
        super().__init__()
        self.config = config
        parts = Parts(config)
        self.source_embedding = parts.embedding(config.vocab_size)
        self.target_embedding = self.source_embedding
        self.source_positions = parts.positions()
        self.target_positions = parts.positions()
        self.dropout = nn.Dropout(config.dropout)
        layers = range(config.layers)
        self.encoder = Encoder([parts.encoder_layer() for _ in layers])
        self.decoder = Decoder([parts.decoder_layer() for _ in layers])
        self.output_projection = parts.output_projection()
        self.output_projection.weight = self.target_embedding.weight

    def forward(self, source, target_in):  # -> (batch, target, vocab)
        source_mask, target_mask, memory_mask = self.build_masks(source, target_in)
        memory = self.encode(source, source_mask)
        hidden = self.decode(target_in, memory, target_mask, memory_mask)
        return self.output_projection(hidden)

    def build_masks(self, source, target_in):
        source_mask = padding_mask(source, self.config.pad_id)
        target_mask = causal_mask(target_in.size(-1), target_in.device)
        return source_mask, target_mask, source_mask

    def encode(self, source, source_mask):  # -> (batch, source, d_model)
        x = self.source_positions(self.source_embedding(source))
        return self.encoder(self.dropout(x), source_mask)

    def decode(self, target_in, memory, target_mask, memory_mask):
        x = self.target_positions(self.target_embedding(target_in))
        return self.decoder(self.dropout(x), memory, target_mask, memory_mask)

class Parts:  # Makes a model's parts
    def __init__(self, config):
        self.config = config

    def embedding(self, vocab_size):
        return TokenEmbedding(vocab_size, self.config.d_model)

    def positions(self):
        return PositionalEncoding(self.config.d_model, self.config.max_length)

    def attention(self):
        return MultiHeadAttention(self.config.d_model, self.config.heads)

    def feed_forward(self):
        return PositionwiseFeedForward(self.config.d_model, self.config.d_ff)

    def connection(self):
        return AddAndNorm(self.config.d_model, dropout=self.config.dropout)

    def encoder_layer(self):
        return EncoderLayer(self.attention(), self.feed_forward(), self.connection)

    def decoder_layer(self):
        own, cross = self.attention(), self.attention()
        return DecoderLayer(own, cross, self.feed_forward(), self.connection)

    def output_projection(self):
        projection = Linear(self.config.d_model, self.config.vocab_size, bias=False)
        nn.init.normal_(projection.weight, std=self.config.d_model**-0.5)
        return projection

# --- Section 5: loss, schedule, loop (chapters 13, 14, 15) ------------
def shift(target):  # What the decoder is given, what it must say
    return target[:, :-1], target[:, 1:]

class LabelSmoothingLoss(nn.Module):  # Cross-entropy, a little unsure
    def __init__(self, smoothing, pad_id):
        super().__init__()
        self.smoothing = smoothing
        self.pad_id = pad_id

    def forward(self, logits, target):  # (..., vocab), (...,) -> a number
        # The framework spreads its share over all V classes, gold
        # included, so it must be asked for V / (V - 1) times ours.
        classes = logits.size(-1)
        total = F.cross_entropy(
            logits.reshape(-1, classes),
            target.reshape(-1),
            ignore_index=self.pad_id,
            label_smoothing=self.smoothing * classes / (classes - 1),
            reduction="sum",
        )
        return total / (target != self.pad_id).sum().clamp(min=1)

def noam_rate(step, d_model, warmup_steps=4000, factor=1.0):
    # Equation 3: d_model^-0.5 min(step^-0.5, step warmup^-1.5)
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

class NoamScheduler(LRScheduler):  # Sets the optimizer's learning rate by equation 3
    def __init__(self, optimizer, d_model, warmup_steps=4000, factor=1.0):
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.factor = factor
        super().__init__(optimizer)

    def get_lr(self):  # The rate for the coming step, for each parameter group
        rate = noam_rate(
            self.last_epoch + 1, self.d_model, self.warmup_steps, self.factor
        )
        return [rate for _ in self.optimizer.param_groups]

def train(model, batches, config, *, progress=True):  # One batch a step
    optimizer = Adam(
        model.parameters(), betas=config.betas, eps=config.adam_eps, fused=True
    )
    scheduler = NoamScheduler(
        optimizer,
        model.config.d_model,
        warmup_steps=config.warmup_steps,
        factor=config.factor,
    )
    criterion = LabelSmoothingLoss(config.label_smoothing, model.config.pad_id)
    snapshots = deque(maxlen=config.average_last or None)
    history = []
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        for step in report(config.steps, history, progress):
            history.append(accumulate(model, criterion, next(batches)))
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            left = config.steps - step
            if not left % config.snapshot_every:
                snapshots.append(snapshot(model))
    model.load_state_dict(average(list(snapshots)))
    return history

def accumulate(model, criterion, batch):  # Teacher forcing
    source, target_in, gold = batch.source, *shift(batch.target)
    loss = criterion(model(source, target_in), gold)
    loss.backward()
    return loss.item()

def snapshot(model):  # A copy of the weights as they are now
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}

def report(steps, history, progress):  # Count the steps, and say how it goes
    for step in range(1, steps + 1):
        yield step
        if progress and step % -(-steps // 5) == 0:
            print(f"step {step} of {steps}: loss {history[-1]:.2g}")

def average(states):  # The mean of each tensor over several state dicts
    return {
        name: mean([state[name] for state in states])
        for name, tensor in states[-1].items()
    }

def mean(tensors):  # The mean, summed in float64, in the dtype that came
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(tensors[0].dtype)

# --- Section 3: decoding (chapter 16) ---------------------------------
@torch.no_grad()
def greedy_decode(model, source, *, max_length=None):  # -> (batch, output)
    if max_length is None:
        max_length = source.size(-1) + 50
    max_length = min(max_length, model.config.max_length)
    with evaluation_mode(model):
        mask, _, _ = model.build_masks(source, source)
        memory = model.encode(source, mask)
        output = source.new_full((len(source), 1), model.config.bos_id)
        finished = torch.zeros_like(output, dtype=torch.bool)
        while output.size(1) <= max_length and not finished.all():
            _, target_mask, _ = model.build_masks(source, output)
            hidden = model.decode(output, memory, target_mask, mask)
            logits = model.output_projection(hidden[:, -1:])
            token = logits.argmax(dim=-1)
            token = token.masked_fill(finished, model.config.pad_id)
            output = torch.cat([output, token], dim=1)
            finished |= token == model.config.eos_id
    return output[:, 1:]

@contextmanager
def evaluation_mode(model):  # Within it no dropout
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training

# --- The copy task (chapters 11, 15) ----------------------------------
@dataclass(frozen=True)
class Batch:  # Pairs of sequences, padded on the right
    source: Tensor  # (batch, source)
    target: Tensor  # (batch, target)

def make_batch(sources, targets):  # Add BOS and EOS, pad, and stack
    return Batch(
        source=pad([[*source, EOS] for source in sources]),
        target=pad([[BOS, *target, EOS] for target in targets]),
    )

def pad(sequences):  # Stack sequences, the short ones filled up with PAD
    longest = max(map(len, sequences))
    return torch.tensor([[*ids, *[PAD] * (longest - len(ids))] for ids in sequences])

FIRST_SYMBOL = max(PAD, BOS, EOS) + 1

@dataclass(frozen=True)
class SymbolTask:  # Random symbols in, the same symbols out
    batch_size: ClassVar[int] = 64
    symbols: int = 10
    shortest: int = 5
    longest: int = 20

    @property
    def vocab_size(self):  # Symbols and special ids
        return FIRST_SYMBOL + self.symbols

    def batch(self, size, generator):  # `size` fresh pairs, drawn from the generator
        lengths = torch.randint(
            self.shortest, self.longest + 1, (size,), generator=generator
        )
        drawn = torch.randint(
            FIRST_SYMBOL, self.vocab_size, (size, self.longest), generator=generator
        )
        sources = [
            symbols[:length]
            for symbols, length in zip(drawn.tolist(), lengths.tolist(), strict=True)
        ]
        return make_batch(sources, sources)

def exact_match(output, target, *, pad_id):  # Share of them right
    length = max(output.size(1), target.size(1))
    output = F.pad(output, (0, length - output.size(1)), value=pad_id)
    target = F.pad(target, (0, length - target.size(1)), value=pad_id)
    return (output == target).all(dim=1).double().mean().item()

def greedy_exact_match(model, batch):  # Share that is right, whole
    target = batch.target[:, 1:]
    output = greedy_decode(model, batch.source, max_length=target.size(1))
    return exact_match(output, target, pad_id=model.config.pad_id)

def toy_model(task, seed):  # An untrained model of the task's shape
    config = TransformerConfig.tiny(task.vocab_size)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Transformer(config)

def train_toy(task, seed, *, progress=True, **changes):  # On fresh batches
    config = TrainingConfig.copy_task(seed=seed, **changes)
    model = toy_model(task, seed)
    draw = torch.Generator().manual_seed(seed)
    batches = iter(lambda: task.batch(task.batch_size, draw), None)
    return model, train(model, batches, config, progress=progress)

def demo(steps=500, seed=0):  # Train on the copy task and report greedy exact match
    task = SymbolTask()
    model, _ = train_toy(task, seed, steps=steps)
    fresh = torch.Generator().manual_seed(2**31 + seed)
    test = task.batch(1000, fresh)
    output = greedy_decode(model, test.source[:3])
    for source, copied in zip(test.source[:3], output, strict=True):
        print(f"  source  {symbols(source)}")
        print(f"  output  {symbols(copied)}")
    share = greedy_exact_match(model, test)
    print(f"greedy exact match on 1000 fresh sequences: {share:.3f}")

def symbols(ids):  # Ids as the symbols 0, 1, 2, ..., without special ids
    shown = [i - FIRST_SYMBOL for i in ids.tolist()]
    return " ".join(str(i) for i in shown if i >= 0)

if __name__ == "__main__":
    demo()
