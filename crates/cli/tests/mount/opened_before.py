# What is open for writing when its subvolume becomes read-only (s), or it becomes immutable (i) or
# append-only (a): what each call through the descriptors comes to, and what the file is then.
# Arguments: the command that makes @ read-only.
import ctypes, errno, fcntl, hashlib, mmap, os, subprocess, sys

c = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, offset, length):
    if c.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')


def call(name, act):
    try:
        act()
        result = 'done'
    except OSError as error:
        result = errno.errorcode[error.errno]
    print(what, name, result, os.fstat(fd).st_size)


for what in ('s', 'i', 'a'):
    directory = 's' if what == 's' else '.'
    path = f'{directory}/f-{what}'
    for name, byte in ((path, b'7'), ('source', b's')):
        with open(name, 'wb') as file:
            file.write(byte * 50000)
    fd = os.open(path, os.O_RDWR)
    reader = os.open(path, os.O_RDONLY)
    append = os.open(path, os.O_RDWR | os.O_APPEND)
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    source = os.open('source', os.O_RDWR)
    folder = os.open(directory, os.O_RDONLY)
    buffer = mmap.mmap(-1, 4096)
    os.fsync(fd)
    protect = [word.replace('@', 's') for word in sys.argv[1:]] if what == 's' else ['chattr', '+' + what, path]
    subprocess.check_call(protect)
    call('write', lambda: os.pwrite(fd, b'w', 5))
    call('write past the end', lambda: os.pwrite(fd, b'w', 60000))
    call('append', lambda: os.write(append, b'w'))
    call('pwrite to append', lambda: os.pwrite(append, b'w', 0))
    call('direct', lambda: os.pwrite(direct, buffer, 4096))
    call('map for reading', lambda: mmap.mmap(reader, 4096, prot=mmap.PROT_READ))
    for mode in (0, 1, 3, 16, 17):
        for offset in (0, 100000):
            call(f'fallocate {mode} {offset}', lambda: fallocate(fd, mode, offset, 8192))
        call(f'fallocate to append {mode}', lambda: fallocate(append, mode, 200000, 8192))
    call('ftruncate to the same', lambda: os.ftruncate(fd, os.fstat(fd).st_size))
    call('ftruncate up', lambda: os.ftruncate(fd, 200000))
    call('ftruncate down', lambda: os.ftruncate(fd, 40000))
    call('ftruncate to append', lambda: os.ftruncate(append, 40000))
    call('copy into', lambda: os.copy_file_range(source, fd, 4096, 0, 0))
    call('copy into without sectors', lambda: os.copy_file_range(source, fd, 5000, 100, 9000))
    call('copy past the end', lambda: os.copy_file_range(source, fd, 4096, 0, 300000))
    call('copy to append', lambda: os.copy_file_range(source, append, 4096, 0, 300000))
    call('copy within', lambda: os.copy_file_range(fd, fd, 4096, 0, 8192))
    call('copy from', lambda: os.copy_file_range(fd, source, 4096, 0, 8192))
    call('setxattr', lambda: os.setxattr(fd, 'user.a', b'1'))
    call('removexattr', lambda: os.removexattr(fd, 'user.a'))
    call('utimes to now', lambda: os.utime(fd))
    call('utimes', lambda: os.utime(fd, (1, 1)))
    call('fchmod', lambda: os.fchmod(fd, 0o640))
    call('fchown', lambda: os.fchown(fd, 5, 5))
    call('fchown to nobody', lambda: os.fchown(fd, -1, -1))
    call('flags', lambda: fcntl.ioctl(fd, 0x80086601, bytes(8)))
    call('fsync', lambda: os.fsync(fd))
    call('fdatasync', lambda: os.fdatasync(fd))
    call('open again', lambda: os.open(f'/proc/self/fd/{fd}', os.O_RDWR))
    call('open again to append', lambda: os.open(f'/proc/self/fd/{fd}', os.O_RDWR | os.O_APPEND))
    call('mkdir', lambda: os.mkdir('new' + what, dir_fd=folder))
    call('lock', lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
    with open(path, 'rb') as file:
        content = hashlib.md5(file.read()).hexdigest()
    stat = os.stat(path)
    print(what, content, stat.st_blocks, oct(stat.st_mode), stat.st_uid)
    if what != 's':
        subprocess.check_call(['chattr', '-' + what, path])
