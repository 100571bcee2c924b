"""Images as file systems of fsspec, so that pandas, pyarrow and others read and write in them.

URLs chain as those of archives do: ``larder://path/in/image::/path/of/disk.img``.
"""

from __future__ import annotations

import io
import os
import stat
from datetime import datetime, timezone
from typing import Any, Optional, Union

from fsspec.spec import AbstractFileSystem

from ._file import FileIO
from ._filesystem import FileSystem
from ._larder import DirEntry, Stat
from ._shared import Image, Use

_BUFFER_BYTES = 1 << 20
_TYPES = {stat.S_IFDIR: "directory", stat.S_IFREG: "file"}


class LarderFileSystem(AbstractFileSystem):
    """The file system in an image.

    fo: the path of the image.
    devices: the paths of further images, of a file system on several devices.
    options: for ``larder.open``.

    The image is open only while something is read or written, and what was written is durable
    then. ``with fs.image(write=True):`` keeps it open, so that many changes become one commit.
    """

    protocol = "larder"
    root_marker = ""

    def __init__(
        self,
        fo: str,
        target_protocol: Optional[str] = None,
        target_options: Optional[dict[str, Any]] = None,
        devices: tuple[str, ...] = (),
        subvolume: Union[int, str, None] = None,
        partition: Optional[int] = None,
        offset: Optional[int] = None,
        degraded: bool = False,
        compression: Optional[str] = None,
        **storage_options: Any,
    ) -> None:
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"an image must be a local file, not one of {target_protocol}")
        super().__init__(**storage_options)
        paths = (os.path.abspath(fo), *map(os.path.abspath, devices))
        options = {
            "subvolume": subvolume,
            "partition": partition,
            "offset": offset,
            "degraded": degraded,
            "compression": compression,
        }
        self._image = Image(paths, options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.strip("/")

    def image(self, write: bool = False) -> Use:
        """A context manager that keeps the image open, and is the ``larder.FileSystem`` in it."""
        return self._image.use(write)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        with self.image() as fs:
            return _info(fs, path, fs.lstat(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        with self.image() as fs:
            if fs.is_dir(path):
                infos = [_info_of_entry(fs, entry) for entry in fs.scandir(path)]
            else:
                infos = [_info(fs, path, fs.lstat(path))]
        return infos if detail else [info["name"] for info in infos]

    def created(self, path: str) -> datetime:
        with self.image() as fs:
            time = fs.stat(self._strip_protocol(path)).st_birthtime
        return datetime.fromtimestamp(time, tz=timezone.utc)

    def modified(self, path: str) -> datetime:
        with self.image() as fs:
            time = fs.stat(self._strip_protocol(path)).st_mtime
        return datetime.fromtimestamp(time, tz=timezone.utc)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> Any:
        if not autocommit:
            raise NotImplementedError("no transactions: use image(write=True)")
        use = self.image(write=mode not in ("r", "rb"))
        try:
            raw = FileIO(use.fs, self._strip_protocol(path), mode)
            stream = _stream_class(raw)(raw, block_size or _BUFFER_BYTES)
        except BaseException:
            use.end()
            raise
        stream.use = use
        return stream

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        with self.image(write=True) as fs:
            if create_parents:
                fs.makedirs(path)
            else:
                fs.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        with self.image(write=True) as fs:
            fs.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        with self.image(write=True) as fs:
            fs.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        with self.image(write=True) as fs:
            fs.remove(self._strip_protocol(path))

    _rm = rm_file

    def rm(
        self, path: Union[str, list[str]], recursive: bool = False, maxdepth: Optional[int] = None
    ) -> None:
        with self.image(write=True) as fs:
            if not recursive or maxdepth is not None:
                for found in reversed(self.expand_path(path, recursive, maxdepth)):
                    (fs.rmdir if fs.is_dir(found) else fs.remove)(found)
                return
            for found in self.expand_path(path):
                fs.rmtree(found)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file. The copy shares its data with the original."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        with self.image(write=True) as fs:
            if fs.is_dir(path1):
                fs.makedirs(path2, exist_ok=True)
            else:
                fs.copy(path1, path2)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Renames what is at ``path1``, or moves it into the directory ``path2``."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        with self.image(write=True) as fs:
            if fs.is_dir(path2):
                path2 = f"{path2}/{path1.rpartition('/')[2]}"
            fs.rename(path1, path2)

    mv_file = mv

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        with self.image(write=True) as fs:
            with fs.open(path, "wb" if truncate else "ab"):
                pass
            fs.utime(path)


def _info_of_entry(fs: FileSystem, entry: DirEntry) -> dict[str, Any]:
    return _info(fs, entry.path, entry.stat(follow_symlinks=False))


def _info(fs: FileSystem, path: str, found: Stat) -> dict[str, Any]:
    """As fsspec's local file system: type and size are those that a link leads to."""
    info: dict[str, Any] = {"name": path, "islink": stat.S_ISLNK(found.st_mode)}
    if info["islink"]:
        info["destination"] = fs.readlink(path)
        if fs.exists(path):
            found = fs.stat(path)
    info.update(
        size=found.st_size,
        type=_TYPES.get(stat.S_IFMT(found.st_mode), "other"),
        created=found.st_birthtime,
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        mtime=found.st_mtime,
        ino=found.st_ino,
        nlink=found.st_nlink,
    )
    return info


class _EndsUse:
    """A stream whose end is that of its use of the image."""

    use: Use

    def close(self) -> None:
        if not self.closed:  # type: ignore[attr-defined]
            try:
                super().close()  # type: ignore[misc]
            finally:
                self.use.end()


class _Reader(_EndsUse, io.BufferedReader):
    pass


class _Writer(_EndsUse, io.BufferedWriter):
    pass


class _ReaderAndWriter(_EndsUse, io.BufferedRandom):
    pass


def _stream_class(raw: FileIO) -> Any:
    if raw.readable():
        return _ReaderAndWriter if raw.writable() else _Reader
    return _Writer
