//! Programs, one after another on one mount.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::measure::drop_caches;
use crate::mounts::{Side, shell};
use crate::program::larder_program;

/// The kernel's caches of the mount when a program starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caches {
    /// As the programs before it left them.
    Warm,
    /// Empty: no pages, names or attributes.
    Cold,
}
use Caches::{Cold, Warm};

/// A row of the table, the caches, and the shell command. `$M` is the directory of the material,
/// `$LARDER` the program on mounts of larder. What has no row is not measured.
const PROGRAMS: &[(&str, Caches, &str)] = &[
    ("tar -x", Warm, "tar -xf $M/tree.tar"),
    ("cp -a", Warm, "cp -a $M/tree copy"),
    ("rsync -a, nothing to do", Warm, "rsync -a $M/tree/ copy/"),
    ("ls -lR, warm", Warm, "ls -lR copy"),
    ("du -s, warm", Warm, "du -s copy"),
    ("find -printf %s, warm", Warm, "find copy -printf '%s\\n'"),
    ("grep -r, cold", Cold, "grep -r nothing-has-this-word copy || true"),
    ("tar -c, cold", Cold, "tar -c copy | cat"),
    ("cp -a within, cold", Cold, "cp -a --reflink=never copy again"),
    ("chmod -R", Warm, "chmod -R g+w again"),
    ("tar -x, empty files", Warm, "tar -xf $M/empty.tar"),
    ("find -name, cold", Cold, "find empty -name nothing"),
    ("find -printf %s, cold", Cold, "find empty -printf '%s\\n'"),
    ("du -s, cold", Cold, "du -s empty"),
    ("ls -lR, cold", Cold, "ls -lR empty"),
    ("rm -rf, empty files", Warm, "rm -rf empty"),
    ("rm -rf, the copy", Warm, "rm -rf copy"),
    ("rm -rf, cold", Cold, "rm -rf again"),
    ("write 1 GiB, fsync", Warm, "dd if=/dev/zero of=f bs=1M count=1024 conv=fsync"),
    ("read it, cold", Cold, "cat f"),
    ("fio, random reads, cold", Cold, "random --rw=randread --io_size=64m"),
    ("fio, random reads, 16 jobs, cold", Cold, "random --rw=randread --io_size=4m --numjobs=16"),
    ("fio, random writes", Warm, "random --rw=randwrite --io_size=64m"),
    ("fio, random writes, 16 jobs", Warm, "random --rw=randwrite --io_size=4m --numjobs=16"),
    ("sqlite, 500 transactions", Warm, "rows 500 | sqlite3 journal.db"),
    (
        "sqlite, 500 transactions, WAL",
        Warm,
        "(echo 'pragma journal_mode=wal;'; rows 500) | sqlite3 wal.db",
    ),
    (
        "sqlite, 200,000 rows at once",
        Warm,
        "(echo 'begin;'; rows 200000; echo 'commit;') | sqlite3 rows.db",
    ),
    ("git add, commit", Warm, "git init -q tree; git -C tree add .; commit -C tree"),
    ("git status", Warm, "git -C tree status"),
    ("git clone", Warm, "git clone -q --no-hardlinks tree cloned"),
    ("git gc", Warm, "git -C cloned gc -q"),
    ("in bulk: cp -a", Warm, "bulk cp -a $M/tree bulk"),
    ("in bulk: tar -x", Warm, "mkdir untarred; unpack $M/tree.tar untarred"),
    ("in bulk: ls -lR, cold", Cold, "bulk ls -lR bulk"),
    ("in bulk: du -s, cold", Cold, "bulk du -s bulk"),
    ("in bulk: tar -c, cold", Cold, "pack bulk | cat"),
    ("in bulk: cp -a within, cold", Cold, "bulk cp -a bulk within"),
    ("in bulk: cp -a out, cold", Cold, "bulk cp -a bulk $M/out"),
    ("", Warm, "rm -r $M/out within"),
    ("in bulk: chmod -R", Warm, "bulk chmod -R g+w bulk"),
    ("in bulk: rm -r", Warm, "bulk rm -r bulk"),
    ("in bulk: rm -r, cold", Cold, "bulk rm -r untarred"),
];

/// Functions for the commands.
const FUNCTIONS: &str = r#"
export HOME=$PWD
random() { fio --name=f --filename=f --bs=4k --size=1g --thread --minimal "$@"; }
rows() {
    echo 'create table t(a integer primary key, b); create index i on t(b);'
    seq "$1" | sed 's/.*/insert into t values(&, random());/'
}
# On mounts of larder, its own commands do what the system's do elsewhere.
bulk() { $LARDER "$@"; }
unpack() { if [ "$LARDER" ]; then $LARDER cp -a - "$2" < "$1"; else tar -xf "$1" -C "$2"; fi; }
pack() { if [ "$LARDER" ]; then $LARDER tar "$1"; else tar -c -C "$1" .; fi; }
# Git would pack objects in the background, while other programs are measured.
commit() { git "$@" -c user.name=a -c user.email=a -c gc.auto=0 commit -qm all; }
"#;

/// Runs all programs below `root`, a mount of `side`, and reports the time of each.
pub fn run(
    root: &Path,
    side: Side,
    material: &Path,
    mut took: impl FnMut(&'static str, Duration),
) -> anyhow::Result<()> {
    let larder = if side == Side::Kernel { PathBuf::new() } else { larder_program()? };
    for (row, caches, line) in PROGRAMS {
        // Unwritten data of a program must not slow the next one.
        shell(root, "sync -f .")?;
        if *caches == Cold {
            drop_caches()?;
        }
        let (material, larder) = (material.display(), larder.display());
        let line = format!("M={material}; LARDER={larder}; {FUNCTIONS}({line}) > /dev/null");
        let start = Instant::now();
        shell(root, &line)?;
        if !row.is_empty() {
            took(row, start.elapsed());
        }
    }
    Ok(())
}
