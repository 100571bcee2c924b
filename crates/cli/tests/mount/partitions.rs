//! Mounts of partitions of an image.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use larder_testkit::{LoopDevice, Scratch};

use crate::support::{larder, shell, succeed, wait_until};

#[test]
fn a_partition_is_mounted_and_found_again() {
    let scratch = Scratch::new();
    let image = scratch.sparse_file("disk", 512 << 20);
    let folder = scratch.path();
    shell(folder, "printf 'label: gpt\\nsize=200M\\nsize=200M\\n' | sfdisk --quiet disk");
    shell(folder, "mkdir a b");
    for number in ["1", "2"] {
        succeed(larder().args(["mkfs", "-q", "--partition", number]).arg(&image));
    }
    let mount = |options: &[&str], place: &str| {
        let mut command = larder();
        let command = command.arg("mount").args(options).arg(&image).arg(folder.join(place));
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    };
    let ambiguous = mount(&[], "a").unwrap_err();
    assert!(ambiguous.contains("btrfs is in several partitions"), "{ambiguous}");
    mount(&["--partition", "1"], "a").unwrap();
    fs::File::create(folder.join("a/file")).unwrap().write_all(b"content").unwrap();
    let ambiguous = mount(&[], "b").unwrap_err();
    let other = mount(&["-o", "partition=2"], "b").unwrap_err();
    let same = mount(&["--offset", "1M"], "b");
    let shown = fs::read(folder.join("b/file"));
    let remounted = succeed(larder().args(["mount", "-o", "remount,ro"]).arg(folder.join("b")));
    let moved =
        larder().args(["mount", "-o", "remount,rw,partition=2"]).arg(folder.join("b")).output();
    let read = larder().args(["ls", "--partition", "2"]).arg(&image).output().unwrap();
    let wrote =
        larder().args(["mkdir", "--partition=2", &format!("{}:/d", image.display())]).output();
    let stats = succeed(larder().args(["device", "stats"]).arg(&image));
    for place in ["a", "b"] {
        let unmounts =
            || larder().arg("umount").arg(folder.join(place)).status().unwrap().success();
        wait_until("it is unmounted", unmounts);
    }
    assert!(ambiguous.contains("btrfs is in several partitions"), "{ambiguous}");
    assert!(other.contains("another part of it is mounted"), "{other}");
    same.unwrap();
    assert_eq!(shown.unwrap(), b"content");
    assert_eq!(remounted, "");
    assert!(stats.contains(&format!("[{}].write_io_errs", image.display())), "{stats}");
    assert!(!moved.unwrap().status.success());
    assert!(read.status.success());
    let wrote = String::from_utf8_lossy(&wrote.unwrap().stderr).into_owned();
    assert!(wrote.contains("mounted at"), "{wrote}");
    let listed = succeed(larder().args(["ls", "--partition", "1"]).arg(&image));
    assert_eq!(listed, "file\n");
    succeed(larder().args(["check", "--check-data-csum", "--partition", "1"]).arg(&image));
}

#[test]
fn a_partition_with_a_node_is_the_same_by_both_names() {
    let scratch = Scratch::new();
    let image = scratch.sparse_file("disk", 256 << 20);
    let folder = scratch.path();
    shell(folder, "printf 'label: gpt\\nsize=200M\\n' | sfdisk --quiet disk");
    shell(folder, "mkdir a b c");
    let disk = LoopDevice::attach_disk(&image);
    let disk = disk.path().to_str().expect("it is text");
    succeed(Command::new("partx").args(["--update", disk]));
    let node = format!("{disk}p1");
    succeed(larder().args(["mkfs", "-q", &node]));
    succeed(larder().args(["mount", &node]).arg(folder.join("a")));
    let further = [("--partition=1", disk, "b"), ("--offset=0", &node, "c")];
    let further = further.map(|(place, device, name)| {
        larder().args(["mount", place, device]).arg(folder.join(name)).output().unwrap()
    });
    for name in ["c", "b", "a"] {
        let _ = larder().arg("umount").arg(folder.join(name)).status();
    }
    for output in further {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    succeed(larder().args(["check", disk]));
}
