# Stores past the end of mapped files, has them grow in all ways but by writing, and stores to them
# again: what the files have then, and what the mappings show.
import ctypes, os

PAGE, END = 4096, 1000
c = ctypes.CDLL(None, use_errno=True)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def fallocate(fd, mode, offset, length):
    if c.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')


def runs(data):
    found = []
    for byte in data:
        if found and found[-1][0] == byte:
            found[-1][1] += 1
        else:
            found.append([byte, 1])
    return [(chr(byte) if byte else 0, count) for byte, count in found]


with open('source', 'wb') as file:
    file.write(b's' * 2 * PAGE)
source = os.open('source', os.O_RDONLY)


def up_down_and_up(fd):
    os.ftruncate(fd, 3 * PAGE)
    os.ftruncate(fd, END + 1)
    os.ftruncate(fd, 2 * PAGE)


grow = {
    'ftruncate': lambda fd: os.ftruncate(fd, 9000),
    'ftruncate within the page': lambda fd: os.ftruncate(fd, 3000),
    'ftruncate by a byte': lambda fd: os.ftruncate(fd, END + 1),
    'ftruncate to the same': lambda fd: os.ftruncate(fd, END),
    'up, down and up': up_down_and_up,
    'truncate by the path': lambda fd: os.truncate(f'/proc/self/fd/{fd}', 9000),
    'fallocate': lambda fd: fallocate(fd, 0, 5000, 3000),
    'fallocate within the page': lambda fd: fallocate(fd, 0, 0, 3000),
    'zero range': lambda fd: fallocate(fd, 16, 5000, 3000),
    'copy': lambda fd: os.copy_file_range(source, fd, PAGE, 0, 2 * PAGE),
    'append': lambda fd: os.pwrite(fd, b'a' * 10, END),
}
for name, act in grow.items():
    for is_dirty in (True, False):
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.write(fd, b'c' * END)
        address = c.mmap(None, PAGE, 3, 1, fd, 0)
        memory = (ctypes.c_char * PAGE).from_address(address)
        # What is mapped is in memory, and is not dirty, or is.
        assert memory[0] == b'c'
        if is_dirty:
            memory[END:PAGE] = b'g' * (PAGE - END)
            memory[10:20] = b'm' * 10
        act(fd)
        size = os.fstat(fd).st_size
        print(name, is_dirty, runs(os.pread(fd, 5 * PAGE, 0)), runs(memory[:min(size, PAGE)]))
        if size > END + 100:
            # This is content, whenever the kernel brings it.
            memory[END + 50:END + 60] = b'l' * 10
            print('stored', runs(memory[:min(size, PAGE)]))
            os.fsync(fd)
            memory[END + 70:END + 80] = b'l' * 10
        c.munmap(address, PAGE)
        os.close(fd)
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        print('then', runs(os.pread(fd, 5 * PAGE, 0)))
        os.close(fd)
