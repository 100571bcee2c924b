"""Files as Python's streams."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _larder

if TYPE_CHECKING:
    from ._filesystem import FileSystem

StrOrBytesPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_BUFFER_BYTES = 128 << 10
# The most that is written before signals are looked at.
_PIECE_BYTES = 16 << 20
_FLAGS = {
    "r": 0,
    "w": os.O_CREAT | os.O_TRUNC,
    "x": os.O_CREAT | os.O_EXCL,
    "a": os.O_CREAT | os.O_APPEND,
}
_TO_THE_END = 2**63 - 1


class FileIO(io.RawIOBase):
    """A file without a buffer, as ``io.FileIO``.

    ``mode`` is one of ``r``, ``w``, ``x`` and ``a``, with ``+`` for both reading and writing. New
    files get ``permissions``.
    """

    def __init__(
        self, fs: FileSystem, path: StrOrBytesPath, mode: str = "r", *, permissions: int = 0o644
    ) -> None:
        self.name = path
        kind, updates = mode.replace("b", "").replace("+", ""), "+" in mode
        if kind not in _FLAGS:
            raise ValueError(f"invalid mode: {mode!r}")
        self.mode = f"{kind}b+" if updates else f"{kind}b"
        self._reads = kind == "r" or updates
        self._writes = kind != "r" or updates
        self._appends = kind == "a"
        if self._writes:
            self._file = fs._open_for_writing(path, _FLAGS[kind], permissions)
        else:
            self._file = fs._open_for_reading(path)
        # The file system stays open as long as the file needs it.
        self._fs = fs
        self._position = self._file.size() if self._appends else 0

    def __repr__(self) -> str:
        state = " [closed]" if self.closed else ""
        return f"<larder.FileIO name={self.name!r} mode={self.mode!r}{state}>"

    def readable(self) -> bool:
        self._check_open()
        return self._reads

    def writable(self) -> bool:
        self._check_open()
        return self._writes

    def seekable(self) -> bool:
        self._check_open()
        return True

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view, view.cast("B") as target:
            if target.readonly:
                raise TypeError("readinto() needs a buffer that can be written to")
            data = self.read(len(target))
            target[: len(data)] = data
        return len(data)

    def read(self, size: Optional[int] = -1) -> bytes:
        self._check_reads()
        if size is None or size < 0:
            size = _TO_THE_END
        data = self._file.read(size, self._position)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def write(self, data: Any) -> int:
        """Writes the beginning of ``data``, and returns its length: a buffer writes all."""
        self._check_writes()
        with memoryview(data) as view, view.cast("B") as octets, octets[:_PIECE_BYTES] as piece:
            at = self._file.write(piece, None if self._appends else self._position)
            self._position = at + len(piece)
            return len(piece)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        if whence == os.SEEK_SET:
            position = offset
        elif whence == os.SEEK_CUR:
            position = self._position + offset
        elif whence == os.SEEK_END:
            position = self._file.size() + offset
        else:
            raise ValueError(f"invalid whence: {whence}")
        if position < 0:
            raise ValueError(f"negative position: {position}")
        self._position = position
        return position

    def tell(self) -> int:
        self._check_open()
        return self._position

    def truncate(self, size: Optional[int] = None) -> int:
        self._check_writes()
        if size is None:
            size = self._position
        self._file.truncate(size)
        return size

    def stat(self) -> _larder.Stat:
        """The attributes, as they are now."""
        self._check_open()
        return self._file.stat()

    def sync(self) -> None:
        """Makes the file durable, as ``os.fsync``. Buffers above it must be flushed before."""
        self._check_open()
        self._file.sync()

    def close(self) -> None:
        if not self.closed:
            super().close()
            # A file that could not be opened is closed too.
            if hasattr(self, "_file"):
                self._file.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _check_reads(self) -> None:
        if not self.readable():
            raise io.UnsupportedOperation("not readable")

    def _check_writes(self) -> None:
        if not self.writable():
            raise io.UnsupportedOperation("not writable")


def open_stream(
    fs: FileSystem,
    path: StrOrBytesPath,
    mode: str,
    buffering: int,
    encoding: Optional[str],
    errors: Optional[str],
    newline: Optional[str],
    permissions: int,
) -> Any:
    """As ``io.open``: a text stream, a buffer, or a file without one."""
    is_binary, is_text = "b" in mode, "t" in mode
    if len(set(mode)) != len(mode) or (is_binary and is_text):
        raise ValueError(f"invalid mode: {mode!r}")
    if is_binary and not (encoding is errors is newline is None):
        raise ValueError("binary mode takes no encoding, errors or newline")
    if buffering == 0 and not is_binary:
        raise ValueError("text needs a buffer")
    raw = FileIO(fs, path, mode.replace("b", "").replace("t", ""), permissions=permissions)
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else _BUFFER_BYTES
    if raw.readable() and raw.writable():
        buffered: Any = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    if is_binary:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]
    return text
