"""Unpacking a zip archive that came from elsewhere: checked, and in place whole or not at all.

Checksums guard against damage and mix-ups: the md5 sums are those that the archives' publishers give.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from focuse.errors import FocuseError

BLOCK = 1 << 16
MOST_MEMBERS = 1000
ELSE = "or put the files into the folder that FOCUSE_DATA names"


@dataclass(frozen=True)
class Archive:
    """A zip archive on the web. `md5` gives the files wanted of it, each with the md5 of its content.

    `folder` is the one that the archive may hold them in. The limits are bytes: of the archive, and of its content.
    """

    url: str
    folder: str
    md5: Mapping[str, str]
    most_packed: int = 64 << 20
    most_unpacked: int = 256 << 20


class DamagedError(FocuseError):
    """An archive that is not what it should be."""


# All that reading a damaged archive was seen to raise; RuntimeError stands for one with a password.
ODD = (DamagedError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Makes `folder`; a full disk and the like in the block become one line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise FocuseError(
            f"{folder}: {error.strerror or error}; make room there, or name another folder with FOCUSE_CACHE"
        ) from None


def install(path: Path, archive: Archive, target: Path, force: bool = False, where: str = "") -> None:
    """Unpack the zip file `path` beside `target` and rename it into place once every file is checked.

    Where another process was faster its folder stays, unless `force`. Other files in an old folder are kept.
    `where` names the archive in errors.
    """
    with (
        writing(target.parent),
        TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True) as temporary,
    ):
        fresh = Path(temporary, "fresh")  # inside: the temporary folder itself is closed to others
        fresh.mkdir()
        unpack(path, archive, fresh, where)
        _put(fresh, target, archive, force, Path(temporary))


def _put(fresh: Path, target: Path, archive: Archive, force: bool, temporary: Path) -> None:
    for number in range(10):  # others may do the same at this moment
        if number or not force:
            try:
                os.rename(fresh, target)
                break
            except OSError:
                if not target.exists():
                    raise
            if all(os.path.isfile(target / name) for name in archive.md5):
                break
        with suppress(FileNotFoundError):
            os.rename(target, temporary / f"old{number}")
    else:
        raise FocuseError(f"{target}: cannot be replaced, other programs keep changing it; try again")
    parts = {name.partition(".")[0] for name in archive.md5}
    for old in temporary.glob("old*/*"):
        if old.name.partition(".")[0] not in parts and not (target / old.name).exists():
            os.rename(old, target / old.name)


def unpack(path: Path, archive: Archive, folder: Path, where: str = "") -> None:
    """The wanted files of a zip archive, under their own names into `folder`; anything odd is a `DamagedError`.

    The archive chooses neither names nor places nor sizes: other members are left alone, and one that points
    outside or is a link condemns the whole archive.
    """
    where = where or str(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise FocuseError(f"{where}: {error.strerror or error}; give a readable archive, {ELSE}") from None
    try:
        with file, zipfile.ZipFile(file) as packed:
            for name, info in _wanted(packed, archive).items():
                digest = _extract(packed, info, folder / name)
                if digest != archive.md5[name]:
                    raise DamagedError(f"{info.filename} has the md5 {digest}, expected {archive.md5[name]}")
    except ODD as error:
        reason = str(error) or type(error).__name__
        advice = "it was removed; try again later" if where != str(path) else "replace it by the original"
        raise DamagedError(f"{where}: damaged archive ({reason}); {advice}, {ELSE}") from None


def _wanted(packed: zipfile.ZipFile, archive: Archive) -> dict[str, zipfile.ZipInfo]:
    """The member of each wanted file; an error if one is missing or doubled, or anything in the archive is odd."""
    members = packed.infolist()
    if len(members) > MOST_MEMBERS:
        raise DamagedError(f"{len(members):,} members, expected {len(archive.md5)}")
    found: dict[str, zipfile.ZipInfo] = {}
    for info in members:
        path = info.filename.replace("\\", "/")  # as archives made on Windows may have it
        steps = path.split("/")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if ".." in steps or not steps[0] or ":" in steps[0]:
            raise DamagedError(f"the member {info.filename!r} points outside")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DamagedError(f"the member {info.filename!r} is a link or device")
        name = path.removeprefix(f"{archive.folder}/")
        if name in archive.md5:
            if info.header_offset < 0 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DamagedError(f"{name} is packed in an unusual way")
            if name in found:
                raise DamagedError(f"{name} is in it twice")
            found[name] = info
    missing = [name for name in archive.md5 if name not in found]
    if missing:
        raise DamagedError(f"no {missing[0]} in it")
    size = sum(info.file_size for info in found.values())
    if size > archive.most_unpacked:
        raise DamagedError(f"{size:,} bytes when unpacked, at most {archive.most_unpacked:,} are expected")
    return found


def _extract(packed: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> str:
    """Write one member and return its md5. It cannot grow past the size that the archive states for it."""
    digest = hashlib.md5(usedforsecurity=False)
    with packed.open(info) as source, path.open("xb") as file:
        while block := source.read(BLOCK):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()
