"""Shows the mount at one directory in another one, with other ids: what the kernel itself does.

Arguments: the directory, the other directory, and the maps of users and of groups, each like
"stored shown count" as in /proc/PID/uid_map, with commas between lines. If the other directory is
"", a program runs in the mount, which is in no place: the other arguments are its words.
"""

import ctypes
import os
import struct
import sys

CLONE_NEWUSER = 0x10000000
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_IDMAP = 1, 4, 0x100000

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


source, target, users, groups, *words = sys.argv[1:]
begun, ends = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(ends[1])
    if libc.unshare(CLONE_NEWUSER) != 0:
        os._exit(1)
    os.write(begun[1], b"x")
    os.read(ends[0], 1)
    os._exit(0)
os.read(begun[0], 1)
for name, lines in ("uid_map", users), ("gid_map", groups):
    with open(f"/proc/{child}/{name}", "w") as file:
        file.write(lines.replace(",", "\n") + "\n")
namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
tree = call(OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE)
attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, namespace)
call(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes))
os.close(ends[1])
os.waitpid(child, 0)
if target:
    call(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH)
else:
    os.fchdir(tree)
    os.execvp(words[0], words)
