"""The file system as an object."""

from __future__ import annotations

import builtins
import errno
import os
import stat
import threading
import time
import warnings
import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from typing import (
    IO,
    Any,
    BinaryIO,
    Callable,
    Iterable,
    Iterator,
    Literal,
    NamedTuple,
    Optional,
    TextIO,
    Tuple,
    Union,
    overload,
)

from . import _larder
from ._file import FileIO, StrOrBytesPath, open_stream


class DiskUsage(NamedTuple):
    """Space for data, in bytes, as ``shutil.disk_usage`` has it."""

    total: int
    used: int
    free: int


class DataUse(NamedTuple):
    """Bytes of data, as ``btrfs filesystem du -s`` counts them: without inline data, before
    compression, and preallocated space too.

    total: in all extents of each file.
    exclusive: in extents of which no other file uses any part.
    shared: in other extents, each counted once.
    """

    total: int
    exclusive: int
    shared: int


class Copied(NamedTuple):
    """What was copied: files, directories and others, and bytes of content; for an archive, the
    bytes of it that were read.
    """

    inodes: int
    bytes: int


OnError = Callable[[OSError], object]
Walked = Tuple[str, "list[str]", "list[str]"]


@dataclass(frozen=True)
class _Visit:
    """A directory that a walk comes to, and what tells those above it from all others."""

    path: str
    above: Tuple[Tuple[int, int], ...]


class FileSystem(_larder.FileSystem):
    """An open file system: see ``larder.open``.

    Paths may be ``str``, ``bytes`` or ``os.PathLike``, and start at the root of the subvolume that
    was opened, with or without a slash. Names come back as ``str``; surrogate escapes stand for
    bytes that are not UTF-8, as everywhere in Python.

    It is a context manager. ``close`` commits all changes, also after an exception.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._files: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        if self.closed:
            return "<larder.FileSystem [closed]>"
        mode = "read-write" if self.writable else "read-only"
        return f"<larder.FileSystem {self.uuid} {mode}>"

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if not self.closed:
            if self.writable:
                _warn(f"unclosed {self!r}", ResourceWarning, source=self)
            self.close()

    def close(self) -> None:
        """Closes open files, ends jobs, makes all changes durable, and gives the image free."""
        if self._forked:
            # A thread that is not in this process may have the lock.
            return
        with self._lock, ExitStack() as last_first:
            last_first.callback(self._close)
            for file in self._files:
                last_first.callback(file.close)

    @overload
    def open(
        self,
        path: StrOrBytesPath,
        mode: Literal["r", "w", "x", "a", "r+", "w+", "x+", "a+", "rt", "wt", "xt", "at"] = ...,
        buffering: int = ...,
        encoding: Optional[str] = ...,
        errors: Optional[str] = ...,
        newline: Optional[str] = ...,
        *,
        permissions: int = ...,
    ) -> TextIO: ...

    @overload
    def open(
        self,
        path: StrOrBytesPath,
        mode: Literal["rb", "wb", "xb", "ab", "r+b", "w+b", "x+b", "a+b", "rb+", "wb+", "ab+"],
        buffering: int = ...,
        *,
        permissions: int = ...,
    ) -> BinaryIO: ...

    @overload
    def open(
        self,
        path: StrOrBytesPath,
        mode: str,
        buffering: int = ...,
        encoding: Optional[str] = ...,
        errors: Optional[str] = ...,
        newline: Optional[str] = ...,
        *,
        permissions: int = ...,
    ) -> IO[Any]: ...

    def open(
        self,
        path: StrOrBytesPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o644,
    ) -> Any:
        """Opens a file, as the builtin ``open``. A new one gets ``permissions``; no umask applies.

        Closing the file system closes it.
        """
        file = open_stream(self, path, mode, buffering, encoding, errors, newline, permissions)
        with self._lock:
            if not self.closed:
                self._files.add(file)
                return file
        # Another thread has closed it meanwhile.
        file.close()
        raise ValueError("I/O operation on closed file system")

    def read_bytes(self, path: StrOrBytesPath) -> bytes:
        """All data of a file."""
        with FileIO(self, path) as file:
            return file.read()

    def write_bytes(self, path: StrOrBytesPath, data: Any) -> int:
        """Makes ``data`` all data of a file, which is created if it is not there."""
        with self.open(path, "wb") as file:
            return file.write(data)

    def read_text(
        self, path: StrOrBytesPath, encoding: Optional[str] = None, errors: Optional[str] = None
    ) -> str:
        """All data of a file, decoded."""
        with self.open(path, "r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_text(
        self,
        path: StrOrBytesPath,
        text: str,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> int:
        """Makes ``text`` all data of a file, which is created if it is not there."""
        with self.open(path, "w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(text)

    def truncate(self, path: StrOrBytesPath, length: int) -> None:
        """Makes a file ``length`` bytes long."""
        with FileIO(self, path, "r+") as file:
            file.truncate(length)

    def lstat(self, path: StrOrBytesPath) -> _larder.Stat:
        """The attributes of what is at a path; a symbolic link is not followed."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: StrOrBytesPath, *, follow_symlinks: bool = True) -> bool:
        """Whether there is something at a path."""
        return self._mode(path, follow_symlinks) is not None

    def is_dir(self, path: StrOrBytesPath) -> bool:
        """Whether there is a directory, or a link to one."""
        return stat.S_ISDIR(self._mode(path) or 0)

    def is_file(self, path: StrOrBytesPath) -> bool:
        """Whether there is a regular file, or a link to one."""
        return stat.S_ISREG(self._mode(path) or 0)

    def is_symlink(self, path: StrOrBytesPath) -> bool:
        """Whether there is a symbolic link."""
        return stat.S_ISLNK(self._mode(path, follow_symlinks=False) or 0)

    def _mode(self, path: StrOrBytesPath, follow_symlinks: bool = True) -> Optional[int]:
        try:
            return self.stat(path, follow_symlinks=follow_symlinks).st_mode
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise

    def makedirs(self, path: StrOrBytesPath, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Creates a directory and those above it, as ``os.makedirs``."""
        plain = os.fsdecode(path)
        above = os.path.dirname(plain.rstrip("/"))
        if above.strip("/") and not self.exists(above):
            self.makedirs(above, mode, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not exist_ok or not self.is_dir(path):
                raise

    unlink = _larder.FileSystem.remove

    def replace(self, src: StrOrBytesPath, dst: StrOrBytesPath) -> None:
        """Renames ``src`` to ``dst``, as ``os.replace``."""
        self.rename(src, dst)

    def utime(
        self,
        path: StrOrBytesPath,
        times: Optional[Tuple[float, float]] = None,
        *,
        ns: Optional[Tuple[int, int]] = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of access and modification, as ``os.utime``: by default to now."""
        if times is not None and ns is not None:
            raise ValueError("times and ns exclude each other")
        if times is not None:
            ns = (round(times[0] * 1e9), round(times[1] * 1e9))
        elif ns is None:
            ns = (time.time_ns(),) * 2
        self._utime(path, *ns, follow_symlinks)

    def walk(
        self,
        top: StrOrBytesPath = "/",
        topdown: bool = True,
        onerror: Optional[Callable[[OSError], object]] = None,
        followlinks: bool = False,
    ) -> Iterator[Walked]:
        """Yields the path of each directory from ``top`` on, the names of directories in it, and
        other names, as ``os.walk``.
        """
        waiting: list[Union[_Visit, Walked]] = [_Visit(os.fsdecode(top), ())]
        while waiting:
            visit = waiting.pop()
            if not isinstance(visit, _Visit):
                yield visit
                continue
            links: set[str] = set()
            dirs: list[str] = []
            files: list[str] = []
            try:
                above = (*visit.above, self._identity(visit))
                for entry in self.scandir(visit.path):
                    (dirs if entry.is_dir() else files).append(entry.name)
                    if entry.is_symlink():
                        links.add(entry.name)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            if topdown:
                yield visit.path, dirs, files
            else:
                waiting.append((visit.path, dirs, files))
            for name in reversed(dirs):
                if followlinks or name not in links:
                    waiting.append(_Visit(os.path.join(visit.path, name), above))

    def _identity(self, visit: _Visit) -> Tuple[int, int]:
        """What tells the directory from all others. In a damaged file system it may be inside
        itself, and so it may through links.
        """
        found = self.stat(visit.path)
        identity = (found.st_dev, found.st_ino)
        if identity in visit.above:
            raise OSError(errno.ELOOP, "a directory that is inside itself", visit.path)
        return identity

    def copy_in(
        self,
        src: StrOrBytesPath,
        dst: StrOrBytesPath,
        *,
        preserve: bool = True,
        onerror: Optional[OnError] = None,
    ) -> Copied:
        """Copies a file or directory of this system, with all that is in it, to ``dst``.

        Symbolic links are copied, not followed. A directory that is there stays, and gets more
        entries; other things in the way are replaced, and a file in the way of a file is
        overwritten.

        preserve: modes, owners, times, extended attributes, ACLs and hard links too. Without it,
            copies belong to the user of this process, and keep their permissions.
        onerror: gets an ``OSError`` for each thing that cannot be copied, with the original as
            ``filename`` and the copy as ``filename2``, and the copy goes on. In the end the first
            of them is raised all the same. By default the first failure ends the copy.
        """
        return Copied(*self._copy_in(src, dst, preserve, onerror))

    def copy_out(
        self,
        src: StrOrBytesPath,
        dst: StrOrBytesPath,
        *,
        preserve: bool = True,
        onerror: Optional[OnError] = None,
    ) -> Copied:
        """Copies a file or directory, with all that is in it, to ``dst`` on this system. See
        ``copy_in``. Nothing is written through a symbolic link that is in the way.
        """
        return Copied(*self._copy_out(src, dst, preserve, onerror))

    def copytree(
        self,
        src: StrOrBytesPath,
        dst: StrOrBytesPath,
        *,
        preserve: bool = True,
        onerror: Optional[OnError] = None,
    ) -> Copied:
        """Copies a file or directory, with all that is in it, to ``dst`` in the same file system.
        The copies share the data. See ``copy_in``.
        """
        return Copied(*self._copy_within(src, dst, preserve, onerror))

    def unpack_archive(
        self,
        archive: Union[StrOrBytesPath, BinaryIO],
        path: StrOrBytesPath = "/",
        *,
        preserve: bool = True,
        onerror: Optional[OnError] = None,
    ) -> Copied:
        """Unpacks a tar archive into the directory at ``path``. See ``copy_in``.

        archive: a path on this system, or an object with ``read``, such as ``gzip.open`` returns
            for a compressed archive.

        Names that lead out of the directory are refused, and nothing is unpacked through a symbolic
        link.
        """
        if isinstance(archive, (str, bytes, os.PathLike)):
            with builtins.open(archive, "rb") as file:
                return Copied(*self._unpack(file, path, preserve, onerror))
        return Copied(*self._unpack(archive, path, preserve, onerror))

    def du(self, path: StrOrBytesPath = "/") -> DataUse:
        """What the data of a file takes, or of all files below a directory, alone and shared. In a
        file system that is open for writing this commits first.
        """
        return DataUse(*self._data_use(path))

    def disk_usage(self) -> DiskUsage:
        """Space for data, in bytes: all, used, and available for more."""
        return DiskUsage(*self._disk_usage())


def open(
    paths: Union[StrOrBytesPath, Iterable[StrOrBytesPath]],
    *,
    write: bool = False,
    degraded: bool = False,
    subvolume: Union[int, StrOrBytesPath, None] = None,
    partition: Optional[int] = None,
    offset: Optional[int] = None,
    cache_bytes: Optional[int] = None,
    commit_interval: Optional[float] = 30.0,
    discard: bool | None = None,
    compression: Optional[str] = None,
) -> FileSystem:
    """Opens the file system on an image file or block device, or on several, in any order.

    write: for changes too. No other program can have it open for writing meanwhile.
    degraded: also if devices are missing, as long as the others are enough to read everything.
    subvolume: where paths start, as an id or a path from the top level ("/"); by default the
        default subvolume, as with mount(8).
    partition, offset: where the file system is in a disk, as a number of a partition or in bytes;
        by default where btrfs is found.
    cache_bytes: the most bytes of tree blocks in memory; 128 MiB by default.
    commit_interval: seconds after which changes are committed; None for only when asked.
    discard: gives freed space back to the image or device, or does not; by default only
        object storage learns what is free.
    compression: for new data: "zstd", "zlib:9", "lzo".
    """
    if not isinstance(paths, (str, bytes, os.PathLike)):
        paths = list(paths)
    return FileSystem(
        paths,
        write=write,
        degraded=degraded,
        subvolume=subvolume,
        partition=partition,
        offset=offset,
        cache_bytes=cache_bytes,
        commit_interval=commit_interval,
        discard=discard,
        compression=compression,
    )
