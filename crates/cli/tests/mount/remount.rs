//! `remount`: a mount gets other options.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use larder_testkit::{ImageSpec, KernelImage, KernelMount, Scratch};
use rustix::io::Errno;

use crate::support::{Mounted, as_nobody, larder, larder_in, succeed, wait_until};

/// Remounts as mount(8) would, and returns the message if that fails.
fn remount(mounted: &Mounted, words: &str) -> Result<(), String> {
    let helper = mounted.folder().join("mount.fuse.larder");
    if !helper.exists() {
        symlink(env!("CARGO_BIN_EXE_larder"), &helper).unwrap();
    }
    // It repeats the options that the kernel shows.
    let words = format!("remount,noatime,user_id=0,group_id=0,default_permissions,{words}");
    let mut command = Command::new(helper);
    command.arg(mounted.image()).arg(mounted.path()).args(["-o", &words]);
    let output = command.output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Whether no process has the image open for writing.
fn is_free(image: &Path) -> bool {
    Command::new("flock").arg("-n").arg(image).arg("true").status().unwrap().success()
}

fn is_read_only(error: &std::io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::ROFS)
}

#[test]
pub(crate) fn from_writing_to_reading_and_back() {
    let mounted = Mounted::new();
    mounted.shell("mkdir -p d/e; echo bread > d/e/f; ln -s d/e/f l");
    let open = File::open(mounted.join("d/e/f")).unwrap();
    let mut bytes = [0; 5];
    for round in 0..3 {
        remount(&mounted, "ro").unwrap();
        assert!(is_read_only(&fs::write(mounted.join("d/e/f"), "x").unwrap_err()));
        assert!(is_read_only(&fs::create_dir(mounted.join("new")).unwrap_err()));
        assert!(is_free(&mounted.image()), "it was closed");
        // All of it is there, and nothing is dirty.
        mounted.check();
        open.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"bread");
        remount(&mounted, "rw").unwrap();
        assert!(!is_free(&mounted.image()));
        mounted.shell(&format!("echo {round} > d/e/g{round}; cat d/e/g* l; mkdir -p n/{round}"));
        open.read_exact_at(&mut bytes, 0).unwrap();
    }
    drop(open);
    mounted.finish();
}

/// The counters of a mount go back to when it was mounted.
#[test]
fn counters_of_a_mount_survive() {
    let mounted = Mounted::new();
    mounted.shell("echo bread > f");
    for words in ["ro", "rw"] {
        remount(&mounted, words).unwrap();
        let health = succeed(larder().arg("health").arg(mounted.path()));
        assert!(!health.contains("before it was mounted"), "{health}");
    }
    mounted.finish();
}

/// A mount for reading never had the image open for writing, and then has.
#[test]
fn from_reading_to_writing() {
    let mut mounted = Mounted::new();
    mounted.shell("mkdir d; echo bread > d/f");
    mounted.unmount();
    mounted.mount(&["-o", "ro"]);
    mounted.shell("cat d/f; ! touch d/g");
    remount(&mounted, "rw").unwrap();
    mounted.shell("touch d/g; echo butter >> d/f");
    mounted.finish();
}

/// Mounts below stay, though the server is another.
#[test]
fn mounts_below_stay() {
    let mounted = Mounted::new();
    mounted.shell("mkdir -p d/below; mount -t tmpfs below d/below; touch d/below/f");
    for words in ["ro", "rw"] {
        remount(&mounted, words).unwrap();
        assert_eq!(mounted.shell("ls d/below"), "f\n", "{words}");
    }
    mounted.shell("umount d/below");
    mounted.finish();
}

/// A remount that the kernel's btrfs refuses is refused here too, and one that it does is done.
#[test]
fn it_is_refused_while_files_are_open_for_writing_as_on_the_kernels() {
    let history = |folder: &Path, remount: &dyn Fn(&str) -> bool| {
        let mut file = File::create(folder.join("f")).unwrap();
        let while_open = remount("ro");
        file.write_all(b"bread").unwrap();
        drop(file);
        // The work that a close leaves is done soon.
        wait_until("it is for reading", || remount("ro"));
        let refused = is_read_only(&File::create(folder.join("g")).unwrap_err());
        (while_open, refused, remount("rw"), File::create(folder.join("g")).is_ok())
    };
    let ours = Mounted::new();
    let held = File::create(ours.join("held")).unwrap();
    let error = remount(&ours, "ro").unwrap_err();
    let named = format!("process {} (", std::process::id());
    let open = format!("has {} open for writing", ours.join("held").display());
    assert!(error.contains(&named) && error.contains(&open), "{error}");
    drop(held);
    let shown = history(&ours.path(), &|words| remount(&ours, words).is_ok());
    let theirs = KernelImage::empty(&ImageSpec::new("remount"));
    let mount = theirs.mount("rw");
    let by_kernel = |words: &str| {
        let options = format!("remount,{words}");
        Command::new("mount").args(["-o", &options]).arg(mount.path()).status().unwrap().success()
    };
    assert_eq!(shown, history(mount.path(), &by_kernel));
    ours.finish();
}

/// Tells other threads when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Programs that read meanwhile notice nothing.
#[test]
pub(crate) fn no_request_is_lost() {
    let mounted = Mounted::new();
    mounted.shell("mkdir d; for i in $(seq 50); do echo $i > d/$i; done");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut rounds = 0_u64;
                    while !is_done.load(Relaxed) {
                        // The kernel has nothing of this in its cache.
                        rustix::fs::statvfs(mounted.path()).unwrap();
                        for number in 1..=50 {
                            let found = fs::read_to_string(mounted.join(format!("d/{number}")));
                            assert_eq!(found.unwrap(), format!("{number}\n"));
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let ends = Ends(&is_done);
        for _ in 0..5 {
            for words in ["ro", "rw"] {
                remount(&mounted, words).unwrap();
            }
        }
        drop(ends);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    mounted.finish();
}

/// Changes that a crash left in a log are shown once it is replayed, and the kernel caches nothing
/// from before.
#[test]
fn a_log_is_replayed_when_writing_begins() {
    let mut mounted = Mounted::in_foreground();
    mounted.shell("echo old > f; sync -f .");
    larder_ioctl::sync(File::open(mounted.path()).unwrap()).unwrap();
    let mut file = File::create(mounted.join("g")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.kill();
    mounted.mount(&["-o", "ro"]);
    assert!(!mounted.join("g").exists());
    assert_eq!(mounted.shell("ls; cat f"), "f\nold\n");
    remount(&mounted, "rw").unwrap();
    assert_eq!(mounted.shell("cat g; ls"), "syncedf\ng\n");
    mounted.finish();
}

#[test]
fn options_change_while_it_is_mounted() {
    let mut mounted = Mounted::new();
    // The time of writeback counts.
    let write = |name: &str| {
        let mut file = File::create(mounted.join(name)).unwrap();
        file.write_all(&vec![b'a'; 300_000]).unwrap();
        file.sync_all().unwrap();
    };
    write("plain");
    remount(&mounted, "compress=zstd,commit=3").unwrap();
    write("zstd");
    remount(&mounted, "ro").unwrap();
    remount(&mounted, "rw").unwrap();
    write("still");
    remount(&mounted, "compress=no").unwrap();
    write("none");
    let refused = |words: &str| remount(&mounted, words).unwrap_err();
    assert!(refused("strictatime").contains("can only be set when mounting"));
    assert!(refused("allow_other").contains("can only be set when mounting"));
    assert!(refused("wibble").contains("'wibble'"));
    mounted.unmount();
    mounted.check();
    let kernel = KernelMount::open(&[mounted.image()], "ro");
    let is_compressed = |name: &str| {
        let extents = succeed(Command::new("filefrag").arg("-v").arg(kernel.path().join(name)));
        extents.contains("encoded")
    };
    let names = ["plain", "zstd", "still", "none"];
    assert_eq!(names.map(is_compressed), [false, true, true, false]);
}

#[test]
fn other_users_remount_with_options_that_need_no_kernel() {
    let scratch = Scratch::new();
    let at = |name: &str| -> PathBuf { scratch.path().join(name) };
    larder_in(scratch.path());
    fs::create_dir(at("mnt")).unwrap();
    for path in [scratch.path().to_owned(), at("mnt")] {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    let user = |line: &str| {
        as_nobody("bash").args(["-euc", line]).current_dir(scratch.path()).output().unwrap()
    };
    assert!(user("./larder mount --create 1G disk.img mnt").status.success());
    let refused = user("./larder mount -o remount,ro mnt");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("only root can"), "{said}");
    let line = "./larder mount -o remount,compress=zstd mnt; echo x > mnt/f; ./larder umount mnt";
    assert!(user(line).status.success());
    succeed(larder().arg("check").arg(at("disk.img")));
    let nothing = user("./larder mount -o remount,ro mnt");
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("nothing here"));
}
