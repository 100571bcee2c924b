//! sync(2) and syncfs(2) on mounts of root, and what else follows from their type `fuseblk`.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Mounted, larder, loop_devices, shell, succeed, wait_until};

/// The content of a file on a copy of the image.
fn found(image: &Path, name: &str) -> Option<Vec<u8>> {
    let copy = image.with_extension("copy");
    fs::copy(image, &copy).unwrap();
    let output = larder().arg("cat").arg(format!("{}:/{name}", copy.display())).output().unwrap();
    output.status.success().then_some(output.stdout)
}

/// The output of `findmnt` for the mount.
fn table(mounted: &Mounted, column: &str) -> String {
    let said = shell(mounted.folder(), &format!("findmnt -n -o {column} --mountpoint mnt"));
    said.trim().to_owned()
}

/// Nothing commits except the programs of the test.
const NO_COMMITS: [&str; 4] = ["--create", "300m", "-o", "commit=3600"];

#[test]
pub(crate) fn data_that_programs_synced_is_durable() {
    let mut mounted = Mounted::unmounted();
    mounted.mount(&NO_COMMITS);
    // sync(2) waits for other mounts of this machine too.
    for (name, command) in [("f", "timeout 60 sync -f ."), ("g", "timeout 60 sync")] {
        mounted.shell(&format!("seq 100000 > {name}"));
        assert_eq!(found(&mounted.image(), name), None, "nothing else commits");
        mounted.shell(command);
        let found = found(&mounted.image(), name).expect("it is there");
        assert!(found == fs::read(mounted.join(name)).unwrap());
    }
    mounted.finish();
}

#[test]
pub(crate) fn the_table_of_mounts_leads_to_the_image() {
    let mut mounted = Mounted::new();
    let image = mounted.image();
    assert_eq!(table(&mounted, "FSTYPE"), "fuseblk.larder");
    let device = loop_devices(&image);
    assert_eq!(table(&mounted, "SOURCE"), device.trim());
    // No other program can use the mounted image, not through the loop device either.
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{command:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let expected = format!("mounted at {}", mounted.path().display());
    for target in [image.as_path(), Path::new(device.trim())] {
        let refusal = said(larder().arg("mkdir").arg(format!("{}:/d", target.display())));
        assert!(refusal.contains(&expected), "{refusal}");
    }
    let elsewhere = mounted.folder().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    said(Command::new("mount").args(["-t", "btrfs"]).arg(device.trim()).arg(&elsewhere));
    mounted.unmount();
    wait_until("it is detached", || loop_devices(&image).is_empty());
    mounted.check();
}

/// umount(8), which waits until everything is on the device.
#[test]
pub(crate) fn umount_waits_for_the_last_commit() {
    let mut mounted = Mounted::unmounted();
    mounted.mount(&NO_COMMITS);
    mounted.shell("seq 100000 > f");
    succeed(Command::new("umount").arg("-i").arg(mounted.path()));
    let (image, content) = (mounted.image(), shell(mounted.folder(), "seq 100000"));
    assert_eq!(found(&image, "f").as_deref(), Some(content.as_bytes()));
    wait_until("it is detached", || loop_devices(&image).is_empty());
}

/// A mount for reading has nothing to sync, and leaves the image to other readers.
#[test]
fn mounts_for_reading_have_no_loop_device() {
    let mut mounted = Mounted::new();
    mounted.unmount();
    mounted.mount(&["-o", "ro"]);
    assert_eq!(table(&mounted, "FSTYPE"), "fuse.larder");
    assert_eq!(loop_devices(&mounted.image()), "");
    mounted.unmount();
}

/// In a mount namespace that can end, and the server with it, the kernel might wait for that for
/// ever.
#[test]
fn mounts_in_other_namespaces_are_not_fuseblk() {
    let mounted = Mounted::unmounted();
    let line = format!(
        "'{larder}' mount --create 300m disk.img mnt; trap \"'{larder}' umount mnt\" EXIT; \
         findmnt -n -o FSTYPE --mountpoint mnt",
        larder = env!("CARGO_BIN_EXE_larder")
    );
    let said = succeed(
        Command::new("unshare")
            .args(["--mount", "bash", "-euc", &line])
            .current_dir(mounted.folder()),
    );
    assert_eq!(said, "fuse.larder\n");
    mounted.check();
}

/// Also if a program uses it when the signal comes: another process unmounts.
#[test]
pub(crate) fn a_signal_leaves_nothing_behind() {
    for is_used in [false, true] {
        let mut mounted = Mounted::in_foreground();
        fs::write(mounted.join("f"), "kept").unwrap();
        let used = is_used.then(|| fs::File::open(mounted.join("f")).unwrap());
        let image = mounted.image();
        if let Some(used) = used {
            let server = mounted.server_pid();
            rustix::process::kill_process(server, Signal::TERM).unwrap();
            wait_until("it is unmounted", || !mounted.join("f").exists());
            assert_ne!(loop_devices(&image), "", "it is still used");
            drop(used);
            mounted.wait();
        } else {
            mounted.end(Signal::TERM);
        }
        wait_until("it is detached", || loop_devices(&image).is_empty());
        assert_eq!(found(&image, "f").as_deref(), Some(&b"kept"[..]));
    }
}
