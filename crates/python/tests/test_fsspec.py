"""Images through fsspec, and what reads through that."""

import errno
import threading

import fsspec
import pandas
import pytest

import larder
from larder.fsspec import LarderFileSystem


@pytest.fixture
def url(image):
    """A function of the URL of a path."""
    return lambda path: f"larder://{path}::{image}"


@pytest.fixture
def files(image):
    """The file system of fsspec. The image must be sound in the end."""
    yield fsspec.filesystem("larder", fo=str(image))
    assert larder.check(image, data=True)
    # No use of it was forgotten.
    larder.open(image, write=True).close()


def test_urls_chain(url, image):
    with fsspec.open(url("notes.txt"), "w") as file:
        file.write("bread\n")
    with fsspec.open(url("/notes.txt")) as file:
        assert file.read() == b"bread\n"
    with fsspec.open(f"larder://notes.txt::file://{image}", "rt") as file:
        assert file.read() == "bread\n"
    with fsspec.open(f"simplecache::larder://notes.txt::{image}") as file:
        assert file.read() == b"bread\n"
    with larder.open(image) as fs:
        assert fs.read_bytes("/notes.txt") == b"bread\n"
    with pytest.raises(FileNotFoundError):
        fsspec.open(url("none")).open()
    with pytest.raises(ValueError):
        fsspec.open("larder://notes.txt::memory://disk.img")
    with pytest.raises(TypeError):
        fsspec.open("larder://notes.txt")


def test_pandas_reads_and_writes(url):
    table = pandas.DataFrame({"name": ["bread", "butter"], "grams": [500, 250]})
    table.to_csv(url("table.csv"), index=False)
    assert pandas.read_csv(url("table.csv")).equals(table)


def test_operations(files):
    assert isinstance(files, LarderFileSystem)
    files.makedirs("a/b")
    files.pipe({"a/1": b"one", "a/b/2": b"two", "/3": b"three"})
    assert files.find("") == ["3", "a/1", "a/b/2"]
    assert sorted(files.ls("a", detail=False)) == ["a/1", "a/b"]
    assert files.glob("a/**/2") == ["a/b/2"] and files.du("") == 11
    info = files.info("larder://a/b/2")
    assert (info["name"], info["size"], info["type"]) == ("a/b/2", 3, "file")
    assert files.isdir("a") and files.isdir("") and not files.exists("a/9")
    assert files.cat_file("3", 1, 3) == b"hr" and files.cat(["3", "a/1"])["a/1"] == b"one"
    files.cp("a", "copy", recursive=True)
    assert files.cat_file("copy/b/2") == b"two"
    files.mv("copy/b/2", "a")
    files.mv("3", "a/three")
    assert files.find("a") == ["a/1", "a/2", "a/b/2", "a/three"]
    with files.open("a/1", "ab") as file:
        file.write(b" more")
    assert files.cat_file("a/1") == b"one more"
    files.touch("a/1")
    assert files.size("a/1") == 0
    assert files.created("a/1") <= files.modified("a/1")
    with files.image(write=True) as fs:
        fs.symlink("2", "/a/link")
    assert files.info("a/link")["islink"] and files.info("a/link")["size"] == 3
    files.rm("a/b/2")
    files.rmdir("a/b")
    files.rm(["a", "copy"], recursive=True)
    assert files.ls("") == []
    with pytest.raises(FileNotFoundError):
        files.ls("none")


def test_a_file_is_durable_when_it_is_closed(files, image):
    first, second = files.open("first", "wb"), files.open("second", "wb")
    first.write(b"1")
    first.close()
    assert files.cat_file("first") == b"1"
    with pytest.raises(OSError) as raised:
        larder.open(image, write=True)
    assert raised.value.errno == errno.EBUSY
    second.close()
    with larder.open(image, write=True) as fs:
        assert sorted(fs.listdir()) == ["first", "second"]


def test_many_changes_are_one_commit(files, image):
    with files.image(write=True) as fs:
        before = fs.generation
        for n in range(20):
            files.pipe_file(f"{n}", b"")
        with pytest.raises(NotImplementedError), files.transaction:
            files.open("x", "wb")
    with larder.open(image) as fs:
        assert len(fs.listdir()) == 20 and fs.generation == before + 1


def test_threads_share_an_image(url):
    """Each has an instance of its own, and only one opening of an image can write."""
    failed = []

    def work(n):
        try:
            for round in range(10):
                with fsspec.open(url(f"{n}"), "wb") as file:
                    file.write(b"%d" % round)
                with fsspec.open(url(f"{n}")) as file:
                    assert file.read() == b"%d" % round
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
