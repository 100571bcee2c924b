# Calls near the largest offset that a file can have, each with what it came to and what the file is
# then: how many bytes less than the largest size it has, its blocks, and where data begins and
# ends. Offsets are counted from there too.
import ctypes, errno, mmap, os, resource, signal

MOST = 2**63 - 1
S = 4096
LAST = MOST & -S
KEEP, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
c = ctypes.CDLL(None, use_errno=True)
c.lseek.restype = ctypes.c_long
fd = None


def fallocate(mode, offset, length):
    if c.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')


def seek(offset, whence):
    # Where data fills the last sector of all, the kernel counts one too far and answers with less
    # than 0: it means the end of the file.
    found = c.lseek(fd, ctypes.c_long(offset), whence)
    if found == -1:
        raise OSError(ctypes.get_errno(), 'lseek')
    return found if found >= 0 else os.fstat(fd).st_size


def segments():
    found, at = [], 0
    while True:
        try:
            data = seek(at, os.SEEK_DATA)
        except OSError as error:
            return found + [errno.errorcode[error.errno]]
        at = seek(data, os.SEEK_HOLE)
        found.append((MOST - data, MOST - at))


def call(name, act):
    try:
        result = act()
    except OSError as error:
        result = errno.errorcode[error.errno]
    stat = os.fstat(fd)
    # On a mount of larder a file that is open for writing has at least one block, also if it has no
    # data.
    found = segments()
    blocks = 0 if stat.st_blocks == 8 and found == ['ENXIO'] else stat.st_blocks
    print(name, '->', result, MOST - stat.st_size, blocks, found)


def new_file():
    global fd
    if fd is not None:
        os.close(fd)
    fd = os.open('f', os.O_RDWR | os.O_CREAT | os.O_TRUNC)


new_file()
for length in (MOST, MOST - 1, LAST, LAST - 1, 2**62, 0, MOST):
    call(f'ftruncate {MOST - length}', lambda: os.ftruncate(fd, length))
for offset in (MOST, MOST - 1, MOST - 2, MOST - 3, MOST - S, MOST - S - 1, MOST - 100):
    call(f'pwrite 1 {MOST - offset}', lambda: os.pwrite(fd, b'x', offset))
    call(f'pwrite 2 {MOST - offset}', lambda: os.pwrite(fd, b'yz', offset))
    call(f'pread {MOST - offset}', lambda: os.pread(fd, 10, offset))
os.fsync(fd)
for offset in (0, MOST - 3 * S, MOST - S, MOST - 50, MOST - 1, MOST):
    for whence in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END, os.SEEK_DATA, os.SEEK_HOLE):
        os.lseek(fd, 1, os.SEEK_SET)
        call(f'lseek {MOST - offset} {whence}', lambda: MOST - seek(offset, whence))

RANGES = ((MOST - S, S), (MOST - S, S - 1), (MOST - S, S + 1), (MOST - 10, 10), (MOST - 10, 5),
          (MOST - 3 * S, 2 * S), (MOST - 3 * S, 3 * S), (MOST, 1), (MOST - 1, 1), (LAST, S - 1),
          (LAST - S, S), (LAST - S, 2 * S - 1), (5, MOST), (0, MOST))
for mode in (0, KEEP, PUNCH | KEEP, PUNCH, ZERO, ZERO | KEEP, COLLAPSE, INSERT):
    for has_data in (False, True):
        for offset, length in RANGES:
            if length > 10 * S and not mode & PUNCH:
                continue
            # Space past the end of the file goes here.
            new_file()
            if has_data:
                os.ftruncate(fd, LAST - 2 * S)
                os.pwrite(fd, b'a' * 5000, LAST - 2 * S)
                os.fsync(fd)
            call(f'fallocate {mode} {has_data} {MOST - offset} {length}', lambda: fallocate(mode, offset, length))
            print(os.pread(fd, 3 * S - 1, LAST - 2 * S).hex()[::500])

new_file()
os.pwrite(fd, b'abcde' * 2000, 0)
os.fsync(fd)
for length, source, target in ((5, 0, MOST - 5), (5, 0, MOST - 4), (5, 0, MOST), (S, 0, MOST - S), (S, 0, LAST - S),
                               (10, 10000 - 10, MOST - 10), (S, 0, LAST), (S - 1, 0, LAST), (MOST, 0, MOST - 10000),
                               (100, MOST - 100, 50000), (100, MOST - 50, 60000), (S, MOST - S, 70000), (1, MOST, 0)):
    call(f'copy {length} {MOST - source} {MOST - target}', lambda: os.copy_file_range(fd, fd, length, source, target))
    os.fsync(fd)
print(os.pread(fd, 10, MOST - 10), os.pread(fd, 10, 50090))

new_file()
os.ftruncate(fd, MOST)
os.pwrite(fd, b'mapped', MOST - 6)
try:
    memory = mmap.mmap(fd, S, offset=LAST)
    memory[0:5] = b'start'
    memory.flush()
    print(memory[S - 11:])
    memory.close()
except (OSError, ValueError, OverflowError) as error:
    print('mmap', error)
print(os.pread(fd, 5, LAST), os.pread(fd, 6, MOST - 6))
direct = os.open('f', os.O_RDWR | os.O_DIRECT)
buffer = mmap.mmap(-1, 2 * S)
buffer[:] = b'd' * 2 * S
for offset in (LAST - S, LAST, LAST - 2 * S):
    for length in (S, 2 * S):
        part = memoryview(buffer)[:length]
        call(f'direct write {MOST - offset} {length}', lambda: os.pwritev(direct, [part], offset))
        call(f'direct read {MOST - offset} {length}', lambda: os.preadv(direct, [part], offset))
os.close(direct)
append = os.open('f', os.O_WRONLY | os.O_APPEND)
call('append to the longest', lambda: os.write(append, b'more'))
os.ftruncate(fd, MOST - 2)
call('append as much as fits', lambda: os.write(append, b'more'))
call('append when nothing fits', lambda: os.write(append, b'more'))
os.close(append)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (MOST - S, resource.RLIM_INFINITY))
new_file()
os.pwrite(fd, b'abcde', MOST - S - 100)
for offset in (MOST - S - 2, MOST - S - 1, MOST - S, MOST - 1):
    call(f'limited pwrite {MOST - offset}', lambda: os.pwrite(fd, b'limit', offset))
    call(f'limited ftruncate {MOST - offset}', lambda: os.ftruncate(fd, offset))
    call(f'limited fallocate {MOST - offset}', lambda: fallocate(0, offset, 1))
    call(f'limited copy {MOST - offset}', lambda: os.copy_file_range(fd, fd, 5, MOST - S - 100, offset))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
new_file()
os.ftruncate(fd, MOST)
os.pwrite(fd, b'end', MOST - 3)
