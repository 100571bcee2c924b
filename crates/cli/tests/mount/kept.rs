//! Checks and reports of what is mounted: about one commit, while programs go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use larder_testkit::{ImageSpec, KernelImage};

use crate::support::{Mounted, as_nobody, larder, larder_in, shell, succeed};

const TREE: &str = "mkdir -p tree/{a,b}/c; for i in {1..200}; do echo $i > tree/a/$i; done
    head -c 3M /dev/urandom > tree/b/large; cp tree/b/large tree/b/c/copy";
/// Makes and removes until a file appears.
const BUSY: &str = "while [ ! -e over ]; do cp -r tree busy; sync busy/a/1; rm -r busy; done";

/// The report about `place`, without what says how it was named and that it was mounted.
fn report(mounted: &Mounted, place: &Path) -> serde_json::Value {
    let mut program = mounted.larder();
    let said = succeed(program.args(["--format", "json", "report"]).arg(place));
    let mut report: serde_json::Value = serde_json::from_str(&said).unwrap();
    report["filesystem"]["source"].take();
    report["notices"].take();
    report
}

/// Checks and reports in turns while programs make, sync and remove files.
fn check_while_programs_go_on(mut mounted: Mounted) {
    mounted.shell(TREE);
    let busy = thread::spawn({
        let path = mounted.path();
        move || shell(&path, BUSY)
    });
    let snapshot = mounted.path().join("snapshot");
    for round in 0..4 {
        let (path, data) = (mounted.path(), ["--check-data-csum"]);
        let options = if round % 2 == 0 { &data[..] } else { &[] };
        let said = succeed(mounted.larder().arg("check").args(options).arg(&path));
        assert!(said.ends_with("no findings\n"), "{said}");
        let page = succeed(mounted.larder().args(["report", "--check"]).arg(path.join("tree")));
        assert!(page.contains("The file system was mounted: this is its commit"), "{page}");
        assert!(page.contains("A check of all trees found nothing."), "{page}");
        succeed(mounted.larder().args(["subvolume", "snapshot", "-r"]).arg(&path).arg(&snapshot));
        succeed(mounted.larder().args(["subvolume", "delete"]).arg(&snapshot));
    }
    mounted.shell("touch over");
    busy.join().unwrap();

    succeed(mounted.larder().args(["filesystem", "sync"]).arg(mounted.path()));
    let on_mount = report(&mounted, &mounted.path());
    mounted.unmount();
    assert_eq!(on_mount, report(&mounted, mounted.source()));
}

#[test]
fn a_mount_is_checked_and_reported_while_programs_go_on() {
    check_while_programs_go_on(Mounted::with_writeback_cache());
}

#[test]
fn so_is_one_on_objects() {
    let mut mounted = Mounted::on_objects();
    mounted.mount(&["--create", "2G"]);
    check_while_programs_go_on(mounted);
}

/// What a program wrote a moment ago is in the commit that is checked.
#[test]
fn a_report_has_all_that_was_written_before() {
    let mounted = Mounted::with_writeback_cache();
    mounted.shell("head -c 5M /dev/urandom > new");
    let report = report(&mounted, &mounted.path());
    assert_eq!(report["data"]["disk_bytes"], 5 << 20);
    mounted.finish();
}

#[test]
fn on_a_mount_for_reading() {
    let mut mounted = Mounted::new();
    mounted.shell(TREE);
    mounted.unmount();
    mounted.mount(&["-o", "ro"]);
    succeed(larder().args(["check", "--check-data-csum"]).arg(mounted.path()));
    let on_mount = report(&mounted, &mounted.path());
    mounted.unmount();
    assert_eq!(on_mount, report(&mounted, &mounted.image()));
}

/// The server reads the devices for those who could read them themselves.
#[test]
fn other_users_cannot_read_the_devices_of_a_mount() {
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["-o", "allow_other", "--create", "1G"]);
    shell(mounted.folder(), "chmod 755 .");
    let program = larder_in(mounted.folder());
    for command in ["check", "report"] {
        let output = as_nobody(&program).arg(command).arg(mounted.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("only from root"), "{said}");
        assert!(output.stdout.is_empty());
    }
    mounted.finish();
}

#[test]
fn directories_elsewhere_are_refused_with_the_way_out() {
    let image = KernelImage::empty(&ImageSpec::new("kept-refused"));
    let mount = image.mount("");
    let refused = |program: &mut Command, code: i32| {
        let output = program.output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (command, code) in [("check", 2), ("report", 1)] {
        let said = refused(larder().arg(command).arg(mount.path()), code);
        assert!(said.contains("unmount it, and name its image or device"), "{said}");
        let said = refused(larder().arg(command).arg("/proc"), code);
        assert!(said.starts_with("ERROR: /proc: "), "{said}");
        assert!(said.contains("name an image file or a block device"), "{said}");
    }
    let mounted = Mounted::new();
    let said = refused(larder().args(["check", "--degraded"]).arg(mounted.path()), 2);
    assert!(said.contains("--degraded"), "{said}");
    mounted.finish();
}

/// What changes while it is read looks damaged.
#[test]
fn an_image_that_is_mounted_is_checked_by_its_mount_or_by_force() {
    let mut mounted = Mounted::new();
    mounted.shell(TREE);
    let refusal = |program: &mut Command, code: i32| {
        let output = program.output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert!(output.stdout.is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let instead = format!("or name {} instead", mounted.path().display());
    let said = refusal(larder().arg("check").arg(mounted.image()), 2);
    assert!(said.contains(&instead) && said.contains("--force"), "{said}");
    let output = larder().args(["check", "--force"]).arg(mounted.image()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("WARNING: ") && said.contains(&instead), "{said}");
    assert!(!output.stdout.is_empty());
    mounted.unmount();
    assert!(succeed(larder().arg("check").arg(mounted.image())).contains("no findings"));
}

#[test]
fn so_is_what_the_kernel_has_mounted() {
    let spec = ImageSpec::new("check-mounted").devices(&[256 << 20; 2]);
    let image = KernelImage::empty(&spec);
    let mount = image.mount("");
    for device in mount.devices() {
        let output = larder().arg("check").arg(device).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("mounted") && said.contains("--force"), "{said}");
        assert!(!said.contains("instead"), "{said}");
        succeed(larder().args(["check", "--force"]).arg(device));
    }
}

/// Nothing of a reader that was killed stays: the space that it kept comes back.
#[test]
fn a_reader_that_is_killed_keeps_nothing() {
    let mounted = Mounted::with_size("400M");
    mounted.shell("head -c 200M /dev/urandom > large");
    let mut reader = larder();
    reader.args(["check", "--check-data-csum", "-q"]).arg(mounted.path());
    let mut reader = reader.stdout(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_millis(100));
    reader.kill().unwrap();
    reader.wait().unwrap();
    mounted.shell("rm large; head -c 200M /dev/urandom > next");
    assert_eq!(fs::metadata(mounted.join("next")).unwrap().len(), 200 << 20);
    succeed(larder().arg("check").arg(mounted.path()));
    mounted.finish();
}

/// A mount that ends, or a full disk, is no damage: a check that could not go on says that it could
/// not.
#[test]
fn a_state_that_ends_is_no_finding() {
    let mut mounted = Mounted::with_size("512M");
    mounted.shell(&format!("{TREE}; head -c 200M /dev/urandom > large"));
    let read = |words: &[&str], path: PathBuf| {
        let mut program = larder();
        program.args(words).arg(path).stdout(Stdio::piped()).stderr(Stdio::piped());
        program.spawn().unwrap()
    };
    let assert_told = |output: Output, code: i32, reason: &str| {
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return assert!(said.is_empty(), "{said}");
        }
        assert_eq!(output.status.code(), Some(code), "{said}");
        // On a busy machine it may look for the mount when that has ended.
        let is_late = said.contains("lies neither in a mount of larder nor in one of btrfs");
        let is_told = said.contains(reason) && said.ends_with("; try again\n");
        assert!(is_told || is_late, "{said}");
        assert!(output.stdout.is_empty());
    };
    for (round, words) in
        [(1, &["check", "--check-data-csum"][..]), (2, &["report", "--check-data"])]
    {
        for delay in [30, 150] {
            let reader = read(words, mounted.path());
            thread::sleep(Duration::from_millis(delay));
            mounted.unmount();
            assert_told(reader.wait_with_output().unwrap(), 3 - round, "gone");
            mounted.mount(&[]);
        }
        // The space of the large file is needed as soon as it is free.
        let reader = read(words, mounted.path());
        thread::sleep(Duration::from_millis(100));
        mounted.shell("rm large; head -c 320M /dev/zero > large");
        assert_told(reader.wait_with_output().unwrap(), 3 - round, "given up");
    }
    mounted.finish();
}
