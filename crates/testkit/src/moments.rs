//! States of an image at moments within a balance of the kernel: each is what a power cut could
//! leave.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice::from_ref;

use crate::{KernelMount, Scratch, command, oracle};

/// Balances that are tried, until a copy was taken within a relocation.
const ATTEMPTS: usize = 20;

/// Copies of an image that the kernel balanced meanwhile. The image is on a file system of its own,
/// where a clone of a file is taken at one moment.
pub struct Moments {
    /// Those that have relocation trees.
    pub within_relocations: Vec<PathBuf>,
    /// Those that have none.
    pub between: Vec<PathBuf>,
    _outer: KernelMount,
    _scratch: Scratch,
}

impl Moments {
    /// Balances an image with small files and snapshots, until at least one copy was taken within a
    /// relocation.
    pub fn of_a_balance() -> Self {
        let scratch = Scratch::new();
        let outer = scratch.sparse_file("outer", 2 << 30);
        command::run("mkfs.btrfs", ["-q".as_ref(), outer.as_os_str()]).expect("made");
        let outer = KernelMount::open(&[outer], "nodatasum");
        let inner = outer.path().join("inner");
        let mount = fill(&inner);
        for _ in 0..ATTEMPTS {
            let copies = balance(&mount, &inner, outer.path());
            let (within_relocations, between): (Vec<_>, Vec<_>) =
                copies.into_iter().partition(has_relocation);
            if !within_relocations.is_empty() {
                drop(mount);
                return Self { within_relocations, between, _outer: outer, _scratch: scratch };
            }
            for copy in between {
                fs::remove_file(copy).expect("it is there");
            }
        }
        panic!("no copy was taken within a relocation");
    }
}

/// Makes the image, and fills it.
fn fill(inner: &Path) -> KernelMount {
    File::create(inner).and_then(|file| file.set_len(600 << 20)).expect("made");
    let make = ["-q", "-n", "4096"].map(OsStr::new).into_iter().chain([inner.as_os_str()]);
    command::run("mkfs.btrfs", make).expect("made");
    let mount = KernelMount::open(&[inner.to_owned()], "");
    for round in 0..3 {
        let folder = mount.path().join(format!("folder{round}"));
        fs::create_dir(&folder).expect("made");
        for number in 0..1000 {
            fs::write(folder.join(format!("file{number}")), [round]).expect("written");
        }
        fs::write(folder.join("long"), vec![round; 1 << 20]).expect("written");
        let snapshot = mount.path().join(format!("snapshot{round}"));
        let words = ["-q", "subvolume", "snapshot"].map(OsStr::new);
        let paths = [mount.path().as_os_str(), snapshot.as_os_str()];
        command::run("btrfs", words.into_iter().chain(paths)).expect("taken");
    }
    mount.sync();
    mount
}

/// Balances a mount, and clones its image into `folder` again and again meanwhile.
fn balance(mount: &KernelMount, inner: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut balance = Command::new("btrfs")
        .args(["balance", "start", "--full-balance"])
        .arg(mount.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("btrfs starts");
    let mut copies = Vec::new();
    while balance.try_wait().expect("it is a child").is_none() {
        let copy = folder.join(format!("copy{}", copies.len()));
        let cloned = ["--reflink=always".as_ref(), inner.as_os_str(), copy.as_os_str()];
        command::run("cp", cloned).expect("cloned");
        copies.push(copy);
    }
    copies
}

fn has_relocation(copy: &PathBuf) -> bool {
    let found = oracle::dump_tree(from_ref(copy), &["-t", "root"]);
    found.is_ok_and(|tree| tree.contains("(TREE_RELOC ROOT_ITEM"))
}
