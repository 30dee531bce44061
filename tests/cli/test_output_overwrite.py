"""Commands overwrite neither their input nor files of a run."""

from __future__ import annotations

import pytest

from focuse.errors import FocuseError
from focuse.storage.atomic import check_writable


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["predict", "--queries"], "q.tsv"),
        (["discover", "--relation", "r0", "--tails-from"], "q.csv"),
        (["predict-weights"], "q.tsv"),
    ],
)
def test_input_file_is_not_overwritten(refused, trained, tmp_path, words, name):
    path, (verb, *options) = tmp_path / name, words
    path.write_text("e1\tr0\te2\n", encoding="utf-8")
    assert "this file is also read" in refused(verb, trained.folder, *options, path, "--out", path)
    assert path.read_text(encoding="utf-8") == "e1\tr0\te2\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["discover", "--top", "3"], "entities.parquet"),
        (["clusters", "--n-clusters", "2"], "entities.parquet"),
        (["export"], "relations.parquet"),
    ],
)
def test_file_of_a_run_is_not_overwritten(refused, trained, words, name):
    path, (verb, *options) = trained.folder / name, words
    before = path.read_bytes()
    assert "this file is a part of the run" in refused(verb, trained.folder, *options, "--out", path)
    assert path.read_bytes() == before


def test_every_file_of_a_run_is_protected(trained, tmp_path):
    found = [path for path in trained.folder.iterdir() if path.suffix in (".parquet", ".safetensors", ".toml")]
    assert len(found) >= 7
    more = ["label_exponent.json", "extended.json", "training.lock", "partitions/manifest.json"]
    run = tmp_path / "run"
    (run / "partitions").mkdir(parents=True)
    for name in ("run.toml", *more):
        (run / name).touch()
    for path in (*found, *(run / name for name in more)):
        with pytest.raises(FocuseError, match="this file is a part of the run"):
            check_writable(path)
