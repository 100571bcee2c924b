# Users who own a file, are in its group, or are strangers, change what they may and may not, and
# make files in directories of all kinds: what each call came to, and the mode, owner, group and
# attributes then.
import errno, fcntl, os, struct, subprocess

ACL = ((1, 7, 0xffffffff), (2, 6, 3000), (4, 4, 0xffffffff), (16, 6, 0xffffffff), (32, 0, 0xffffffff))
FS_IOC_SETFLAGS, FS_NOATIME_FL = 0x40086602, 0x80
count = 0


def status(path):
    stat = os.lstat(path)
    return oct(stat.st_mode), stat.st_uid, stat.st_gid


def as_user(uid, gid, groups, act):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            result = 'done'
            try:
                act()
            except OSError as error:
                result = errno.errorcode[error.errno]
            os.write(writer, result.encode())
        finally:
            os._exit(0)
    os.close(writer)
    result = os.read(reader, 100).decode()
    os.close(reader)
    os.waitpid(child, 0)
    return result


def shell(line):
    quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
    if subprocess.run(line, shell=True, **quiet).returncode != 0:
        raise OSError(errno.EPERM, line)


def new_name():
    global count
    count += 1
    return f'name-{count}'


def cut(path, flags):
    os.close(os.open(path, flags | os.O_TRUNC))


def set_acl(path):
    value = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in ACL)
    os.setxattr(path, 'system.posix_acl_access', value)


CHANGES = {
    'chown nobody': lambda path: os.chown(path, -1, -1),
    'chown to the owner': lambda path: os.chown(path, 1000, -1),
    'chown to another': lambda path: os.chown(path, 3000, -1),
    'chgrp to 1000': lambda path: os.chown(path, -1, 1000),
    'chgrp to 2000': lambda path: os.chown(path, -1, 2000),
    'chgrp to 9': lambda path: os.chown(path, -1, 9),
    'chmod 777': lambda path: os.chmod(path, 0o777),
    'chmod 6755': lambda path: os.chmod(path, 0o6755),
    'chmod 2000': lambda path: os.chmod(path, 0o2000),
    'utime now': lambda path: os.utime(path),
    'utime': lambda path: os.utime(path, (5, 5)),
    'O_TRUNC': lambda path: cut(path, os.O_WRONLY),
    'O_TRUNC to read': lambda path: cut(path, os.O_RDONLY),
    'truncate': lambda path: os.truncate(path, 3),
    'user.a': lambda path: os.setxattr(path, 'user.a', b'1'),
    'trusted.a': lambda path: os.setxattr(path, 'trusted.a', b'1'),
    'acl': set_acl,
    'flags': lambda path: fcntl.ioctl(os.open(path, os.O_RDONLY), FS_IOC_SETFLAGS, struct.pack('l', FS_NOATIME_FL)),
}
CAPABILITY = bytes.fromhex('0100000200040000' + 24 * '0')
USERS = {'owner': (1000, 1000, [1000]), 'member': (1000, 1000, [1000, 2000]), 'other': (3000, 3000, []),
         'group': (3000, 1000, []), 'root': (0, 0, [])}

os.chmod('.', 0o777)
for mode in (0o644, 0o666, 0o4755, 0o2755, 0o6777, 0o2745):
    for is_file in (True, False):
        for owner in ((1000, 1000), (0, 0), (1000, 2000)):
            for user, (uid, gid, groups) in USERS.items():
                for name, change in CHANGES.items():
                    if not is_file and 'trunc' in name.lower():
                        continue
                    path = new_name()
                    if is_file:
                        with open(path, 'w') as file:
                            file.write('content')
                    else:
                        os.mkdir(path)
                    os.chown(path, *owner)
                    os.chmod(path, mode)
                    # Those that may write to it may take it.
                    if is_file and not mode & 0o022:
                        os.setxattr(path, 'security.capability', CAPABILITY)
                    result = as_user(uid, gid, groups, lambda: change(path))
                    print(oct(mode), is_file, owner, user, name, result, status(path), sorted(os.listxattr(path)))


def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o2777))


def make_unnamed(path):
    fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, 0o2777)
    os.link(f'/proc/self/fd/{fd}', path, follow_symlinks=True)


MAKES = {
    'create': make,
    'mkdir': lambda path: os.mkdir(path, 0o777),
    'mkfifo': lambda path: os.mkfifo(path, 0o2777),
    'symlink': lambda path: os.symlink('x', path),
    'tmpfile': make_unnamed,
    'mkdir and chmod': lambda path: (os.mkdir(path), os.chmod(path, 0o2755)),
    'cp': lambda path: shell(f'cp /bin/true {path}'),
    'cp -p': lambda path: shell(f'cp -p /bin/true {path}'),
    'cp -a': lambda path: shell(f'cp -a name-1 {path}'),
    'install': lambda path: shell(f'install -m 6755 /bin/true {path}'),
}


def attributes(path):
    if not os.path.lexists(path) or os.path.islink(path):
        return os.path.lexists(path)
    return status(path), [(name, os.getxattr(path, name).hex()) for name in sorted(os.listxattr(path))]


for mode in (0o2777, 0o777, 0o3777, 0o2770):
    for acl in (None, 'd:u:3000:rwx,d:g::r-x', 'd:u::rwx,d:g::-,d:o::-'):
        directory = new_name()
        os.mkdir(directory)
        os.chown(directory, 0, 2000)
        os.chmod(directory, mode)
        if acl:
            subprocess.check_call(['setfacl', '-m', acl, directory])
        for user in ((1000, 1000, []), (1000, 1000, [2000]), (0, 0, [])):
            for name, act in MAKES.items():
                path = f'{directory}/{new_name()}'
                result = as_user(*user, lambda: act(path))
                print(oct(mode), acl, user, name, result, attributes(path))
        for uid in (1000, 3000):
            path = f'{directory}/{sorted(os.listdir(directory))[0]}'
            for name, act in (('unlink', lambda: os.unlink(path)), ('rename', lambda: os.rename(path, path + '-new'))):
                print(name, uid, as_user(uid, uid, [], act))
