//! Mounts of images of virtual machines in the format qcow2.

use std::fs::{self, File};
use std::io::Write;

use larder_testkit::{KernelMount, oracle};

use crate::support::{Mounted, larder, shell, succeed};

#[test]
fn what_was_synced_outlives_a_killed_server() {
    let mut mounted = Mounted::unmounted();
    shell(mounted.folder(), "qemu-img create -q -f qcow2 disk.img 2G");
    succeed(larder().args(["mkfs", "-q"]).arg(mounted.image()));
    mounted.serve(&[]);
    let content = vec![0x5A; 3 << 20];
    fs::write(mounted.join("committed"), &content).unwrap();
    succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
    let mut file = File::create(mounted.join("synced")).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    mounted.kill();
    shell(mounted.folder(), "qemu-img convert -O raw disk.img raw");
    let raw = mounted.folder().join("raw");
    let kernel = KernelMount::open(&[raw], "");
    for name in ["committed", "synced"] {
        assert!(fs::read(kernel.path().join(name)).unwrap() == content, "{name}");
    }
    drop(kernel);
    // What the killed server had given out and not written down may be lost to the image.
    let checked = "qemu-img check -q disk.img || [ $? -eq 3 ]";
    shell(mounted.folder(), checked);
    // A log is replayed, and the image goes on.
    mounted.mount(&[]);
    assert!(fs::read(mounted.join("synced")).unwrap() == content);
    fs::write(mounted.join("later"), &content).unwrap();
    mounted.unmount();
    shell(mounted.folder(), checked);
    shell(mounted.folder(), "qemu-img convert -O raw disk.img raw");
    let raw = mounted.folder().join("raw");
    oracle::check(&[raw], true).unwrap_or_else(|error| panic!("{error}"));
}
