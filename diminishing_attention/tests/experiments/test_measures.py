"""MoverScore against its definition."""

import math

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

pytest.importorskip("shared")

from ...bertsum.bert_text import make_tokenizer
from ...experiments.measures import encode, moverscore, ngram_states


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    """A small random BERT in a folder."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = make_tokenizer(["the cat sat on a mat", "a dog ran far away"], 60, 32)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, num_hidden_layers=6, num_attention_heads=2, intermediate_size=16)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, initializer_range=0.5, **sizes)
    BertModel(config).save_pretrained(folder)
    return str(folder)


def test_d13_states_are_the_mean_of_the_last_five_layers(encoder):
    """Of seven: the embeddings and the first layer are left out."""
    tokenizer, model = AutoTokenizer.from_pretrained(encoder), BertModel.from_pretrained(encoder).eval()
    with torch.no_grad():
        layers = model(**tokenizer("the cat sat", return_tensors="pt"), output_hidden_states=True).hidden_states
    assert len(layers) == 7
    mean = (layers[2] + layers[3] + layers[4] + layers[5] + layers[6])[0, 1:-1] / 5
    expected = torch.nn.functional.normalize(mean, dim=-1)
    torch.testing.assert_close(encode(["the cat sat"], encoder)[0][1].float(), expected)


@pytest.mark.parametrize("n", [1, 2])
def test_d13_moverscore_is_one_minus_the_cheapest_transport(encoder, n):
    """Against a linear programme for the transport, and 100 for equal texts."""
    pytest.importorskip("ot")
    optimize = pytest.importorskip("scipy.optimize")
    predictions, references = ["the cat sat on the mat", "a dog ran"], ["a cat sat", "a dog ran"]
    first, second = moverscore(predictions, references, encoder, n)
    assert second == pytest.approx(100) and first < 99
    known = [tokens for tokens, _ in encode(references, encoder)]
    sides = []
    for text in (predictions[0], references[0]):
        ((tokens, states),) = encode([text], encoder)
        idf = [math.log(3 / (1 + sum(token in row for row in known))) + 1e-3 for token in tokens]
        sides.append(ngram_states(states, idf, n))
    (mass, states), (other_mass, others) = sides
    cost = [[float((one - other).norm()) for other in others] for one in states]
    rows, columns = len(cost), len(cost[0])
    flat = [value for row in cost for value in row]
    leaving = [[float(i == k // columns) for k in range(rows * columns)] for i in range(rows)]
    arriving = [[float(j == k % columns) for k in range(rows * columns)] for j in range(columns)]
    found = optimize.linprog(flat, A_eq=leaving + arriving, b_eq=[*mass.tolist(), *other_mass.tolist()])
    assert first == pytest.approx(100 * (1 - found.fun), abs=1e-4)
