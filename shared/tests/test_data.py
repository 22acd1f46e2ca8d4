"""data.py on small files in the published formats, and what it says about broken ones."""

import contextlib
import dataclasses
import gzip
import importlib
import io
import json
import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from shared import data
from shared.data import HUB, Example, in_sentences, load, read, split_sentences

ROW = {"document": ["The cat sat .", "It was wet ."], "summary": ["A wet cat ."]}
POS = [["DT", "NN", "VBD", "."], ["PRP", "VBD", "JJ", "."]]


def write(path, *rows):
    """Write rows (objects, or lines as they are) as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def one(tmp_path, **fields):
    """The example of a file of one row: ROW with other fields, those that are None left out."""
    row = {name: value for name, value in {**ROW, **fields}.items() if value is not None}
    return load(write(tmp_path / "data.jsonl", row))[0]


def test_lists_and_strings_both_pairs_of_names_and_optional_fields(tmp_path):
    listed = one(tmp_path)
    assert listed == Example("data-1", ROW["document"], ROW["summary"], [ROW["summary"]])
    assert (listed.source, listed.target) == ("The cat sat . It was wet .", "A wet cat .")
    texts = {"source": "One. Two. Three.", "target": "One. Two."}
    whole = one(tmp_path, document=None, summary=None, **texts)
    # a string is never split
    assert (whole.document, whole.summary) == (["One. Two. Three."], ["One. Two."])
    # of two sources the document, of two targets the summary
    both = one(tmp_path, source="a news site", target="none")
    assert (both.source, both.target) == ("The cat sat . It was wet .", "A wet cat .")
    fields = {"id": 7, "title": "Wet", "tree": "( Root (leaf 1) )", "salient": [False, True]}
    more = {"references": [ROW["summary"], "The cat got wet ."], "pos": [POS[0], "PRP VBD JJ ."]}
    read = {"id": "7", "references": [ROW["summary"], ["The cat got wet ."]], "pos": POS}
    assert one(tmp_path, **fields, **more) == Example(**ROW | fields | read)


def test_white_space_is_single_blanks_and_wordless_sentences_go_with_their_labels(tmp_path):
    document = [" The cat\n sat .", " \n", "It\u00a0was  wet ."]
    texts = {"document": document, "summary": ["", "A wet cat ."]}
    labels = {"salient": [0, 1, 1], "pos": ["DT NN VBD .", "", "PRP VBD JJ ."]}
    example = one(tmp_path, **texts, **labels)
    assert example.document == ROW["document"] and example.summary == ROW["summary"]
    assert example.salient == [False, True] and example.salient[1] is True
    assert example.pos == POS
    example = one(tmp_path, document=["cafe\u0301 ."], references=[["e\u0301"], "i\u0308"])
    # composed
    assert example.source == "caf\u00e9 ." and example.references == [["\u00e9"], ["\u00ef"]]


def test_a_split_has_several_names(tmp_path):
    write(tmp_path / "val.jsonl", ROW)
    assert len({len(load(tmp_path, split)) for split in ("validation", "valid", "val", "dev")}) == 1
    # a file: whatever the split
    assert load(tmp_path / "val.jsonl", "train") == load(tmp_path, "dev")
    (tmp_path / "more.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROW).encode()))
    assert load(tmp_path, "more")[0].id == "more-1"
    (tmp_path / "train.csv").touch()
    there = "it has more.jsonl.gz, train.csv, val.jsonl: choose another --split"
    for split in ("test", "train"):
        with pytest.raises(ValueError, match=f"has no {split}.jsonl; {there}"):
            load(tmp_path, split)
    write(tmp_path / "dev.jsonl", ROW, ROW)
    assert len(load(tmp_path, "dev")) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"document": "a"', r"data.jsonl:2: malformed JSON .*put one object on each line"),
        ('["a", "b"]', r"data.jsonl:2: a line must be one JSON object, got list"),
        # the line's own fields, by the line's own names
        ({"text": "a", "target": "b"}, r"data.jsonl:2: needs fields .*, has text, target$"),
        ({"source": "a", "references": []}, r"data.jsonl:2: needs .*, has source, references$"),
        ({"source": "a", "target": ""}, r"data.jsonl:2: field 'target' is empty"),
        ({"source": None, "target": "b"}, r"data.jsonl:2: field 'source' needs .*, got None"),
        ({"sentences": ["a"], "target": 1}, r"data.jsonl:2: field 'target' needs .*, got 1"),
        (
            {**ROW, "summary": ["a", None]},
            r"data.jsonl:2: field 'summary' needs a string or a list of strings, got ..a', None",
        ),
        (
            {**ROW, "document": []},
            r"data.jsonl:2: field 'document' is empty; give it text or remove the line",
        ),
        (
            {**ROW, "salient": [True]},
            r"data.jsonl:2: field 'salient' needs a list of 2 labels, got .True.",
        ),
        (
            {**ROW, "salient": ["true", "false"]},
            r"data.jsonl:2: field 'salient' needs true or false for each sentence",
        ),
        ({**ROW, "references": ["", "a"]}, r"data.jsonl:2: field 'references' is empty"),
        ("[" * 30_000, r"data.jsonl:2: malformed JSON"),
        (
            {**ROW, "pos": ["DT NN VBD .", "PRP VBD"]},
            r"data.jsonl:2: field 'pos' needs a tag for each word of 'It was",
        ),
        (
            {**ROW, "pos": [None, None]},
            r"data.jsonl:2: field 'pos' needs a tag for each word of 'The cat",
        ),
        (
            {"source": ["a"], "target": ["b"], "source_labels": [0, 1]},
            r"data.jsonl:2: field 'source_labels' needs a list of 1 labels",
        ),
        ({**ROW, "tree": ["( Root (leaf 1) )"]}, r"data.jsonl:2: field 'tree' needs a string"),
    ],
)
def test_broken_lines_are_refused_by_file_line_and_field(tmp_path, line, message):
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path / "data.jsonl", ROW, line))


def test_files_and_names_that_are_no_data_are_refused(tmp_path):
    write(tmp_path / "twice.jsonl", {**ROW, "id": "x"}, ROW, {**ROW, "id": "x"})
    write(tmp_path / "empty.jsonl", "")
    (tmp_path / "latin.jsonl").write_bytes(json.dumps(ROW).encode() + "é".encode("latin-1"))
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROW).encode())[:-9])
    for name, message in [
        ("cut.jsonl.gz", "gz: .*no whole .gz"),
        ("twice.jsonl", "twice.jsonl:3: the id 'x' comes twice"),
        ("empty.jsonl", "empty.jsonl: split 'train' is empty"),
        ("latin.jsonl", "latin.jsonl: not UTF-8 .*iconv"),
        ("cnndm", "no file or folder '.*cnndm'; known names are toy, cnn_dailymail, xsum"),
    ]:
        with pytest.raises(ValueError, match=message):
            load(tmp_path / name)


def test_scitldr_target_is_several_references_and_the_label_marks_the_salient_sentence(tmp_path):
    row = {"paper_id": "rJlnfaNYvB", "title": "P", "source": ["We prune .", "", "It is fast ."]}
    row |= {"source_labels": [0, 0, 1], "target": ["Fast pruning .", "Pruning is fast . Very ."]}
    write(tmp_path / "dev.jsonl", row)
    references = [["Fast pruning ."], ["Pruning is fast . Very ."]]
    (example,) = load(tmp_path, "validation")
    expected = Example(row["paper_id"], ["We prune .", "It is fast ."], references[0], references)
    assert example == dataclasses.replace(expected, salient=[False, True], title="P")
    texts = {"document": None, "summary": None, "source": ["a"]}
    for more, references in (
        ({"target": ["b", "c"]}, [["b", "c"]]),  # without its labels a list is one reference
        ({"target": "b c", "source_labels": [1]}, [["b c"]]),
    ):
        assert one(tmp_path, **texts, **more).references == references


def test_gum_takes_the_tree_beside_the_file(tmp_path):
    gum = {"id": "GUM_iodine", "sentences": ["Children lack iodine ."], "summary": "Iodine ."}
    tree = "( Root (span 1 2)\n  ( Nucleus (leaf 1) (text _!Children lack iodine ,_!) )\n)\n"
    write(tmp_path / "dev" / "GUM_iodine.dis", tree[:-1])
    write(tmp_path / "dev.jsonl", gum)
    (example,) = load(tmp_path, "dev")
    assert example.tree == tree and example.source == "Children lack iodine ."
    # a file by itself finds it, too
    assert load(tmp_path / "dev.jsonl") == read([tmp_path / "dev.jsonl"]) == [example]
    write(tmp_path / "secret.dis", tree)  # no id leaves its folder
    names = ("other", "../secret", f"/{tmp_path}/secret", "n" * 300, "a\0b")
    write(tmp_path / "dev.jsonl", gum | {"tree": "own"}, *(gum | {"id": name} for name in names))
    assert [row.tree for row in load(tmp_path, "dev")] == ["own", *[None] * 5]


def test_parallel_text_as_multi30k_publishes_it(tmp_path):
    for stem, lines in (("train", 3), ("val", 2), ("test_2016_flickr", 1)):
        for language in ("en", "de"):
            text = "".join(f"{language} {n} .\n" for n in range(lines)).encode()
            (tmp_path / f"{stem}.{language}.gz").write_bytes(gzip.compress(text))
    name = f"{tmp_path}:en-de"
    sizes = {split: len(load(name, split)) for split in ("train", "validation", "test_2016_flickr")}
    assert sizes == {"train": 3, "validation": 2, "test_2016_flickr": 1}
    (tmp_path / "odd.en").write_bytes("a\u2028b\x0bc\n".encode())
    (tmp_path / "odd.de").write_bytes("d\x85e\n".encode())
    odd = load(name, "odd")[0]
    # of a pair of lines each is one text
    assert (odd.document, odd.summary) == (["a b c"], ["d e"])
    (tmp_path / "odd.en").write_text("a\nb\n")
    said = "odd.en:2: this line or that of .*odd.de is empty or missing"
    with pytest.raises(ValueError, match=said):
        load(name, "odd")


HUB_ROWS = {  # name: (row as published, document, summary)
    "cnn_dailymail": (
        {"article": "1 . 2 .", "highlights": "A .\nB ."},
        ["1 . 2 ."],
        ["A .", "B ."],
    ),
    "xsum": ({"document": "1 .\n2 .", "summary": "A .", "id": "x"}, ["1 .", "2 ."], ["A ."]),
    "samsum": ({"dialogue": "I: 1 .\r\nU: 2 .", "summary": "A ."}, ["I: 1 .", "U: 2 ."], ["A ."]),
    "arxiv": ({"article": "1 .\n 2 .", "abstract": "A .\n B ."}, ["1 .", "2 ."], ["A .", "B ."]),
    "wmt14-en-de": ({"translation": {"de": "Eins .", "en": "One ."}}, ["One ."], ["Eins ."]),
}


@pytest.mark.parametrize("name", HUB)
def test_hub_data_sets_by_name(monkeypatch, name):
    row, document, summary = HUB_ROWS[name]
    hub = mock.Mock(**{"load_dataset.return_value": [row] * 3})
    monkeypatch.setitem(sys.modules, "datasets", hub)
    examples = load(name, "val", limit=2)
    # XSum was published as a script, which nothing runs any more.
    revision = {"revision": "refs/convert/parquet"} if name == "xsum" else {}
    hub.load_dataset.assert_called_once_with(*HUB[name][:2], split="validation", **revision)
    assert [example.id for example in examples] == ["validation-0", "validation-1"]
    assert (examples[0].document, examples[0].summary) == (document, summary)


def test_hub_data_out_of_reach_names_the_command_that_gets_it(monkeypatch):
    hub = mock.Mock(**{"load_dataset.side_effect": ConnectionError("offline mode is enabled")})
    monkeypatch.setitem(sys.modules, "datasets", hub)
    command = r"To get it: pip install datasets; .*load_dataset\('abisee/cnn_dailymail', '3.0.0', "
    said = f"cnn_dailymail: no 'test' split .*offline mode .*{command}"
    with pytest.raises(ValueError, match=said):
        load("cnn_dailymail", "test")


def test_a_folder_with_train_alone_gives_a_twentieth_for_validation(tmp_path, capsys):
    """JSON lines and parallel text."""
    rows = [{"source": f"en {n} .", "target": f"de {n} ."} for n in range(45)]
    write(tmp_path / "train.jsonl", *rows)
    write(tmp_path / "train.en", *(row["source"] for row in rows))
    write(tmp_path / "train.de", *(row["target"] for row in rows))
    for name, end in ((tmp_path, "jsonl"), (f"{tmp_path}:en-de", "en")):
        train, validation = load(name, "train"), load(name, "validation")
        pairs = [(row.source, row.target) for row in validation]
        assert pairs == [("en 19 .", "de 19 ."), ("en 39 .", "de 39 .")] and len(train) == 43
        assert not {row.id for row in train} & {row.id for row in validation}
        assert f"no validation.{end}: every twentieth line of train" in capsys.readouterr().err
        with pytest.raises(ValueError, match=f"has no test.{end}; it has train.de, train.en, "):
            load(name, "test")
    write(tmp_path / "test.jsonl", ROW)
    assert len(load(tmp_path, "train")) == 43 and len(load(tmp_path, "test")) == 1
    write(tmp_path / "dev.jsonl", ROW)
    assert len(load(tmp_path, "train")) == 45 and len(load(tmp_path, "validation")) == 1


def test_texts_are_lines_of_files_and_of_standard_input_in_order(tmp_path, monkeypatch):
    def stdin(content: bytes):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="latin-1"))

    (tmp_path / "notes.txt").write_bytes(b"\xef\xbb\xbfOne  text.\r\n\n \nTwo\xe2\x80\xa8texts.")
    rows = {"source": ["A b .", "C ."]}, {"id": 7, "document": "D", "summary": None}
    write(tmp_path / "rows.jsonl", *rows)
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(b'{"source": "E"}'))
    stdin('\ufeffzwölf\n\n{"source": "F"}\n'.encode())
    names = tmp_path / "notes.txt", "-", tmp_path / "rows.jsonl", tmp_path / "packed.jsonl.gz"
    examples = read(names)
    expected = {"notes-1": "One text.", "notes-2": "", "notes-3": "", "notes-4": "Two texts."}
    # standard input is text
    expected |= {"stdin-1": "zwölf", "stdin-2": "", "stdin-3": '{"source": "F"}'}
    expected |= {"rows-1": "A b . C .", "7": "D", "packed-1": "E"}
    assert [(example.id, example.source) for example in examples] == list(expected.items())
    assert examples[7].document == ["A b .", "C ."]
    assert examples[1].document == examples[0].references == []
    stdin(b"\n")
    assert [(example.id, example.document) for example in read([])] == [("stdin-1", [])]
    path = write(tmp_path / "a.jsonl", ROW, ROW | {"id": "x"})
    # references stay
    assert read([path])[1] == load(path)[1] and read([], path, limit=1) == load(path)[:1]
    texts = [write(tmp_path / folder / "n.txt", "x") for folder in ("one", "other")]
    stdin(b"\xff")
    for files, name, said in (
        ([path], "toy", "give files, or --data or --split, not both"),
        ([tmp_path], "", f"{tmp_path} is a folder: give a file, or --data"),
        ([], "", "-: not UTF-8"),
        # outputs are matched by ids
        (texts, "", "other/n.txt:1: the id 'n-1' comes twice.*rename"),
    ):
        with pytest.raises(ValueError, match=said):
            read(files, name)
    monkeypatch.setattr(sys, "stdin", None)  # a process without a console
    with pytest.raises(ValueError, match="^there is no standard input: give files$"):
        read([])


@pytest.fixture
def english(monkeypatch):
    """The data that nltk.download("punkt_tab") gets; here it knows one abbreviation."""
    nltk_punkt = importlib.import_module("nltk.tokenize.punkt")
    known = nltk_punkt.PunktParameters()
    known.abbrev_types.add("mr")
    tokenizer = nltk_punkt.PunktSentenceTokenizer(known)
    monkeypatch.setattr(nltk_punkt, "PunktTokenizer", lambda language: tokenizer)
    data.punkt.cache_clear()
    yield
    data.punkt.cache_clear()


def test_sentences_are_those_of_punkt():
    text = 'One two.  Three? Four!\nFive\nHe said "It rains." Then he left. (We sat.) So it was.'
    parts = ["One two.", "Three?", "Four!", "Five", 'He said "It rains."', "Then he left."]
    assert split_sentences(text) == [*parts, "(We sat.)", "So it was."]
    assert split_sentences("no end of 3.5 kg") == ["no end of 3.5 kg"]
    assert split_sentences(" \n") == []


def test_documents_are_split_with_punkts_english_and_scores_never_are(english, tmp_path):
    """Or a score would depend on what the machine has downloaded."""
    text = "Mr. Ek left. He ran."
    whole = one(tmp_path, document=text)
    assert in_sentences([whole])[0].document == ["Mr. Ek left.", "He ran."]
    assert split_sentences(text) == ["Mr.", "Ek left.", "He ran."]


def test_without_punkts_english_documents_are_split_by_what_has_learned_nothing(monkeypatch):
    absent = mock.Mock(side_effect=LookupError("Resource punkt_tab not found."))
    monkeypatch.setattr("nltk.tokenize.punkt.PunktTokenizer", absent)
    data.punkt.cache_clear()
    assert split_sentences("Mr. Ek left.", trained=True) == ["Mr.", "Ek left."]
    absent.assert_called_once_with("english")
    data.punkt.cache_clear()


def test_only_whole_documents_without_labels_are_split(tmp_path):
    text = "It rained. We left."
    whole = one(tmp_path, document=text)
    split = dataclasses.replace(whole, document=["It rained.", "We left."])
    assert in_sentences([whole]) == [split]
    # who gives a list has split
    fields = {"salient": [False]}, {"pos": ["PRP VBD PRP VBD"]}, {"document": [text * 61]}
    kept = [one(tmp_path, **{"document": text} | own) for own in fields]
    assert in_sentences(iter(kept)) == kept and len(kept) == 3
    # or a paragraph would count as a sentence
    lines = one(tmp_path, document="One is here. Two.\nThree.")
    assert in_sentences([lines])[0].document == ["One is here.", "Two.", "Three."]


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("word " * 61, True),
        ("word " * 60, False),
        ("word " * 61 + "end. Next.", False),
        ("今天下雨。我们走。" * 23, True),  # Punkt does not know these stops
        ("Twitter 今天下雨\n" + "雨" * 200, True),
        ("雨" * 199, False),
    ],
)
def test_a_long_string_in_which_no_sentence_ends_is_refused(tmp_path, text, is_refused):
    """Or a document would silently be one sentence."""
    said = "document data-1: no end of a sentence .* give a list"
    with pytest.raises(ValueError, match=said) if is_refused else contextlib.nullcontext():
        in_sentences([one(tmp_path, document=text)])


def test_rows_of_nested_numbers_become_columns():
    own = {"system": "a", "rouge1": {"mean": 1 / 3, "low": 0}, "seed": 3}
    file = io.StringIO()
    data.write_csv(file, iter([own, {"system": "b, c", "p": None}]))
    assert file.getvalue() == 'system,rouge1_mean,rouge1_low,seed,p\na,0.333333,0,3,\n"b, c",,,,\n'


def test_rows_read_back_the_same(tmp_path):
    path = tmp_path / "out.jsonl"
    rows = [{"id": "ä", "prediction": "a\u2028b"}, {"id": "2", "prediction": ""}]
    with path.open("x", encoding="utf-8", newline="\n") as file:
        data.write_jsonl(file, iter(rows))
    assert data.read_jsonl(path) == rows and "ä" in path.read_text(encoding="utf-8")
    with pytest.raises(ValueError):
        data.write_jsonl(io.StringIO(), [{"x": float("nan")}])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_line_breaks_end_sentences_in_documents_and_references(tmp_path, end):
    lines, short = ["Ann: are you coming", "Bo: yes at six"], ["Bo comes .", "Ann asks ."]
    references = [end.join(short), end.join(short[::-1])]
    (example,) = in_sentences([one(tmp_path, document=end.join(lines), references=references)])
    assert example.document == lines and example.references == [short, short[::-1]]


def test_an_output_must_not_exist_unless_it_is_overwritten_at_the_end(tmp_path):
    path = tmp_path / "new" / "out.txt"
    with data.open_output(path) as file:
        file.write("ä\n")
    assert path.read_bytes() == "ä\n".encode()
    # a device, too, would become a file
    for taken, overwrite, said in (
        (path, False, "exists: choose another name"),
        (tmp_path, True, "exists"),
        (Path(os.devnull), True, "exists"),
        (tmp_path / "out.jsonl.gz", False, "leave out .gz"),
    ):
        with pytest.raises(ValueError, match=said), data.open_output(taken, overwrite):
            pytest.fail("must not be opened")
    with pytest.raises(KeyboardInterrupt), data.open_output(path, overwrite=True) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert path.read_bytes() == "ä\n".encode()
    with data.open_output(path, overwrite=True) as file:
        file.write("new")
    assert path.read_text() == "new" and list(path.parent.iterdir()) == [path]
