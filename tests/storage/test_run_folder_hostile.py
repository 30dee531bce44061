"""Run folders from elsewhere: nothing they name is opened or run, and every file is checked."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from older import without_checksums

import focuse
from focuse.errors import FocuseError

OPENED: list[str] = []
LISTENING: list[bool] = []


def heard(event: str, given: tuple[Any, ...]) -> None:
    if LISTENING and event == "open":
        OPENED.append(str(given[0]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "run"
    rows = [(f"e{i % 9}", f"r{i % 2}", f"e{(i * i + 1) % 11}", 0.1 + (i % 7) / 10) for i in range(60)]
    run = focuse.train(rows, dim=4, epochs=1, label_exponent=1, out=folder, progress=False, device="cpu")
    run.predict(head="e1", relation="r0", top=2)
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy without checksums, which anyone can make: so that what lies behind them is met."""
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    return without_checksums(folder)


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "run.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def use(folder: Path) -> None:
    loaded = focuse.load(folder, "cpu")
    loaded.predict(head="e1", relation="r0", top=2)
    loaded.evaluate()


@pytest.mark.parametrize("place", ["../../secret.tsv", "/etc/passwd", "sqlite:////etc/passwd", "https://127.0.0.1:9/x"])
def test_sources_named_in_a_run_are_not_opened(run: Path, place: str) -> None:
    edit(run, 'train = "rows"', f'train = "{place}"')
    if not OPENED and not LISTENING:
        sys.addaudithook(heard)
    LISTENING.append(True)
    try:
        use(run)
    finally:
        LISTENING.clear()
    names = [Path(opened).name for opened in OPENED if opened]
    assert "run.toml" in names  # else nothing was heard at all
    assert not {"secret.tsv", "passwd", "x"} & {*names}
    OPENED.clear()
    assert focuse.load(run).graph.source == place


class TestModels:
    """Also of a user who trusts the name."""

    def test_code_in_the_run_is_not_imported(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FOCUSE_TRUST", "run,evil")
        (run / "evil.py").write_text("raise SystemExit('it ran')\nclass M: pass\n", encoding="utf-8")
        monkeypatch.chdir(run.parent)
        edit(run, 'model = "complex"', 'model = "run.evil:M"')
        with pytest.raises(FocuseError, match="is in the run's own folder; a run must not contain code"):
            focuse.load(run)
        monkeypatch.chdir(run)
        edit(run, 'model = "run.evil:M"', 'model = "evil:M"')
        with pytest.raises(FocuseError, match="a run must not contain code"):
            focuse.load(run)
        assert "evil" not in sys.modules

    def test_package_in_the_run_is_not_imported(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FOCUSE_TRUST", "run")
        (run / "__init__.py").write_text("raise SystemExit('it ran')\n", encoding="utf-8")
        monkeypatch.chdir(run.parent)
        edit(run, 'model = "complex"', 'model = "run:M"')
        with pytest.raises(FocuseError, match="a run must not contain code"):
            focuse.load(run)

    @pytest.mark.parametrize("name", ["antigravity:fly", "os:system", "idlelib.idle:x", "this:s"])
    def test_standard_library_modules_are_not_imported(
        self, run: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FOCUSE_TRUST", name.partition(":")[0])
        before = {*sys.modules}
        edit(run, 'model = "complex"', f'model = "{name}"')
        with pytest.raises(FocuseError, match="is a module of Python and has no models"):
            focuse.load(run)
        assert not {"antigravity", "this", "idlelib"} & ({*sys.modules} - before)


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "shape", "places"),
        [
            ("huge", [1 << 40, 1 << 20], [0, 1 << 62]),
            ("overflow", [1 << 33, 1 << 33], [0, 16]),
            ("beyond", [4], [0, 1 << 40]),
            ("turned", [4], [16, 0]),
            ("negative", [-1], [0, 16]),
        ],
    )
    def test_impossible_tensor_shapes_are_reported(
        self, run: Path, name: str, shape: list[int], places: list[int]
    ) -> None:
        header = json.dumps({"entity": {"dtype": "F32", "shape": shape, "data_offsets": places}}).encode()
        (run / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
        with pytest.raises(FocuseError, match=r"model.safetensors: damaged file"):
            focuse.load(run)

    def test_overlapping_tensors_are_reported(self, run: Path) -> None:
        one = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
        header = json.dumps({"entity": one, "relation": one}).encode()
        (run / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
        with pytest.raises(FocuseError, match="damaged file"):
            focuse.load(run)

    @pytest.mark.parametrize("size", [0, 1 << 40, (1 << 64) - 1])
    def test_header_longer_than_the_file_is_reported(self, run: Path, size: int) -> None:
        (run / "splits.safetensors").write_bytes(struct.pack("<Q", size) + b"{}")
        with pytest.raises(FocuseError, match="damaged file"):
            focuse.load(run)

    def test_names_that_are_not_utf8_are_reported(self, run: Path) -> None:
        path = run / "relations.parquet"
        pq.write_table(pa.table({"name": ["abcd", "r1"]}), path, compression="none")
        path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xffd"))
        with pytest.raises(FocuseError, match=r"relations.parquet: damaged file"):
            focuse.load(run)

    @pytest.mark.parametrize("names", [pa.array([1, 2]), pa.array(["r0", None])])
    def test_missing_or_non_text_names_are_reported(self, run: Path, names: pa.Array) -> None:
        pq.write_table(pa.table({"name": names}), run / "relations.parquet")
        with pytest.raises(FocuseError, match=r"relations.parquet: damaged file"):
            focuse.load(run)

    @pytest.mark.parametrize("text", ["[" * 5_000, "format = " + "[" * 5_000, "format = " + "9" * 5_000])
    def test_deeply_nested_or_long_toml_is_reported(self, run: Path, text: str) -> None:
        (run / "run.toml").write_text(text, encoding="utf-8")
        with pytest.raises(FocuseError, match=r"run.toml: damaged file"):
            focuse.load(run)

    @pytest.mark.parametrize("name", ["calibration", "weights", "probability"])
    def test_deeply_nested_json_beside_tables_is_reported(self, run: Path, name: str) -> None:
        from safetensors.numpy import save_file

        key = "calibration" if name == "calibration" else "about"
        save_file({"x": np.zeros(1)}, run / f"{name}.safetensors", {key: "[" * 100_000})
        with pytest.raises(FocuseError, match=rf"{name}.safetensors: damaged file"):
            use(run)

    def test_deeply_nested_history_lines_are_reported(self, run: Path) -> None:
        with (run / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write("[" * 100_000 + "\n")
        with pytest.raises(FocuseError, match=r"history\.jsonl: damaged file: line 2 was altered"):
            focuse.load(run)
