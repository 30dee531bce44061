"""`focuse calibrate`."""

from __future__ import annotations

import json
import shutil

import pytest

import focuse
from focuse.cli.main import app
from focuse.errors import FocuseError
from focuse.inference import fitted
from focuse.inference.fitted import CALIBRATION_FILE, fingerprint, load_calibration


@pytest.fixture
def copied(trained, tmp_path):
    """A run of one's own, without a calibration."""
    shutil.copytree(trained.folder, tmp_path / "run")
    (tmp_path / "run" / CALIBRATION_FILE).unlink(missing_ok=True)
    return tmp_path / "run"


@pytest.fixture
def calibrated(capsys):
    """`calibrated(RUN, …)`: in this process, what it prints."""

    def run(*arguments):
        app(["calibrate", *map(str, arguments)], standalone_mode=False)
        return capsys.readouterr().out

    return run


def stored(folder):
    return load_calibration(folder, fingerprint(folder), 3)


@pytest.mark.slow
def test_calibration_that_cannot_be_stored_is_reported(calibrated, copied, monkeypatch):
    assert json.loads(calibrated(copied, "--json"))["stored"]
    monkeypatch.setattr(fitted, "save_calibration", lambda *_: (_ for _ in ()).throw(OSError("read-only")))
    assert not json.loads(calibrated(copied, "--method", "platt", "--json"))["stored"]
    assert stored(copied).method == "isotonic"


def test_calibration_is_stored_and_printed_as_json(command, copied):
    done = command("calibrate", copied, "--method", "platt", "--json", check=True)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told.pop("base_rate") == pytest.approx(0.014, abs=2e-3)  # 1,128 links, if train lacks as many as valid
    assert told == {
        "run": str(copied),
        "method": "platt",
        "validation_rows": 60,
        "calibration_rows": 15,
        "probability_method": "platt",
        "relations": 3,
        "relations_with_own_curve": 1,
        "stored": True,
    }
    assert stored(copied).method == "platt"


def test_default_calibration_is_printed_as_text(calibrated, copied):
    assert calibrated(copied) == (
        "isotonic on 15 of 60 validation triples, 1 of 3 relations with a curve of their own; "
        f"stored in {copied / CALIBRATION_FILE}\nprobabilities: platt, for a base rate of 0.014\n"
    )
    assert stored(copied).method == "isotonic"


def test_a_base_rate_can_be_given(calibrated, copied):
    usual = json.loads(calibrated(copied, "--json"))["base_rate"]
    before = [row.probability for row in focuse.load(copied).predict(head="e1", relation="r0")]
    assert json.loads(calibrated(copied, "--base-rate", "0.1", "--json"))["base_rate"] == 0.1
    run = focuse.load(copied)
    after = [row.probability for row in run.predict(head="e1", relation="r0")]
    made = run.weight_predictor(full=True).probability
    assert (made.base_rate, made.estimated_rate) == (0.1, usual)
    ratio = [new / (1 - new) / (old / (1 - old)) for new, old in zip(after, before, strict=True)]
    assert ratio == pytest.approx([0.1 / 0.9 / (usual / (1 - usual))] * len(before), rel=1e-6)
    with pytest.raises(FocuseError, match=r"base rate 1\.0: give the share of true links among all candidates"):
        calibrated(copied, "--base-rate", "1")


def test_calibration_of_an_unfinished_run_is_not_stored(calibrated, copied):
    (copied / "model.safetensors").unlink()
    assert json.loads(calibrated(copied, "--json"))["stored"] is False
    assert "not stored: the run is unfinished or cannot be written" in calibrated(copied)
    assert not (copied / CALIBRATION_FILE).exists()


def test_invalid_options_are_refused(calibrated, copied, small, tmp_path):
    with pytest.raises(FocuseError, match=r"unknown calibration 'plat' \(did you mean platt\?\)"):
        calibrated(copied, "--method", "plat")
    with pytest.raises(FocuseError, match="not a run"):
        calibrated(tmp_path / "nowhere")
    focuse.train(small, valid_fraction=0.0, dim=4, epochs=1, out=tmp_path / "bare", progress=False)
    with pytest.raises(FocuseError, match="no validation triples to calibrate on"):
        calibrated(tmp_path / "bare")
