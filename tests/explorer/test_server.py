"""`focuse serve` as a process: it starts, answers, stops, and reports errors in one line."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from focuse.errors import FocuseError
from focuse.explorer.server import address, listen, serve


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_server_answers_and_stops_on_a_signal(run_folders, number) -> None:
    command = [sys.executable, "-m", "focuse", "serve", str(run_folders[0]), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    try:
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            text += line
        told = json.loads(text)
        assert told["warning"] == ""
        with urllib.request.urlopen(told["url"] + "api/health", timeout=30) as answer:
            assert json.load(answer)["model"] == "complex"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert (out, err) == ("", "focuse: stopped\n")


def test_port_in_use_is_an_error_before_anything_is_loaded(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FocuseError, match=f"cannot listen on 127.0.0.1 port {port}: .*; choose another port"):
            serve(tmp_path, port=port)


def test_folder_without_a_run_is_refused(tmp_path, run_folders) -> None:
    with pytest.raises(FocuseError, match=tmp_path.name):
        serve(tmp_path, port=0)
    with pytest.raises(FocuseError, match=tmp_path.name):
        serve(run_folders[0], compare=tmp_path, port=0)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70000), ("127.0.0.1", -1), ("no-such-host.invalid", 0)])
def test_invalid_addresses_are_refused(host, port) -> None:
    with pytest.raises(FocuseError, match="give"):
        listen(host, port)


def test_printed_address_can_be_opened() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert address(listener, "0.0.0.0") == f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert address(listener, "::1").startswith("http://[::1]:")


def test_timeout_must_be_positive(run_folders) -> None:
    with pytest.raises(FocuseError, match="timeout 0: give a positive number of seconds"):
        serve(run_folders[0], timeout=0)


def test_public_address_gives_a_warning(monkeypatch, run_folders) -> None:
    import uvicorn
    from typer.testing import CliRunner

    from focuse.cli.main import app

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    done = CliRunner().invoke(app, ["serve", str(run_folders[0]), "--host", "0.0.0.0", "--port", "0", "--json"])
    signal.signal(signal.SIGTERM, before)
    assert "warning: there is no password" in done.stderr
    assert "no password" in json.loads(done.stdout)["warning"]


def test_missing_fastapi_names_the_extra_to_install(monkeypatch, run_folders) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(FocuseError, match=r"pip install .*'\.\[serve\]'"):
        serve(run_folders[0])
