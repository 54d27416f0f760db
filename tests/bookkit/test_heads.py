"""Scores of attention heads, against slow versions and by hand."""

import math

import pytest
import torch

from bookkit import heads
from bookkit.explorers import two_digits
from bookkit.report import CheckFailed
from transformer import Transformer, TransformerConfig
from transformer.data.tokenizer import BytePairEncoding
from transformer.data.toy import EINER, ONES, ZEHNER, ZIGER, english, german
from transformer.recipes import toy_model

MEANINGS = {
    **dict(zip(EINER, ONES, strict=True)),
    "ein": "one",
    "hundert": "hundred",
    "tausend": "thousand",
    **dict(
        zip(
            ZEHNER,
            "ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
            " eighteen nineteen".split(),
            strict=True,
        )
    ),
    **dict(
        zip(
            ZIGER,
            "twenty thirty forty fifty sixty seventy eighty ninety".split(),
            strict=True,
        )
    ),
}


def random_maps(*sizes, seed=0, layers=2, count=3):
    draw = torch.Generator().manual_seed(seed)
    return [
        torch.randn(layers, count, n, m, generator=draw).softmax(-1) for n, m in sizes
    ]


@pytest.mark.parametrize(
    "number, expected",
    [
        (0, [0]),
        (7, [0]),
        (20, [0]),
        (21, [1, None, 0]),
        (300, [0, 1]),
        (999_999, [0, 1, 3, None, 2, 4, 5, 6, 8, None, 7]),
        (21_005, [1, None, 0, 2, 3]),
    ],
)
def test_alignments_by_hand(number, expected):
    assert heads.aligned(number) == expected


def test_every_piece_is_aligned_with_what_it_means():
    draw = torch.Generator().manual_seed(1)
    for number in torch.randint(1_000_000, (3000,), generator=draw).tolist():
        words, pieces, right = english(number), german(number), heads.aligned(number)
        assert len(right) == len(pieces)
        for piece, word in zip(pieces, right, strict=True):
            if word is None:
                assert piece == "und"
            else:
                assert MEANINGS[piece] == words[word]
        found = [word for word in right if word is not None]
        assert sorted(found) == list(range(len(words))), "each word once"


def test_swapped_are_the_ones_and_tens_that_change_places():
    table = heads.swapped(321_045)
    words, pieces = english(321_045), german(321_045)
    assert table.shape == (len(pieces) + 1, len(words) + 1)
    found = {(pieces[row], words[word]) for row, word in table.nonzero().tolist()}
    assert found == {
        ("ein", "one"),
        ("zwanzig", "twenty"),
        ("fünf", "five"),
        ("vierzig", "forty"),
    }
    assert not heads.swapped(20_300).any()


def test_places_by_hand():
    found = heads.places(["▁a", "▁b", "</s>"])
    assert found["token before"].nonzero().tolist() == [[1, 0], [2, 1]]
    assert found["itself"].nonzero().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert found["token after"].nonzero().tolist() == [[0, 1], [1, 2]]
    assert found["end mark"].nonzero().tolist() == [[0, 2], [1, 2]]


def test_copied_pieces_stand_once_on_either_side():
    source = ["▁In", "▁Writer", "▁2", "▁2", "▁press", "F", "4", "</s>"]
    written = ["▁Drücken", "F", "4", "▁in", "▁Writer", "▁2", "▁press", "</s>"]
    found = heads.copied(source, written).nonzero().tolist()
    assert found == [[1, 5], [2, 6], [4, 1]]


def test_shares_and_hits_equal_loops():
    (weights,) = random_maps((5, 7))
    wanted = torch.rand(5, 7, generator=torch.Generator().manual_seed(2)) > 0.7
    wanted[2] = False
    rows = [row for row in range(5) if wanted[row].any()]
    share, hit = heads.shares(weights, wanted), heads.hits(weights, wanted)
    assert share.shape == hit.shape == (2, 3, len(rows))
    for layer in range(2):
        for head in range(3):
            for i, row in enumerate(rows):
                line = weights[layer, head, row].tolist()
                most = max(range(7), key=line.__getitem__)
                total = sum(line[key] for key in range(7) if wanted[row, key])
                assert share[layer, head, i] == pytest.approx(total, abs=1e-6)
                assert hit[layer, head, i] == float(wanted[row, most])


def test_entropy_of_even_and_of_sharp_rows():
    even = torch.full((1, 1, 2, 8), 1 / 8)
    sharp = torch.eye(4)[None, None]
    assert heads.entropy(even).flatten().tolist() == pytest.approx([3, 3])
    assert heads.entropy(sharp).abs().max() == 0


def test_place_scores_are_means_over_all_rows():
    tokens = [["▁a", "b", "</s>"], ["▁a", "</s>"]]
    found = random_maps((3, 3), (2, 2))
    scores = heads.place_scores(found, tokens)
    before = found[0][..., 1, 0] + found[0][..., 2, 1] + found[1][..., 1, 0]
    torch.testing.assert_close(scores["token before"], before / 3)
    end = found[0][..., 0, 2] + found[0][..., 1, 2] + found[1][..., 0, 1]
    torch.testing.assert_close(scores["end mark"], end / 3)


def slow_clause_ratio(maps, sentences, layer, head):
    total = {True: 0.0, False: 0.0}
    for weights, tokens in zip(maps, sentences, strict=True):
        for d in [*range(-6, -1), *range(2, 7)]:
            found = {True: [], False: []}
            for q in range(len(tokens)):
                k = q + d
                if not 0 <= k < len(tokens):
                    continue
                pair = tokens[q].strip("▁"), tokens[k].strip("▁")
                if any(t in ",;:.()" or t == "</s>" for t in pair):
                    continue
                between = tokens[min(q, k) + 1 : max(q, k)]
                same = not any(t.strip("▁") in set(",;:.()") for t in between)
                found[same].append(weights[layer, head, q, k].item())
            if all(found.values()):
                for same, values in found.items():
                    total[same] += sum(values) / len(values)
    return total[True] / total[False]


def sentences(count=12):
    draw = torch.Generator().manual_seed(5)
    vocabulary = ["▁a", "b", "▁c", "▁", ",", ".", "▁d", "▁e"]
    return [
        [vocabulary[i] for i in torch.randint(8, (20,), generator=draw)] + ["</s>"]
        for _ in range(count)
    ]


def test_the_clause_ratio_equals_a_slow_one():
    tokens = sentences()
    found = random_maps(*[(21, 21)] * len(tokens))
    ratio = heads.clause_ratio(found, tokens)
    for layer, head in ((0, 0), (1, 2)):
        slow = slow_clause_ratio(found, tokens, layer, head)
        assert ratio[layer, head] == pytest.approx(slow, rel=1e-4)


def test_the_clause_ratio_of_distance_alone_is_1_and_of_clauses_is_not():
    tokens = sentences()
    place = torch.arange(21.0)
    score = -(place[None] - place[:, None]).abs()
    # By distance alone, whatever the sentence's length and its sharpness.
    far = [(score / (i + 1)).exp()[None, None] for i in range(12)]
    assert heads.clause_ratio(far, tokens).item() == pytest.approx(1, rel=1e-5)
    clauses = []
    for sentence in tokens:
        marks = torch.tensor([t.strip("▁") in set(",;:.()") for t in sentence])
        clause = marks.cumsum(0)
        same = clause[:, None] == clause[None, :]
        clauses.append((score / 3 + 2 * same).softmax(-1)[None, None])
    assert heads.clause_ratio(clauses, tokens).item() > 3


def test_clause_weights_by_hand():
    tokens = ["▁a", ",", "▁b", "▁c", "▁d", "</s>"]
    (weights,) = random_maps((6, 6))
    within, across = heads.clause_weights([weights], [tokens])
    # Only two apart there are both: b and d, and a and b, each way.
    assert within.shape == across.shape == (2, 2, 3)
    torch.testing.assert_close(within[0], weights[..., 4, 2])
    torch.testing.assert_close(within[1], weights[..., 2, 4])
    torch.testing.assert_close(across[0], weights[..., 2, 0])
    torch.testing.assert_close(across[1], weights[..., 0, 2])
    with pytest.raises(ValueError, match="none has words with a mark"):
        heads.clause_weights([weights], [["▁a", "▁b", "▁c", "▁d", "▁e", "</s>"]])


def test_the_check_of_the_exercise_tells_right_from_wrong():
    def right(weights):
        return weights.diagonal(-1, -2, -1).mean(-1)

    assert "2" in str(heads.check_before(right))
    for wrong in (
        lambda weights: weights.diagonal(1, -2, -1).mean(-1),
        lambda weights: weights.diagonal(0, -2, -1).mean(-1),
        lambda weights: weights.diagonal(-1, -2, -1).sum(-1) / weights.size(-1),
        lambda weights: right(weights).mean(0),
        lambda weights: None,
    ):
        with pytest.raises(CheckFailed):
            heads.check_before(wrong)


def test_maps_are_those_of_each_pair_alone_and_without_padding():
    config = TransformerConfig.tiny(20)
    torch.manual_seed(0)
    model = Transformer(config)
    pairs = [([3, 4, 5], [6]), ([7], [8, 9, 10, 11]), ([12, 13], [14])]
    found = list(heads.maps(model, pairs, batch_size=2))
    assert len(found) == 3
    for (source, target), weights in zip(pairs, found, strict=True):
        n, m = len(source) + 1, len(target) + 1
        assert weights["cross"].shape[2:] == (m, n)
        for table in weights.values():
            torch.testing.assert_close(table.sum(-1), torch.ones(table.shape[:-1]))
        (alone,) = heads.maps(model, [(source, target)])
        for kind in alone:
            torch.testing.assert_close(weights[kind], alone[kind])
    sources = [source for source, _ in pairs]
    encoder = heads.encoder_maps(model, sources, batch_size=2)
    for weights, own in zip(found, encoder, strict=True):
        torch.testing.assert_close(own, weights["encoder"])


def test_kept_weights_come_back_to_a_thousandth():
    (table,) = random_maps((4, 5))
    digits = two_digits((table * 1000).round().int().numpy())
    assert (heads.unpack(digits, 2, 3, 4, 5) - table).abs().max() <= 0.00051


def test_the_best_head_is_named_from_1():
    scores = torch.tensor([[0.1, 0.2], [0.9, 0.3]])
    assert heads.best(scores) == (1, 0)
    assert heads.label(heads.best(scores)) == "2.1"
    found = {heads.drawn(scores, seed) for seed in range(40)}
    assert found == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert heads.drawn(scores, 3) == heads.drawn(-scores, 3)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_a_removed_head_puts_out_nothing_and_comes_back(kind):
    from transformer.data.toy import NumberWords

    model = toy_model(NumberWords(), seed=0).eval()
    batch = NumberWords().pairs([21, 345])
    stack = model.encoder if kind == "encoder" else model.decoder
    name = "cross_attention" if kind == "cross" else "self_attention"
    part = getattr(stack.layers[1], name)
    before = model(batch.source, batch.target)
    seen = []

    def forward(module, inputs, output):
        width = inputs[0].size(-1) // 2
        own = inputs[0][..., width:] @ module.weight[:, width:].T
        seen.append(own.abs().max().item())

    handle = part.project_output.register_forward_hook(forward)
    with heads.removed(model, kind, (1, 1)):
        during = model(batch.source, batch.target)
    handle.remove()
    assert seen == [0.0]
    assert not torch.equal(during, before)
    assert torch.equal(model(batch.source, batch.target), before)
    assert math.isfinite(during.sum().item())


def test_looks_are_the_maps_and_scores_of_texts():
    texts = ["Save the file.", "Close the file, then save it."]
    tokenizer = BytePairEncoding.fit(texts * 3, 60)
    torch.manual_seed(3)
    model = Transformer(TransformerConfig.tiny(tokenizer.vocab_size)).eval()
    looks = heads.Looks.of(model, tokenizer, texts)
    ids, sentences = heads.encoded(tokenizer, texts)
    assert looks.sentences == sentences
    for ours, alone in zip(looks.maps, ids, strict=True):
        [expected] = heads.encoder_maps(model, [alone])
        torch.testing.assert_close(ours, expected)
    table = looks.table
    assert table.shape == (looks.maps[0].shape[0] * looks.maps[0].shape[1], 4)
    for column, scores in enumerate(looks.places.values()):
        torch.testing.assert_close(table[:, column], scores.flatten())
    torch.testing.assert_close(
        looks.clauses(slice(1, None)),
        heads.clause_ratio(looks.maps[1:], sentences[1:]),
    )
