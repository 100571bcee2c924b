"""Makes every privileged ioctl of btrfs, and prints how each ends: on the kernel's btrfs (with the
argument "kernel") or on a mount of larder. Works in the directory that the caller sees."""

import ctypes
import errno
import fcntl
import os
import struct
import sys

IS_KERNEL = sys.argv[1] == 'kernel'
OUTSIDE_ID, OUTSIDE_INODE, INSIDE_ID, LOGICAL = map(int, sys.argv[2:6])
ENVELOPE = 3 << 30 | 16376 << 16 | ord('L') << 8 | 1
TOKEN = 2 << 30 | 16 << 16 | ord('L') << 8 | 4


def plain(path, request, data):
    fd = os.open(path, os.O_RDONLY)
    try:
        data = bytearray(data)
        fcntl.ioctl(fd, request, data, True)
        return bytes(data)
    finally:
        os.close(fd)


def enveloped(path, request, data):
    head = struct.pack('<IIII', 1, request & 0xFFFFFFFF, len(data), 0)
    return plain(path, ENVELOPE, (head + data).ljust(16376, b'\0'))


def name(text):
    return struct.pack('<q', 0) + text.encode().ljust(4088, b'\0')


def snapshot(source, text):
    fd = os.open(source, os.O_RDONLY)
    if IS_KERNEL:
        data = struct.pack('<qQQ32x', fd, 0, 0) + text.encode().ljust(4040, b'\0')
        plain('.', 0x50009417, data)
    else:
        token = plain(source, TOKEN, bytes(16))
        data = struct.pack('<qQQ', 0, 0, 0) + token + bytes(16) + text.encode().ljust(4040, b'\0')
        enveloped('.', 0x50009417, data)
    os.close(fd)


def delete_by_id(number):
    plain('.', 0x5000943F, struct.pack('<qQQ32xQ', 0, 0, 16, number).ljust(4096, b'\0'))


def with_container(request, first):
    room = 4096
    if IS_KERNEL:
        container = ctypes.create_string_buffer(room)
        data = struct.pack('<QQ32xQ', first, room, ctypes.addressof(container))
        plain('.', request, data)
    else:
        enveloped('.', request, struct.pack('<QQ32xQ', first, room, 0) + bytes(room))


def search():
    low, high = (0, 0, 0), (2**64 - 1,) * 3
    key = struct.pack('<QQQQQQQIIII32x', 5, low[0], high[0], low[1], high[1], low[2], high[2],
                      0, 255, 4096, 0)
    plain('.', 0xD0009411, key.ljust(4096, b'\0'))


def make(path, text):
    plain(path, 0x5000940E, name(text))


def mode_of_new(directory, umask):
    os.umask(umask)
    make(directory, 'with-umask')
    return oct(os.stat(f'{directory}/with-umask').st_mode)


CALLS = {
    'search a tree': search,
    'path in another subvolume': lambda: plain('.', 0xD0009412, struct.pack('<QQ', OUTSIDE_ID, OUTSIDE_INODE).ljust(4096, b'\0')) and None,
    'which subvolume': lambda: plain('.', 0xD0009412, struct.pack('<QQ', 0, 256).ljust(4096, b'\0')) and None,
    'paths of an inode': lambda: with_container(0xC0389423, os.stat('.').st_ino),
    'files at an address': lambda: with_container(0xC0389424, LOGICAL),
    'set the label': lambda: plain('.', 0x41009432, b'x'.ljust(256, b'\0')) and None,
    'set the default': lambda: plain('.', 0x40089413, struct.pack('<Q', 5)) and None,
    'reset counts': lambda: plain('.', 0xC4089434, struct.pack('<QQQ', 1, 5, 1).ljust(1032, b'\0')) and None,
    'make a subvolume': lambda: make('.', 'made'),
    'make one in a directory of another': lambda: make('theirs', 'made'),
    'snapshot of an own one': lambda: snapshot('own', 'of-own'),
    'snapshot of one of another': lambda: snapshot('another', 'of-another'),
    'make an own one read-only': lambda: plain('own', 0x4008941A, struct.pack('<Q', 2)) and None,
    'make one of another read-only': lambda: plain('another', 0x4008941A, struct.pack('<Q', 2)) and None,
    'make them writable': lambda: [plain(it, 0x4008941A, struct.pack('<Q', 0)) for it in ('own', 'another')] and None,
    'delete by name': lambda: plain('.', 0x5000940F, name('made')) and None,
    'delete by id below': lambda: delete_by_id(INSIDE_ID),
    'delete by id elsewhere': lambda: delete_by_id(OUTSIDE_ID),
    'mode of a new one': lambda: mode_of_new('.', 0o027),
    'mode without umask': lambda: mode_of_new('empty', 0),
    'mode with a default ACL': lambda: mode_of_new('acl', 0o027),
    'mode with a default ACL alone': lambda: mode_of_new('narrow', 0),
}
for what, call in CALLS.items():
    try:
        print(f'{what}: {call() or "allowed"}')
    except OSError as error:
        print(f'{what}: {errno.errorcode.get(error.errno, error.errno)}')
