"""Archives, good and bad, and the folder that comes of them."""

from __future__ import annotations

import hashlib
import io
import os
import random
import stat
import zipfile
from pathlib import Path

import pytest

from focuse.errors import FocuseError
from focuse.graph.unpacking import Archive, DamagedError, install, unpack

TEXTS = {f"{part}.tsv": f"a\tr\t{part}\t0.5\n".encode() * 100 for part in ("train", "valid", "test")}
MADE = Archive(
    "https://example.org/made.zip",
    "made",
    {name: hashlib.md5(text).hexdigest() for name, text in TEXTS.items()},
    most_unpacked=1 << 20,
)


def special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def packed(
    *extra: tuple[str | zipfile.ZipInfo, bytes], prefix: str = "made/", without: str = "", kind: int = 8
) -> bytes:
    """A good archive with `extra` members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, text in TEXTS.items():
            if name != without:
                archive.writestr(f"{prefix}{name}", text)
        for member, text in extra:
            archive.writestr(member, text)
    return stream.getvalue()


def locked(content: bytes) -> bytes:
    """The same, claiming to be encrypted."""
    changed = bytearray(content)
    changed[content.index(b"PK\x01\x02") + 8] |= 1
    changed[content.index(b"PK\x03\x04") + 6] |= 1
    return bytes(changed)


def flipped(content: bytes) -> bytes:
    """The same with one bit of the packed text turned."""
    changed = bytearray(content)
    changed[content.index(b"made/train.tsv") + 20] ^= 1
    return bytes(changed)


LINK = special("made/train.tsv", stat.S_IFLNK | 0o777)
BAD = {
    "page": (b"<html>please log in</html>", "not a zip file"),
    "short": (packed()[:-60], "not a zip file"),
    "flipped": (flipped(packed()), ""),
    "missing": (packed(without="test.tsv"), "no test.tsv"),
    "other": (packed(("made/valid.tsv", b"x"), without="valid.tsv"), "valid.tsv has the md5"),
    "twice": (packed(("train.tsv", b"a\tr\tb\t1\n")), "train.tsv is in it twice"),
    "outside": (packed(("../evil.tsv", b"x")), "'../evil.tsv' points outside"),
    "deep": (packed(("made/../../evil.tsv", b"x")), "points outside"),
    "absolute": (packed(("/tmp/evil.tsv", b"x")), "'/tmp/evil.tsv' points outside"),
    "windows": (packed(("..\\evil.tsv", b"x")), "points outside"),
    "drive": (packed(("C:\\evil.tsv", b"x")), "points outside"),
    "link": (packed((LINK, b"/etc/passwd"), without="train.tsv"), "is a link or device"),
    "pipe": (packed((special("made/pipe", stat.S_IFIFO), b"")), "is a link or device"),
    "crowd": (packed(*((f"{i}", b"") for i in range(1000))), "1,003 members"),
    "bomb": (packed(("made/train.tsv", bytes(2 << 20)), without="train.tsv"), "bytes when unpacked"),
    "lzma": (packed(kind=zipfile.ZIP_LZMA), "packed in an unusual way"),
    "locked": (locked(packed()), "encrypted"),
}


def test_the_example_is_good(tmp_path):
    (tmp_path / "made.zip").write_bytes(packed())
    install(tmp_path / "made.zip", MADE, tmp_path / "deep" / "made")
    assert holds_all(tmp_path / "deep" / "made")


@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD)
def test_a_bad_archive_leaves_nothing_behind(tmp_path, content, says):
    file = tmp_path / "made.zip"
    file.write_bytes(content)
    with pytest.raises(DamagedError) as caught:
        install(file, MADE, tmp_path / "cache" / "made")
    message = str(caught.value)
    assert message.startswith(f"{file}: damaged archive (")
    assert says in message
    assert "replace it by the original" in message
    assert set(tmp_path.rglob("*")) == {file, tmp_path / "cache"}
    assert file.read_bytes() == content  # the user's own


def test_an_archive_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "made.zip").mkdir()
    with pytest.raises(FocuseError, match=r"made\.zip: Is a directory; give a readable archive"):
        install(tmp_path / "made.zip", MADE, tmp_path / "made")


def test_a_member_cannot_grow_past_its_stated_size(tmp_path):
    """A bomb whose directory claims to be small: nothing past the claim is unpacked."""
    bomb = bytearray(packed(("made/train.tsv", bytes(5 << 20)), without="train.tsv"))
    place = bomb.rindex(b"PK\x01\x02")
    bomb[place + 24 : place + 28] = (100).to_bytes(4, "little")
    (tmp_path / "bomb.zip").write_bytes(bomb)
    with pytest.raises(DamagedError):
        unpack(tmp_path / "bomb.zip", MADE, tmp_path)
    assert (tmp_path / "train.tsv").stat().st_size <= 100


def test_damage_anywhere_is_noticed_or_harmless(tmp_path):
    content, chance = packed(), random.Random(1)
    damaged = 0
    for number in range(400):
        spoilt = bytearray(content)
        for _ in range(chance.choice([1, 2, 8])):
            spoilt[chance.randrange(0 if number % 2 else len(content) - 250, len(content))] = chance.randrange(256)
        (tmp_path / "spoilt.zip").write_bytes(spoilt)
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            unpack(tmp_path / "spoilt.zip", MADE, folder)
            assert holds_all(folder)
        except DamagedError:
            damaged += 1
    assert damaged > 200


@pytest.mark.parametrize("prefix", ["", "made/", "made\\"])
def test_other_members_are_left_alone(tmp_path, prefix):
    content = packed(("__MACOSX/made/._train.tsv", b"x"), ("made/readme.md", b"x"), ("made/deep/", b""), prefix=prefix)
    (tmp_path / "a.zip").write_bytes(content)
    install(tmp_path / "a.zip", MADE, tmp_path / "made")
    assert holds_all(tmp_path / "made")


def test_the_folder_is_as_open_as_others(tmp_path):
    (tmp_path / "made.zip").write_bytes(packed())
    install(tmp_path / "made.zip", MADE, tmp_path / "made")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "made").stat().st_mode == (tmp_path / "other").stat().st_mode


# ---- where there is something already ---------------------------------------------------------------------------


def holds_all(folder: Path) -> bool:
    return {path.name: path.read_bytes() for path in folder.iterdir()} == TEXTS


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder from earlier with files of its user's, among them the archive."""
    folder = tmp_path / "made"
    folder.mkdir()
    for name in (*TEXTS, "train.tsv.gz"):
        (folder / name).write_text("old")
    (folder / "test_with_neg.tsv").write_text("mine")
    (folder / "made.zip").write_bytes(packed())
    return folder


def own_files_are_kept(folder: Path) -> bool:
    """And none of the old parts; nor is anything left beside the folder."""
    kept = (folder / "test_with_neg.tsv").read_text() == "mine" and (folder / "made.zip").read_bytes() == packed()
    for name in ("test_with_neg.tsv", "made.zip"):
        (folder / name).unlink()
    return kept and os.listdir(folder.parent) == ["made"]


def test_force_replaces_the_parts_and_keeps_the_rest(old):
    install(old / "made.zip", MADE, old, force=True)
    assert own_files_are_kept(old)
    assert holds_all(old)


def test_without_force_what_is_there_stays(old):
    install(old / "made.zip", MADE, old)
    assert (old / "train.tsv").read_text() == "old"


def test_what_is_not_whole_is_replaced(old):
    (old / "test.tsv").unlink()
    install(old / "made.zip", MADE, old)
    assert own_files_are_kept(old)
    assert holds_all(old)
