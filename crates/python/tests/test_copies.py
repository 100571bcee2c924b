"""Trees from and to this system, and archives."""

import gzip
import io
import os
import signal
import socket
import stat
import subprocess
import tarfile
import threading

import pytest

import larder

ACL = bytes.fromhex("02000000 01000600ffffffff 02000400e1100000 04000400ffffffff"
                    "10000400ffffffff 20000000ffffffff")


@pytest.fixture
def tree(tmp_path):
    """A tree with all kinds of files, on a file system with extended attributes and ACLs."""
    top = tmp_path / "tree"
    (top / "sub/deep").mkdir(parents=True)
    (top / "file").write_bytes(b"bread" * 10_000)
    os.link(top / "file", top / "sub/again")
    os.symlink("../file", top / "sub/link")
    os.mkfifo(top / "pipe", 0o620)
    os.mknod(top / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as it:
        it.bind(str(top / "socket"))
    with open(top / "sparse", "wb") as file:
        file.seek(3 << 20)
        file.write(b"end")
        file.truncate(8 << 20)
    os.setxattr(top / "file", "user.shop", b"corner")
    os.setxattr(top / "file", "system.posix_acl_access", ACL)
    os.setxattr(top / "sub", "system.posix_acl_default", ACL)
    os.chown(top / "sub/deep", 7, 8)
    os.chmod(top / "sub/deep", 0o3751)
    for name in ("sub/deep", "sub/link", "sparse", "sub"):
        os.utime(top / name, ns=(1, -5_000_000_007), follow_symlinks=False)
    return top


def described(top, call=os):
    """What is in a tree, by path. `call` has the functions of `os`."""
    found = {}
    above = os.path.join(str(top), "")
    names = [""]
    for path, directories, files in call.walk(str(top)):
        at = path[len(above):]
        names += [os.path.join(at, name) for name in [*directories, *files]]
    inodes = {}
    for name in names:
        path = above + name if name else str(top)
        status = call.stat(path, follow_symlinks=False)
        attributes = {
            attribute: call.getxattr(path, attribute, follow_symlinks=False)
            for attribute in call.listxattr(path, follow_symlinks=False)
        }
        kind = stat.S_IFMT(status.st_mode)
        found[name] = (
            status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_rdev,
            None if kind == stat.S_IFDIR else status.st_nlink,
            call.readlink(path) if kind == stat.S_IFLNK else None,
            status.st_size if kind == stat.S_IFREG else None,
            inodes.setdefault(status.st_ino, name),
            attributes,
        )
    return found


def test_a_tree_stays_the_same_on_its_way_in_and_out(fs, tree, tmp_path):
    expected = described(tree)
    assert fs.copy_in(tree, "/copy").inodes == len(expected)
    assert described("/copy", fs) == expected
    copied = fs.copytree("/copy", "/again")
    assert copied == (len(expected), 0)
    assert fs.copy_out("/again", tmp_path / "out").inodes == len(expected)
    assert described(tmp_path / "out") == expected
    assert (tmp_path / "out/file").read_bytes() == (tree / "file").read_bytes()
    assert os.stat(tmp_path / "out/sparse").st_blocks < 1 << 10


def test_the_kernel_sees_what_was_copied(image, tree, mounted):
    with larder.open(image, write=True) as fs:
        fs.copy_in(os.fsencode(tree), b"/copy")
    assert described(mounted("ro") / "copy") == described(tree)


def test_plain_copies_keep_permissions_only(fs, tree):
    fs.copy_in(tree / "sub", "/copy", preserve=False)
    found = fs.stat("/copy/deep")
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o1751)
    assert fs.stat("/copy/again").st_nlink == 1
    assert fs.listxattr("/copy") == []


def test_failures_name_both_sides(fs, tree, tmp_path):
    fs.makedirs("/copy/file")
    with pytest.raises(IsADirectoryError) as raised:
        fs.copy_in(tree, "/copy")
    assert raised.value.filename == str(tree / "file")
    assert raised.value.filename2 == "/copy/file"
    assert not fs.exists("/copy/sub")
    with pytest.raises(FileNotFoundError) as raised:
        fs.copy_in(tmp_path / "none", "/copy")
    assert raised.value.filename == str(tmp_path / "none")
    with pytest.raises(FileNotFoundError) as raised:
        fs.copy_out("/none", tmp_path / "out")
    assert (raised.value.filename, raised.value.filename2) == ("/none", str(tmp_path / "out"))


def test_a_copy_goes_on_if_it_is_told_to(fs, tree):
    fs.makedirs("/copy/file")
    fs.makedirs("/copy/sub/link")
    errors = []
    with pytest.raises(IsADirectoryError, match="and 1 more") as raised:
        fs.copy_in(tree, "/copy", onerror=errors.append)
    assert [error.filename2 for error in errors] == ["/copy/file", "/copy/sub/link"]
    assert raised.value.filename2 == "/copy/file"
    assert fs.is_dir("/copy/sub/deep")

    def stop(error):
        raise KeyError(error.filename2)

    with pytest.raises(KeyError, match="/copy/file"):
        fs.copy_in(tree, "/copy", onerror=stop)


@pytest.mark.parametrize("form", ["posix", "gnu"])
def test_archives_of_tar_are_unpacked(fs, tree, tmp_path, form):
    archive = tmp_path / "tree.tar"
    options = ["--xattrs", "--xattrs-include=*", "--acls"] if form == "posix" else []
    (tree / "socket").unlink()
    command = ["tar", f"--format={form}", "--sparse", *options, "-cf", archive, "-C", tree, "."]
    subprocess.run(command, check=True)
    fs.mkdir("/copy")
    copied = fs.unpack_archive(archive, "/copy")
    expected = described(tree)
    assert copied.inodes == len(expected) and 0 < copied.bytes <= archive.stat().st_size
    found = described("/copy", fs)
    if form == "gnu":
        # Its headers have whole seconds and no attributes.
        for tree_of in (expected, found):
            for name, (mode, uid, gid, mtime, *rest) in tree_of.items():
                tree_of[name] = (mode, uid, gid, mtime // 10**9, *rest[:-1])
    else:
        for tree_of in (expected, found):
            for name, (mode, uid, gid, mtime, *rest) in tree_of.items():
                tree_of[name] = (mode, uid, gid, mtime, *rest)
    # The first name of a file is the one that the archive has first.
    for tree_of in (expected, found):
        for name, (*before, first, last) in tree_of.items():
            tree_of[name] = (*before, name == first, last)
    assert found.keys() == expected.keys()
    for name in found:
        assert found[name][:8] == expected[name][:8], name
    if form == "posix":
        assert {name: it[-1] for name, it in found.items()} == {
            name: it[-1] for name, it in expected.items()
        }


def test_archives_come_from_any_stream(fs):
    packed = io.BytesIO()
    with gzip.open(packed, "wb") as out, tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("notes/today.txt")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"bread"))
        outside = tarfile.TarInfo("../outside")
        archive.addfile(outside)
    packed.seek(0)
    with gzip.open(packed) as plain, pytest.raises(OSError, match="leads out") as raised:
        fs.unpack_archive(plain)
    assert raised.value.filename == "../outside"
    assert fs.read_bytes("/notes/today.txt") == b"bread"
    with pytest.raises(OSError, match="no tar archive"):
        fs.unpack_archive(io.BytesIO(b"x" * 1024))

    class Fails:
        def read(self, size):
            raise LookupError(size)

    with pytest.raises(LookupError):
        fs.unpack_archive(Fails())


def test_ctrl_c_ends_a_copy(fs, tmp_path):
    tree = tmp_path / "many"
    tree.mkdir()
    for n in range(50):
        (tree / str(n)).mkdir()
    fs.makedirs("/copy")
    for n in range(50):
        fs.write_bytes(f"/copy/{n}", b"in the way")
    met = threading.Event()

    def slow(error):
        if not met.is_set():
            met.set()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.05)

    with pytest.raises(KeyboardInterrupt):
        fs.copy_in(tree, "/copy", onerror=slow)
    assert met.is_set()
