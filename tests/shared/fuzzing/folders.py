"""Archives and run folders: a zip from elsewhere, and a run of which one file is not as it was."""

from __future__ import annotations

import hashlib
import io
import json
import math
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzzing.guard import WrongError

Call = Callable[[bytes], object]
CONTENT = {"train.tsv": b"a\tr\tb\t1\n" * 5, "test.tsv": b"c\tr\td\t2\n"}
OUTSIDE = ("../evil", "/abs", "data/../../evil", "C:/evil", "..\\evil")


def archives(folder: Path) -> tuple[Call, list[bytes]]:
    """Zip archives: only the wanted files come out, with their own bytes, and nothing lands elsewhere."""
    from focuse.data.datasets import CatalogEntry, CatalogFile, unpack

    path = folder / "archive.zip"
    files = {
        name.removesuffix(".tsv"): CatalogFile(text.count(b"\n"), hashlib.md5(text, usedforsecurity=False).hexdigest())
        for name, text in CONTENT.items()
    }
    entry = CatalogEntry("data", "", files, "", "")

    def call(data: bytes) -> None:
        path.write_bytes(data)
        before = sorted(each.name for each in folder.iterdir())
        texts = None
        try:
            texts = unpack(path, entry)
        finally:
            if sorted(each.name for each in folder.iterdir()) != before:
                raise WrongError("a file was written")
            if texts is not None and {f"{part}.tsv": text for part, text in texts.items()} != CONTENT:
                raise WrongError("other bytes than were wanted")

    return call, zips()


def zips() -> list[bytes]:
    """Archives, good and bad: packed and stored, with members outside, a link, a bomb."""
    found = []
    for way in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        for extra in ("", *OUTSIDE, "link", "bomb"):
            stream = io.BytesIO()
            with zipfile.ZipFile(stream, "w", way) as file:
                for name, text in CONTENT.items():
                    file.writestr(zipfile.ZipInfo(f"data/{name}"), text, way)
                if extra == "link":
                    info = zipfile.ZipInfo("data/link")
                    info.external_attr = (stat.S_IFLNK | 0o777) << 16
                    file.writestr(info, "/etc/passwd")
                elif extra == "bomb":
                    file.writestr(zipfile.ZipInfo("data/big"), bytes(1 << 20), zipfile.ZIP_DEFLATED)
                elif extra:
                    file.writestr(zipfile.ZipInfo(extra), "x")
            found.append(stream.getvalue())
    return found


# ---- run folders: a case is which file, how it is changed, and the change ----------------------------------------

FIELDS: list[Any] = [
    *(0, -1, 1, 2**31, 2**63, 1e400, float("nan"), -0.5, "", "x", "../../etc/passwd", "os:system", "\u202e", "\x1b[2J"),
    *([], {}, None, True, [[1]], [0, 8], [8, 0], [0, 2**60], [2**63, 2**64 - 1], "F64", "I8", "BOOL", "F8_E4M3"),
]  # fmt: skip


def runs(folder: Path) -> tuple[Call, list[bytes]]:
    """A small run, complete with calibration; after a change it loads, predicts and evaluates, or is refused.

    Where its files have checksums, an answer is the one from before, and half of the cases are of a run from before
    there were any: else nothing but the checksums would be met.
    """
    import focuse

    whole = folder / "whole"
    _train(whole)
    names = sorted(path.name for path in whole.iterdir())
    contents = {name: (whole / name).read_bytes() for name in names}
    bare = {name: unsealed(content, name) for name, content in contents.items()}
    sealed = bare["run.toml"] != contents["run.toml"]
    run = focuse.load(whole, "cpu")
    expected = _asked(run)
    place = folder / "run"
    place.mkdir(exist_ok=True)

    def call(data: bytes) -> None:
        if len(data) < 3:
            return
        name = names[data[0] % len(names)]
        files = bare if data[1] >= 128 else contents
        changed = change(files[name], name, data[1] % 128, data[2:])
        for each in names:
            _put(place / each, files[each], each == name, changed)
        found = _asked(focuse.load(place, "cpu"))
        _check(found)
        if sealed and files is contents and found != expected:
            raise WrongError(f"{name} was altered, and other answers came")

    hows = [0, 1, 2, 3, 129, 131]
    seeds = [bytes([at, how]) + b"\x05\x10\x00\x03ab" for at in range(len(names)) for how in hows]
    return call, seeds


def unsealed(content: bytes, name: str) -> bytes:
    """A file of a run as it was before runs had checksums; itself where it has none."""
    if name == "run.toml":
        text = content.decode()
        start = text.find("\n[checksums]")
        end = text.find("\n[", start + 1)
        text = text if start < 0 else text[: start + 1] + (text[end + 1 :] if end >= 0 else "")
        return "".join(line for line in text.splitlines(True) if not line.startswith("# crc32 ")).encode()
    if name.endswith(".safetensors"):
        size = struct.unpack_from("<Q", content)[0]
        header = json.loads(content[8 : 8 + size])
        header.get("__metadata__", {}).pop("crc32", None)
        if header.get("__metadata__") == {}:
            del header["__metadata__"]
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
        return content[:8] + text.encode().ljust(size) + content[8 + size :]
    if name.endswith((".json", ".jsonl")):
        rows = json.loads(content) if name.endswith(".json") else [json.loads(line) for line in content.splitlines()]
        rows = [{key: value for key, value in row.items() if key != "crc32"} for row in rows]
        return (
            json.dumps(rows) if name.endswith(".json") else "".join(f"{json.dumps(row)}\n" for row in rows)
        ).encode()
    return content


def _put(path: Path, content: bytes, is_it: bool, changed: bytes | None) -> None:
    """The file as it was, or changed; never written over, for it may still be mapped."""
    if is_it:
        path.unlink(missing_ok=True)
        if changed is not None:
            path.write_bytes(changed)
    elif not path.exists() or path.stat().st_size != len(content) or path.read_bytes() != content:
        path.unlink(missing_ok=True)
        path.write_bytes(content)


def _train(folder: Path) -> None:
    import focuse

    rows = [(f"e{i % 9}", f"r{i % 2}", f"e{(i * i + 1) % 11}", 0.1 + (i % 7) / 10) for i in range(60)]
    run = focuse.train(rows, dim=4, epochs=2, eval_every=1, label_exponent=2, out=folder, progress=False, device="cpu")
    run.predict(head="e1", relation="r0", top=3)  # makes and keeps calibration, estimator and probability


def _asked(run: Any) -> dict[str, Any]:
    """What a user asks a run for."""
    predicted = run.predict(head="e1", relation="r0", top=3)
    measured = run.evaluate()
    return {
        "names": [row.tail for row in predicted],
        "probabilities": [row.probability for row in predicted],
        "mrr": measured.all.mrr,
    }


def _check(found: dict[str, Any]) -> None:
    """An answer must be one: names that there are, probabilities, ranks."""
    if not all(isinstance(name, str) and name for name in found["names"]) or len(found["names"]) != 3:
        raise WrongError("names that are none")
    if any(value is not None and not 0 <= value <= 1 for value in found["probabilities"]):
        raise WrongError("a probability that is none")
    if not 0 < found["mrr"] <= 1 or math.isnan(found["mrr"]):
        raise WrongError("an MRR that is none")


def change(content: bytes, name: str, how: int, data: bytes) -> bytes | None:
    """A file changed: gone, cut, edited in bytes, or one field of its text or header put to something else."""
    at, kind, value = int.from_bytes(data[:2], "little"), how % 8, data[2:]
    if kind == 0:
        return None if how < 16 else b"" if how < 32 else content[: at % (len(content) + 1)]
    if kind in (1, 2):
        spot = at % (len(content) + 1)
        return content[:spot] + value + content[spot + (len(value) if kind == 1 else 0) :]
    if name.endswith(".safetensors"):
        return _header_changed(content, at, value)
    if name.endswith((".jsonl", ".json")):
        lines = content.split(b"\n")
        spot = at % len(lines)
        try:
            lines[spot] = json.dumps(_field_changed(json.loads(lines[spot] or b"{}"), at, value)).encode()
        except ValueError:
            lines[spot] = value
        return b"\n".join(lines)
    if name.endswith(".toml"):
        lines = content.split(b"\n")
        spot = at % len(lines)
        key, equals, _ = lines[spot].partition(b" = ")
        shown = json.dumps(FIELDS[(value[0] if value else 0) % len(FIELDS)]).encode()
        lines[spot] = key + equals + (shown.replace(b"NaN", b"nan").replace(b"Infinity", b"inf") if equals else shown)
        return b"\n".join(lines if how < 64 else lines[:spot] + lines[spot + 1 :])
    spot = at % (len(content) + 1)
    return content[:spot] + value[::-1] + content[spot + len(value) :]


def _header_changed(content: bytes, at: int, value: bytes) -> bytes:
    """The JSON before the tensors with one field put to something else, its length said rightly (or not)."""
    size = struct.unpack_from("<Q", content)[0]
    header = _field_changed(json.loads(content[8 : 8 + size]), at, value)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    said = len(text) if len(value) < 4 or value[3] % 16 else struct.unpack("<Q", value.ljust(8, b"\xff")[:8])[0]
    return struct.pack("<Q", said) + text + content[8 + size :]


def _field_changed(tree: Any, at: int, value: bytes) -> Any:
    """One leaf or branch of a tree replaced; what stands in texts of JSON inside it is reached, too."""
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            if isinstance(node[key], str) and node[key].startswith(("{", "[")):
                inner = _field_changed(json.loads(node[key]), at // 7, value)
                places.append((node, (key, json.dumps(inner))))
            else:
                places.append((node, key))
                waiting.append(node[key])
    new = FIELDS[(value[0] if value else 0) % len(FIELDS)]
    if not places:
        return new
    node, key = places[at % len(places)]
    if isinstance(key, tuple):
        node[key[0]] = key[1]
    elif value[1:2] == b"\x01" and isinstance(node, dict):
        del node[key]
    else:
        node[key] = new
    return tree
