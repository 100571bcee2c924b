"""btrfs in user space: file systems in image files and on devices, without kernel btrfs.

>>> import larder
>>> with larder.open("disk.img", write=True) as fs:
...     with fs.open("/notes.txt", "w") as file:
...         print("bread, butter", file=file)
...     fs.snapshot("/", "/monday", read_only=True)

Methods have the names that ``os``, ``shutil`` and ``pathlib`` give them. A failure is an
``OSError`` with the number that a kernel would return, and damage a ``DamageError``, which is one
too. All threads may use one file system.
"""

from ._file import FileIO
from ._filesystem import Copied, DataUse, DiskUsage, FileSystem, open
from ._larder import (
    Balanced,
    CheckReport,
    DamageError,
    Device,
    DirEntry,
    Extent,
    Finding,
    Job,
    MkfsSummary,
    Moved,
    ScanDir,
    Scrubbed,
    Space,
    Stat,
    Subvolume,
    __version__,
    check,
    mkfs,
)

__all__ = [
    "Balanced",
    "CheckReport",
    "Copied",
    "DamageError",
    "DataUse",
    "Device",
    "DirEntry",
    "DiskUsage",
    "Extent",
    "FileIO",
    "FileSystem",
    "Finding",
    "Job",
    "MkfsSummary",
    "Moved",
    "ScanDir",
    "Scrubbed",
    "Space",
    "Stat",
    "Subvolume",
    "__version__",
    "check",
    "mkfs",
    "open",
]
