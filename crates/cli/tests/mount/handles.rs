//! File handles: `name_to_handle_at` gives one that leads to the file later, whatever the kernel
//! has forgotten.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Mounted, larder, succeed, wait_until};

/// Prints the handle of a path, or the inode number and content of a handle, or the error.
const HANDLES: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
union { struct file_handle h; char room[sizeof(struct file_handle) + MAX_HANDLE_SZ]; } u;
int main(int argc, char **argv) {
    char content[64] = "";
    struct stat s;
    int id;
    if (argc == 2) {
        u.h.handle_bytes = MAX_HANDLE_SZ;
        if (name_to_handle_at(AT_FDCWD, argv[1], &u.h, &id, 0)) return 1;
        printf("%d", u.h.handle_type);
        for (unsigned i = 0; i < u.h.handle_bytes; i++) printf(" %d", u.h.f_handle[i]);
        return 0;
    }
    u.h.handle_type = atoi(argv[2]);
    u.h.handle_bytes = argc - 3;
    for (int i = 3; i < argc; i++) u.h.f_handle[i - 3] = atoi(argv[i]);
    int mount = open(argv[1], O_RDONLY | O_DIRECTORY);
    int file = open_by_handle_at(mount, &u.h, O_RDONLY);
    if (file < 0 || fstat(file, &s)) { printf("%s", strerrorname_np(errno)); return 0; }
    if (read(file, content, sizeof content - 1) < 0) strcpy(content, "a directory");
    printf("%lu %s", (unsigned long)s.st_ino, content);
}
"#;

struct Handles {
    program: PathBuf,
}

impl Handles {
    fn new(folder: &Path) -> Self {
        let (source, program) = (folder.join("handles.c"), folder.join("handles"));
        fs::write(&source, HANDLES).unwrap();
        succeed(Command::new("cc").arg("-o").arg(&program).arg(&source));
        Self { program }
    }

    fn of(&self, path: PathBuf) -> String {
        succeed(Command::new(&self.program).arg(path))
    }

    fn open(&self, mount: &Path, handle: &str) -> String {
        succeed(Command::new(&self.program).arg(mount).args(handle.split(' ')))
    }
}

#[test]
pub(crate) fn handles_lead_to_inodes_that_the_kernel_has_forgotten() {
    let mut mounted = Mounted::new();
    let handles = Handles::new(mounted.folder());
    let subvolume = |mounted: &Mounted, arguments: &[&str]| {
        succeed(larder().arg("subvolume").args(arguments).current_dir(mounted.path()));
    };
    mounted.shell("mkdir -p a/b; echo f > a/b/f; echo gone > gone");
    subvolume(&mounted, &["create", "sub"]);
    mounted.shell("mkdir sub/d; echo g > sub/d/g; ls -lR > /dev/null");
    subvolume(&mounted, &["snapshot", "sub", "snapshot"]);
    let paths = ["", "a", "a/b", "a/b/f", "sub", "sub/d", "sub/d/g", "snapshot/d/g"];
    let shown = |mounted: &Mounted, all: &[String]| {
        all.iter().map(|handle| handles.open(&mounted.path(), handle)).collect::<Vec<_>>()
    };
    let all = paths.map(|path| handles.of(mounted.join(path)));
    let before = shown(&mounted, &all);
    assert!(before[3].ends_with(" f\n") && before[6].ends_with(" g\n"), "{before:?}");
    let (of_gone, of_snapshot) = (handles.of(mounted.join("gone")), all[7].clone());
    fs::remove_file(mounted.join("gone")).unwrap();
    // The kernel closes the file of a program that has ended in its own time.
    wait_until("it is gone", || handles.open(&mounted.path(), &of_gone) == "ESTALE");
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    assert_eq!(shown(&mounted, &all), before);
    for _ in 0..2 {
        mounted.unmount();
        mounted.mount(&[]);
        // Nothing was looked up, and none of them is in memory.
        assert_eq!(shown(&mounted, &all), before);
        assert_eq!(handles.open(&mounted.path(), &of_gone), "ESTALE");
    }
    // Once the file system was closed, its number may belong to another.
    subvolume(&mounted, &["delete", "snapshot"]);
    assert_eq!(handles.open(&mounted.path(), &of_snapshot), "ESTALE");
    mounted.unmount();
    mounted.mount(&[]);
    subvolume(&mounted, &["snapshot", "sub", "snapshot"]);
    assert_ne!(handles.of(mounted.join("snapshot/d/g")), of_snapshot);
    assert_eq!(handles.open(&mounted.path(), &of_snapshot), "ESTALE");
    mounted.finish();
}
