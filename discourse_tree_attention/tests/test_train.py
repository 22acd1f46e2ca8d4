"""Training: it learns, resumes bit for bit, and refuses bad input with a clear error."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file

from ..train import (
    PRESETS,
    TrainConfig,
    Training,
    batch_indices,
    choose_documents,
    extract,
    learning_rate,
    load_corpus,
    load_run,
    main,
    parse,
    read_config,
    read_documents,
    score_documents,
    train,
)

SMALL = [
    "--data",
    "toy:signal=0,count=24",
    "--steps",
    "6",
    "--batch",
    "5",
    "--evaluate-every",
    "2",
    "--head-width",
    "8",
]
SMALL += ["--inner", "16"]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A finished small run."""
    folder = tmp_path_factory.mktemp("runs") / "tree"
    main(["--out", str(folder), *SMALL])
    return folder


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_run_folder_is_complete(run_dir):
    run = load_run(run_dir)
    assert run.config.attention == "c_tree_nuclearity" and not run.model.training
    rows = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
    assert rows[0]["documents"] == 24 and rows[0]["documents_cut"] == 0
    assert [row["step"] for row in rows[1:]] == [2, 4, 6]
    assert not list(run_dir.glob("*.tmp*"))


def test_the_best_rouge_2_stays(run_dir):
    """Released code: of all evaluations the weights with the best ROUGE-2 are kept; the first of equal ones."""
    state = torch.load(run_dir / "checkpoint.pt", weights_only=False)
    rows = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()][1:]
    best = max(rows, key=lambda row: row["rouge2"])
    assert state["best"]["step"] == best["step"]
    for name, tensor in weights(run_dir).items():
        assert torch.equal(tensor, state["best"]["weights"][name])


def test_resume_equals_a_run_that_was_never_stopped(run_dir, tmp_path, monkeypatch):
    """Killed in step 5, two steps after the checkpoint was due, and gone on with: the same weights and log."""
    update = Training.update

    def killed(self):
        if self.step == 4:
            raise KeyboardInterrupt
        return update(self)

    monkeypatch.setattr(Training, "update", killed)
    with pytest.raises(SystemExit, match="--resume"):
        main(["--out", str(tmp_path / "run"), *SMALL])
    monkeypatch.undo()
    (tmp_path / "run" / "log.jsonl").open("a").write('{"step": 5}\n')
    main(["--out", str(tmp_path / "run"), "--resume"])
    for name, tensor in weights(run_dir).items():
        assert torch.equal(tensor, weights(tmp_path / "run")[name])
    assert (tmp_path / "run" / "log.jsonl").read_text() == (run_dir / "log.jsonl").read_text()


def test_resume_of_a_finished_run_changes_nothing(run_dir):
    before = (run_dir / "model.safetensors").read_bytes()
    main(["--out", str(run_dir), "--resume"])
    assert (run_dir / "model.safetensors").read_bytes() == before


def test_another_seed_gives_other_weights(run_dir, tmp_path):
    train(TrainConfig(**vars(read_config(run_dir)) | {"seed": 1}), tmp_path / "run")
    name = "layers.0.inner.weight"
    assert not torch.equal(weights(run_dir)[name], weights(tmp_path / "run")[name])


def test_it_learns_what_the_tree_says(tmp_path):
    """Of stories whose text says nothing about salience, a small D-Tree model finds the main facts.

    Here it is 6.5 times as good as chance; without attention 3.0, with shuffled trees 2.5 (positions help those).
    """
    config = TrainConfig(data="toy:signal=0,count=300", attention="d_tree", steps=150, evaluate_every=150, warmup=30)
    train(config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    corpus, _, _ = load_corpus(config, "test", run.encoder, tmp_path / "cache", False, limit=100)
    picked, chance = 0.0, 0.0
    for document, scores in zip(corpus.documents, score_documents(run.model, corpus), strict=True):
        best = np.argsort(-scores)[: document.labels.sum()]
        picked += document.labels[best].mean()
        chance += document.labels.mean()
    assert picked > 4.5 * chance


def test_d11_learning_rate_is_a_factor():
    """D11, Section 5.1: factor times min(n^-0.5, n warmup^-1.5): rising to factor / sqrt(warmup), then falling."""
    config = TrainConfig(learning_rate=0.01, warmup=400)
    assert learning_rate(399, config) == pytest.approx(0.01 / 20)
    assert learning_rate(0, config) == pytest.approx(0.01 / 400**1.5)
    assert learning_rate(1599, config) == pytest.approx(0.01 / 40)


def test_d12_positive_weight_is_negatives_per_positive_of_the_training_data(run_dir):
    """D12: over all training documents, of the level's own units."""
    config = read_config(run_dir)
    run = load_run(run_dir)
    corpus, _, _ = load_corpus(config, "train", run.encoder, run_dir / "cache", False)
    labels = sum((document.labels.tolist() for document in corpus.documents), [])
    row = json.loads((run_dir / "log.jsonl").read_text().splitlines()[0])
    assert row["positive_weight"] == pytest.approx(labels.count(False) / labels.count(True))


def test_batches_cover_each_document_once_an_epoch():
    sizes = [5, 9, 1, 7, 3, 3, 8]
    epochs = [batch_indices(sizes, 3, seed=0, epoch=epoch) for epoch in (0, 0, 1)]
    assert epochs[0] == epochs[1] != epochs[2]
    assert sorted(sum(epochs[2], [])) == list(range(7))
    assert [sorted(sizes[i] for i in batch) for batch in sorted(epochs[0], key=lambda b: min(sizes[i] for i in b))] == [
        [1, 3, 3], [5, 7, 8], [9],
    ]  # fmt: skip


def ids(config, split):
    """Ids of a split's documents."""
    splits = ("train", "validation") if config.folds else (split,)
    examples, _ = read_documents(config.data, splits, config.level, None)
    return {examples[i].id for i in choose_documents(config, split, len(examples))}


def test_folds_part_the_corpus():
    config = TrainConfig(data="toy:count=15", folds=5)
    tests = []
    for fold in range(5):
        own = TrainConfig(**vars(config) | {"fold": fold})
        parts = [ids(own, split) for split in ("train", "validation", "test")]
        assert [len(part) for part in parts] == [18, 6, 6] and len(set.union(*parts)) == 30
        tests.append(parts[2])
    assert len(set.union(*tests)) == 30


def test_subsets_are_drawn_by_their_seed():
    """Section 5.2, low resource: another seed is another subset; validation and test data stay whole."""
    one, two = (TrainConfig(data="toy:count=50", subset=10, subset_seed=seed) for seed in (0, 1))
    assert len(ids(one, "train")) == len(ids(two, "train")) == 10 and ids(one, "train") != ids(two, "train")
    assert len(ids(one, "test")) == 50
    assert choose_documents(TrainConfig(subset=60), "train", 50) == list(range(50))  # or all that there is


def test_documents_are_cut_at_the_word_pieces_and_counted(run_dir):
    run = load_run(run_dir)
    config = TrainConfig(**vars(run.config) | {"max_pieces": 40})
    corpus, _, cut = load_corpus(config, "test", run.encoder, run_dir / "cache", False)
    for document in corpus.documents:
        assert sum(map(len, run.encoder.tokenizer(document.units).input_ids)) <= 40
    assert cut == len(corpus) == 24


def test_extract_takes_six_edus_or_three_sentences():
    """Section 5.1."""
    assert TrainConfig(level="edu").count == 6 and TrainConfig(level="sentence").count == 3
    assert TrainConfig(level="edu", units_taken=2).count == 2


def test_extracted_sentences_are_those_of_the_document(run_dir):
    run = load_run(run_dir)
    corpus, examples, _ = load_corpus(run.config, "test", run.encoder, run_dir / "cache", False)
    for example, document, scores in zip(examples, corpus.documents, score_documents(run.model, corpus), strict=True):
        words = " ".join(example.document)
        assert all(unit in words for unit in document.units)
        summary = extract(document, scores, run.config)
        assert 0 < len(summary) <= len(example.document)
        assert all(any(set(part.split()) <= set(s.split()) for s in example.document) for part in summary)


def test_bf16_trains(tmp_path):
    main(["--out", str(tmp_path / "run"), *SMALL, "--mixed-precision", "bf16"])
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run").values())


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset, tmp_path):
    config, *_ = parse(["--out", str(tmp_path), "--preset", preset])
    assert config.model_config(768).attention == config.attention
    if preset == "paper":
        assert (config.learning_rate, config.batch, config.warmup, config.steps) == (0.01, 32, 2400, 24_000)


def test_d16_sizes_keep_the_papers_proportions():
    """D16: at D = 768 Section 5.1 exactly; at another width as many times the width."""
    for width, default, balanced in ((768, (64, 3072), (512, 512)), (384, (64, 1536), (256, 256))):
        for given, sizes in ((False, default), (True, balanced)):
            model = TrainConfig(balanced=given).model_config(width)
            assert (model.width, model.head_width, model.inner) == (width, *sizes)
    model = TrainConfig(balanced=True, head_width=32, inner=7).model_config(768)
    assert (model.head_width, model.inner) == (32, 7)


# Bad input


def test_a_run_of_other_values_is_not_gone_on_with(run_dir):
    """Also from Python, and so for the tables: the folder's run is the one that was asked for, or an error."""
    with pytest.raises(ValueError, match="holds a run with another steps, seed: choose another folder"):
        train(TrainConfig(**vars(read_config(run_dir)) | {"steps": 9, "seed": 3}), run_dir, resume=True)


def test_bad_data_leaves_nothing_behind(tmp_path):
    """A tree of another text in the last document: named, and no encoder, cache or config is written."""
    row = {"id": "d1", "document": ["It rained ."], "summary": ["It rained ."], "edus": ["It rained ."]}
    tree = "( Root (leaf 1) (text _!It rained ._!) )"
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "validation"):
        bad = row | {"tree": tree[:-2] if split == "validation" else tree}
        (folder / f"{split}.jsonl").write_text(json.dumps(bad) + "\n")
    with pytest.raises(SystemExit, match=f"error: {folder}: d1:1: .*is the file cut"):
        main(["--out", str(tmp_path / "run"), "--data", str(folder)])
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten(run_dir):
    with pytest.raises(SystemExit, match="already holds a run: add --resume"):
        main(["--out", str(run_dir), *SMALL])
    with pytest.raises(SystemExit, match="--resume keeps the values.*leave out steps"):
        main(["--out", str(run_dir), "--resume", "--steps", "9"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--attention", "tree"], "attention is 'tree'; use one of dot"),
        (["--level", "word"], "level is 'word'; use one of edu, sentence"),
        (["--steps", "0"], "steps is 0; it must be at least 1"),
        (["--folds", "2"], "need 3 folds or more"),
        (["--folds", "5", "--fold", "5"], "fold 5 of 5 folds"),
        (["--shuffle-trees", "true", "--attention", "dot"], "dot attention reads no tree"),
        (["--encoder", "/no/encoder", "--data", "toy:count=3"], "no encoder '/no/encoder'"),
        (["--data", "/no/data"], "no file or folder '/no/data'"),
    ],
)
def test_bad_values_end_with_one_line(flags, message, tmp_path):
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        main(["--out", str(tmp_path / "run"), *flags])
    assert not (tmp_path / "run" / "config.json").exists()


def test_unknown_and_mistyped_flags(tmp_path, capsys):
    for flags in (["--attentoin", "dot"], ["--steps", "many"]):
        with pytest.raises(SystemExit) as error:
            main(["--out", str(tmp_path), *flags])
        assert error.value.code == 2
    assert "'many' is not int" in capsys.readouterr().err


def test_broken_run_folders_are_named(run_dir, tmp_path):
    with pytest.raises(ValueError, match="config.json does not exist.*no run folder"):
        load_run(tmp_path)
    config = json.loads((run_dir / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"package": "l0drop"}))
    with pytest.raises(ValueError, match="belongs to the package 'l0drop'"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config)[:50])
    with pytest.raises(ValueError, match="config.json is cut off or not JSON"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="model.safetensors does not exist: the run is not finished"):
        load_run(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((run_dir / "model.safetensors").read_bytes()[:500])
    with pytest.raises(ValueError, match="no encoder"):
        load_run(tmp_path)
    (tmp_path / "encoder").symlink_to(run_dir / "encoder")
    with pytest.raises(ValueError, match="model.safetensors is cut off or does not fit"):
        load_run(tmp_path)


def test_a_document_too_long_for_the_tables_is_cut_and_counted(tmp_path):
    """The position table and the weights of Dense and Random have an end; longer documents lose their last units."""
    config = TrainConfig(data="toy:count=4", attention="dense", max_units=10, steps=1, evaluate_every=1)
    train(config, tmp_path / "run")
    row = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[0])
    assert row["documents_cut"] == 4
