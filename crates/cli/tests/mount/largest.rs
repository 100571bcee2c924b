//! Files of the maximum length, 2^63 - 1 bytes: the result of each call near the end, compared with
//! the kernel's, and that nothing else stumbles over them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use larder_testkit::{ImageSpec, KernelImage, KernelMount};

use crate::support::{Mounted, assert_same_lines, larder, python, succeed};

const MOST: u64 = i64::MAX as u64;

#[test]
pub(crate) fn calls_near_the_largest_offset_do_the_same_as_on_the_kernels() {
    let mut mounted = Mounted::new();
    let kernel = KernelImage::empty(&ImageSpec::new("largest"));
    let script = include_str!("largest.py");
    let expected = python(kernel.mount("").path(), script, &[]);
    let seen = python(&mounted.path(), script, &[]);
    assert_same_lines(&seen, &expected);
    assert!(seen.lines().count() > 400);
    mounted.unmount();
    mounted.check();
    assert_is_longest(&KernelMount::open(&[mounted.image()], "ro").path().join("f"));
}

#[track_caller]
fn assert_is_longest(path: &Path) {
    let file = File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), MOST);
    let mut end = [1; 4];
    file.read_exact_at(&mut end, MOST - 4).unwrap();
    assert_eq!(&end, b"\0end");
}

/// As a snapshot and as an increment, from larder's mount to the kernel's and on to an image.
#[test]
fn the_longest_files_are_sent_and_received() {
    let mounted = Mounted::new();
    let in_folder = |name: &str| mounted.folder().join(name);
    let snapshot = |name: &str| {
        let subvolume = ["subvolume", "snapshot", "-r", "source", name];
        succeed(larder().args(subvolume).current_dir(mounted.path()));
    };
    succeed(larder().args(["subvolume", "create"]).arg(mounted.join("source")));
    let file = File::create_new(mounted.join("source/f")).unwrap();
    file.set_len(MOST).unwrap();
    snapshot("one");
    file.write_all_at(b"end", MOST - 3).unwrap();
    snapshot("two");
    let image = KernelImage::empty(&ImageSpec::new("largest-received"));
    let kernel = image.mount("");
    let last = in_folder("last.img");
    succeed(larder().args(["mkfs", "-q", "-b", "256M"]).arg(&last));
    for (name, parent) in [("one", None), ("two", Some("one"))] {
        let send = |mut program: Command, place: &Path, stream: &Path| {
            program.arg("send").arg("-f").arg(stream).current_dir(place);
            parent.map(|parent| program.args(["-p", parent]));
            succeed(program.arg(name));
        };
        let (ours, kernels) = (in_folder("ours"), in_folder("kernels"));
        send(larder(), &mounted.path(), &ours);
        succeed(Command::new("btrfs").args(["receive", "-f"]).arg(&ours).arg(kernel.path()));
        send(Command::new("btrfs"), kernel.path(), &kernels);
        succeed(larder().args(["receive", "-f"]).arg(&kernels).arg(&last));
    }
    assert_is_longest(&kernel.path().join("two/f"));
    assert_eq!(File::open(kernel.path().join("one/f")).unwrap().metadata().unwrap().len(), MOST);
    succeed(larder().args(["check", "--check-data-csum"]).arg(&last));
    assert_is_longest(&KernelMount::open(&[last], "ro").path().join("two/f"));
    drop(file);
    mounted.shell("rm source/f");
}
