//! A file loses setuid, setgid and capabilities when another user changes it, by whatever call, and
//! at once; compared with the kernel's.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use larder_testkit::{ImageSpec, KernelImage};

use crate::support::{Mounted, as_nobody, assert_same_lines, python, succeed};

/// Changes files of all modes in all ways, and prints the mode that each has then: through its
/// descriptor, and by its name.
const CHANGE_ALL: &str = r"
import ctypes, mmap, os, sys
c = ctypes.CDLL(None, use_errno=True)

def fallocate(fd, mode, offset, length):
    if c.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno())

def map_and_write(fd):
    memory = mmap.mmap(fd, 4096)
    memory[0:3] = b'new'
    memory.flush()

other = os.open('other', os.O_RDONLY)
changes = {
    'write': lambda fd, path: os.pwrite(fd, b'changed', 0),
    'grow': lambda fd, path: os.pwrite(fd, b'grown', 100000),
    'ftruncate': lambda fd, path: os.ftruncate(fd, 5),
    'truncate': lambda fd, path: os.truncate(path, 100),
    'O_TRUNC': lambda fd, path: os.open(path, os.O_WRONLY | os.O_TRUNC),
    'allocate': lambda fd, path: fallocate(fd, 0, 0, 20000),
    'punch': lambda fd, path: fallocate(fd, 3, 0, 4096),
    'zero': lambda fd, path: fallocate(fd, 16, 0, 4096),
    'copy': lambda fd, path: os.copy_file_range(other, fd, 4096, 0, 0),
    'map': lambda fd, path: map_and_write(fd),
    'read': lambda fd, path: os.pread(fd, 10, 0),
}
for name, change in changes.items():
    for mode in sys.argv[2:]:
        path = f'{sys.argv[1]}-{name}-{mode}'
        fd = os.open(path, os.O_RDWR)
        change(fd, path)
        print(path, oct(os.fstat(fd).st_mode), oct(os.stat(path).st_mode))
";
const CHANGES: [&str; 11] = [
    "write",
    "grow",
    "ftruncate",
    "truncate",
    "O_TRUNC",
    "allocate",
    "punch",
    "zero",
    "copy",
    "map",
    "read",
];
const MODES: [&str; 6] = ["4777", "2777", "6777", "2767", "6666", "777"];

/// The modes of the files in `folder` after each change, by root and by nobody.
fn modes_after(folder: &Path) -> String {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let prepare = |name: &str, mode: &str| {
        let path = folder.join(name);
        fs::write(&path, vec![5; 8192]).unwrap();
        let mode = u32::from_str_radix(mode, 8).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    };
    prepare("other", "644");
    let python = "/usr/bin/python3";
    let users = [("root", Command::new(python)), ("nobody", as_nobody(python))];
    let changed = users.map(|(user, mut program)| {
        for change in CHANGES {
            for mode in MODES {
                prepare(&format!("{user}-{change}-{mode}"), mode);
            }
        }
        program.args(["-c", CHANGE_ALL, user]).args(MODES).current_dir(folder);
        succeed(&mut program)
    });
    changed.concat()
}

#[test]
pub(crate) fn changing_a_file_removes_the_same_as_on_the_kernels() {
    let mut ours = Mounted::unmounted();
    fs::set_permissions(ours.folder(), Permissions::from_mode(0o755)).unwrap();
    ours.mount(&["-o", "allow_other", "--create", "1G"]);
    let kernel = KernelImage::empty(&ImageSpec::new("privileges"));
    let expected = modes_after(kernel.mount("").path());
    let seen = modes_after(&ours.path());
    for (seen, expected) in seen.lines().zip(expected.lines()) {
        assert_eq!(seen, expected);
    }
    assert_eq!(seen.lines().count(), 2 * CHANGES.len() * MODES.len());
    // The modes that the kernel caches are those on disk.
    ours.unmount();
    ours.mount(&["-o", "allow_other"]);
    for line in seen.lines() {
        let (name, modes) = line.split_once(' ').unwrap();
        let mode = fs::metadata(ours.join(name)).unwrap().permissions().mode();
        assert!(modes.ends_with(&format!("0o{mode:o}")), "{line}");
    }
    ours.finish();
}

/// Owners, members of groups and strangers: what each may change, and what their new files inherit.
#[test]
fn users_may_do_the_same_as_on_the_kernels() {
    let kernel = KernelImage::empty(&ImageSpec::new("users"));
    let script = include_str!("users.py");
    let expected = python(kernel.mount("").path(), script, &[]);
    for options in ["allow_other", "allow_other,writeback_cache"] {
        let mut ours = Mounted::unmounted();
        fs::set_permissions(ours.folder(), Permissions::from_mode(0o755)).unwrap();
        ours.mount(&["-o", options, "--create", "1G"]);
        let seen = python(&ours.path(), script, &[]);
        assert_same_lines(&seen, &expected);
        assert!(seen.lines().count() > 3000);
        // With writeback_cache the kernel's times of changes by ioctl differ a little.
        ours.unmount();
        ours.check();
    }
}
