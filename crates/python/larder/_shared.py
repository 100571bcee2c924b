"""Images that several users in this process share: only one opening of an image can write."""

from __future__ import annotations

import os
import threading
from typing import Any, Optional

from ._filesystem import FileSystem, open as open_image


class Image:
    """An image, open only while it is in use."""

    def __init__(self, paths: tuple[str, ...], options: dict[str, Any]) -> None:
        self._key = (os.getpid(), paths, tuple(sorted(options.items())))
        self._paths = paths
        self._options = options

    def use(self, write: bool = False) -> Use:
        """Opens it, unless it is open. The use must be ended."""
        with _lock:
            opened = _open.get(self._key)
            if opened is None or (write and not opened.fs.writable):
                # Users of an opening for reading keep that.
                opened = _Opened(open_image(self._paths, write=write, **self._options))
                _open[self._key] = opened
            opened.uses += 1
            opened.writers += write
            return Use(self._key, opened, write)


class Use:
    """A use of an image, and the context manager of it. ``end`` makes what was written durable."""

    def __init__(self, key: Any, opened: _Opened, write: bool) -> None:
        self._key = key
        self._opened: Optional[_Opened] = opened
        self._write = write
        self.fs = opened.fs

    def end(self) -> None:
        with _lock:
            opened, self._opened = self._opened, None
            if opened is None:
                return
            opened.uses -= 1
            opened.writers -= self._write
            if opened.uses == 0:
                if _open.get(self._key) is opened:
                    del _open[self._key]
                opened.fs.close()
            elif self._write and opened.writers == 0:
                opened.fs.sync()

    def __enter__(self) -> FileSystem:
        return self.fs

    def __exit__(self, *args: object) -> None:
        self.end()


class _Opened:
    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self.uses = 0
        self.writers = 0


_lock = threading.RLock()
_open: dict[Any, _Opened] = {}
