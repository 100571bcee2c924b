"""Names, attributes and errors."""

import errno
import os
import pathlib
import stat

import pytest

import larder


def test_paths_of_every_type(fs):
    fs.mkdir("/notes")
    fs.write_bytes(b"/notes/a", b"1")
    fs.write_bytes(pathlib.PurePosixPath("/notes/b"), b"2")
    assert fs.listdir("notes") == fs.listdir(b"/notes/") == ["a", "b"]
    odd = b"/notes/\xff\xfe"
    fs.write_bytes(odd, b"3")
    name = fs.listdir("/notes")[2]
    assert os.fsencode(name) == b"\xff\xfe" and name == os.fsdecode(b"\xff\xfe")
    assert fs.read_bytes("/notes/" + name) == b"3"
    fs.symlink(b"\xff", "/link")
    assert os.fsencode(fs.readlink("/link")) == b"\xff"
    for wrong in (None, 3, ["a"]):
        with pytest.raises(TypeError):
            fs.stat(wrong)


def test_errors_are_those_of_the_system(fs):
    fs.mkdir("/full")
    fs.write_bytes("/full/file", b"")
    calls = [
        (FileNotFoundError, errno.ENOENT, lambda: fs.stat("/none"), "/none", None),
        (FileExistsError, errno.EEXIST, lambda: fs.mkdir("/full"), "/full", None),
        (NotADirectoryError, errno.ENOTDIR, lambda: fs.listdir("/full/file"), "/full/file", None),
        (IsADirectoryError, errno.EISDIR, lambda: fs.remove("/full"), "/full", None),
        (OSError, errno.ENOTEMPTY, lambda: fs.rmdir("/full"), "/full", None),
        (OSError, errno.ENAMETOOLONG, lambda: fs.mkdir("/" + 256 * "x"), "/" + 256 * "x", None),
        (OSError, errno.ENODATA, lambda: fs.getxattr("/full", "user.x"), "/full", None),
        (FileNotFoundError, errno.ENOENT, lambda: fs.rename("/none", "/to"), "/none", "/to"),
        (OSError, errno.EINVAL, lambda: fs.readlink("/full"), "/full", None),
    ]
    for kind, number, call, filename, filename2 in calls:
        with pytest.raises(kind) as raised:
            call()
        error = raised.value
        assert (error.errno, error.filename, error.filename2) == (number, filename, filename2)
        assert error.strerror and filename not in error.strerror


def test_what_is_open_for_reading_cannot_change(image):
    with larder.open(image) as fs:
        assert not fs.writable
        calls = [
            lambda: fs.mkdir("/x"),
            lambda: fs.open("/x", "w"),
            lambda: fs.setxattr("/", "user.x", b""),
        ]
        for call in calls:
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno == errno.EROFS


def test_bad_images(tmp_path):
    path = tmp_path / "bad.img"
    with pytest.raises(FileNotFoundError) as raised:
        larder.open(path)
    assert raised.value.filename == str(path)
    for content in (b"", b"x" * 70_000, os.urandom(1 << 20)):
        path.write_bytes(content)
        for call in (larder.open, larder.check):
            with pytest.raises(OSError) as raised:
                call(path)
            assert raised.value.errno in (errno.EUCLEAN, errno.EIO)
    for wrong in ([], 3, None, [3]):
        with pytest.raises((TypeError, ValueError)):
            larder.open(wrong)
    wrong = [{"commit_interval": -1.0}, {"compression": "zip"}, {"partition": 1, "offset": 1}]
    for options in wrong:
        with pytest.raises(ValueError):
            larder.open(path, **options)


def test_one_program_writes(image):
    with larder.open(image, write=True):
        with pytest.raises(OSError) as raised:
            larder.open(image, write=True)
        assert raised.value.errno == errno.EBUSY


def test_attributes(fs):
    fs.write_bytes("/file", b"12345")
    fs.chown("/file", 7, -1)
    fs.chmod("/file", 0o4751)
    fs.utime("/file", ns=(-1, 1_700_000_000_000_000_001))
    found = fs.stat("/file")
    assert stat.S_ISREG(found.st_mode) and stat.filemode(found.st_mode) == "-rwsr-x--x"
    assert (found.st_uid, found.st_gid, found.st_size, found.st_nlink) == (7, os.getegid(), 5, 1)
    assert (found.st_atime_ns, found.st_mtime_ns) == (-1, 1_700_000_000_000_000_001)
    assert found.st_mtime == pytest.approx(1_700_000_000)
    assert found.st_birthtime <= found.st_ctime
    fs.utime("/file", (1.5, 2.25))
    assert (fs.stat("/file").st_atime, fs.stat("/file").st_mtime) == (1.5, 2.25)
    fs.utime("/file")
    assert fs.stat("/file").st_mtime > 1_700_000_000
    with pytest.raises(ValueError):
        fs.chown("/file", -2, 0)
    fs.mkdir("/directory", 0o700)
    assert stat.S_IMODE(fs.stat("/directory").st_mode) == 0o700
    with fs.open("/private", "x", permissions=0o600):
        pass
    assert stat.S_IMODE(fs.stat("/private").st_mode) == 0o600


def test_names(fs):
    fs.makedirs("/a/b/c")
    fs.makedirs("a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs("/a/b/c")
    fs.write_bytes("/a/file", b"data")
    fs.link("/a/file", "/a/again")
    assert fs.stat("/a/again").st_nlink == 2
    fs.symlink("b/c", "/a/link")
    assert fs.readlink("/a/link") == "b/c" and fs.is_dir("/a/link") and fs.is_symlink("/a/link")
    assert stat.S_ISLNK(fs.lstat("/a/link").st_mode)
    fs.symlink("nowhere", "/a/dangling")
    assert not fs.exists("/a/dangling") and fs.exists("/a/dangling", follow_symlinks=False)
    assert not fs.exists("/a/file/below") and not fs.is_file("/a")
    fs.rename("/a/again", "/a/b/moved")
    fs.replace("/a/b/moved", "/a/file")
    with pytest.raises(FileExistsError):
        fs.rename("/a/file", "/a/link", replace=False)
    fs.rename("/a/file", "/a/link", exchange=True)
    assert fs.readlink("/a/file") == "b/c" and fs.read_bytes("/a/link") == b"data"
    assert fs.copy("/a/link", "/copy") == 4 and fs.read_bytes("/copy") == b"data"
    fs.unlink("/copy")
    fs.rmtree("/a")
    assert fs.listdir() == []


def test_entries_have_types_and_attributes(fs):
    for n in range(1200):
        fs.write_bytes(f"/{n}", b"x" * (n % 7))
    fs.mkdir("/directory")
    fs.symlink("directory", "/link")
    with fs.scandir() as entries:
        found = {entry.name: entry for entry in entries}
    assert len(found) == 1202
    assert found["1199"].stat().st_size == 1199 % 7 and found["1199"].path == "/1199"
    assert found["3"].inode() == fs.stat("/3").st_ino == fs.stat(found["3"]).st_ino
    link = found["link"]
    assert link.is_dir() and not link.is_dir(follow_symlinks=False) and link.is_symlink()
    assert link.stat() == found["directory"].stat()
    assert link.stat(follow_symlinks=False).st_size == len("directory")
    entries = fs.scandir("/")
    next(entries)
    entries.close()
    assert list(entries) == []


def test_an_entry_or_listing_keeps_no_image_open(image):
    with larder.open(image, write=True) as fs:
        for n in range(600):
            fs.mkdir(f"/{n}")
        entries = fs.scandir("/")
        entry = next(entries)
    with larder.open(image, write=True):
        assert entry.is_dir()
        with pytest.raises(ValueError):
            list(entries)


def test_walks_are_those_of_os(fs, image, mounted):
    fs.makedirs("/a/b/c")
    fs.mkdir("/a/d")
    fs.create_subvolume("/a/sub")
    for path in ("/1", "/a/2", "/a/b/3", "/a/b/c/4", "/a/sub/5"):
        fs.write_bytes(path, b"")
    fs.symlink("..", "/a/d/up")
    fs.sync()
    fs.close()
    point = str(mounted("ro"))
    with larder.open(image) as fs:
        for topdown in (True, False):
            ours = [
                (path, sorted(dirs), sorted(files)) for path, dirs, files in fs.walk("/", topdown)
            ]
            theirs = [
                (path[len(point) :] or "/", sorted(dirs), sorted(files))
                for path, dirs, files in os.walk(point, topdown)
            ]
            assert sorted(ours) == sorted(theirs)
            order = [path for path, _, _ in ours]
            assert (order[0] if topdown else order[-1]) == "/"
        visited = []
        for path, dirs, _ in fs.walk(b"/a"):
            visited.append(path)
            dirs[:] = [name for name in dirs if name == "b"]
        assert visited == ["/a", "/a/b"]
        failed = []
        assert list(fs.walk("/none", onerror=failed.append)) == []
        assert failed[0].errno == errno.ENOENT
        # A link that leads back up ends nowhere.
        list(fs.walk("/", onerror=failed.append, followlinks=True))
        assert failed[1].errno == errno.ELOOP


def test_extended_attributes(fs):
    fs.write_bytes("/file", b"")
    fs.setxattr("/file", "user.mime", b"text/plain")
    fs.setxattr("/file", b"user.\xff", b"")
    assert fs.getxattr("/file", "user.mime") == b"text/plain"
    assert set(fs.listxattr("/file")) == {"user.mime", os.fsdecode(b"user.\xff")}
    with pytest.raises(FileExistsError):
        fs.setxattr("/file", "user.mime", b"", os.XATTR_CREATE)
    with pytest.raises(ValueError):
        fs.setxattr("/file", "user.mime", b"", 77)
    fs.removexattr("/file", "user.mime")
    assert fs.listxattr("/file") == [os.fsdecode(b"user.\xff")]
    with pytest.raises(OSError) as raised:
        fs.removexattr("/file", "user.mime")
    assert raised.value.errno == errno.ENODATA
