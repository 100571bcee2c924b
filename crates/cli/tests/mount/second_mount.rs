//! A mounted image is mounted in other places too: the same file system, as on the kernel's, by one
//! server.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_testkit::{ImageSpec, KernelImage, Scratch};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use crate::support::{Mounted, as_nobody, larder, larder_in, shell, succeed, wait_until};

/// Another mount point; unmounted when dropped.
struct Place(PathBuf);

impl Place {
    fn new(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn of(mounted: &Mounted, name: &str) -> Self {
        Self::new(mounted.folder().join(name))
    }

    /// Mounts `image` here with the program, and returns the message if that fails.
    fn mount(&self, options: &str, image: &Path) -> Result<String, String> {
        let output =
            larder().args(["mount", "-o", options]).arg(image).arg(&self.0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    #[track_caller]
    fn unmount(&self) {
        let unmounts = || larder().arg("umount").arg(&self.0).status().unwrap().success();
        wait_until("it is unmounted", unmounts);
    }

    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(&format!(" {} ", self.0.display()))
    }

    /// A column of findmnt's output for it.
    fn column(&self, column: &str) -> String {
        let mut command = Command::new("findmnt");
        let said = succeed(command.args(["-n", "-o", column, "--mountpoint"]).arg(&self.0));
        said.trim().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while self.is_mounted() {
            let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
        }
    }
}

fn errno(outcome: io::Result<()>) -> Option<Errno> {
    outcome.err().as_ref().and_then(Errno::from_io_error)
}

/// Mounts in three places and returns what each place shows. `mount` mounts with options,
/// `subvolume` creates one.
fn history(
    first: &Path,
    places: [&Path; 2],
    mount: &dyn Fn(&str, &Path) -> bool,
    subvolume: &dyn Fn(&Path),
) -> Vec<String> {
    let mut seen = Vec::new();
    subvolume(&first.join("sub"));
    fs::create_dir(first.join("d")).unwrap();
    subvolume(&first.join("d/deep"));
    fs::write(first.join("f"), "bread").unwrap();
    let [second, third] = places;
    let mut look = |what: &str| {
        for (number, place) in [first, second, third].into_iter().enumerate() {
            let list =
                shell(place, "find . -type f | sort | xargs -r md5sum; find . -type d | sort");
            let findmnt = "findmnt -n -o FSROOT,VFS-OPTIONS -T . | tr -s ' '";
            let mount = shell(place, findmnt).replace("noatime", "relatime");
            seen.push(format!("{what} {number}: {list}{mount}"));
        }
    };
    assert!(mount("rw", second) && mount("ro,nodev,subvol=d/deep", third));
    look("mounted");
    // Changes in one place are seen in the others at once, through descriptors opened before too.
    let mut open = File::open(second.join("f")).unwrap();
    fs::write(first.join("f"), "butter").unwrap();
    fs::write(second.join("d/deep/g"), "jam").unwrap();
    fs::rename(second.join("f"), first.join("h")).unwrap_err();
    fs::rename(second.join("f"), second.join("h")).unwrap();
    fs::hard_link(first.join("h"), first.join("i")).unwrap();
    let mut content = String::new();
    open.read_to_string(&mut content).unwrap();
    look(&content);
    let ids = |place: &Path, name: &str| {
        let found = fs::metadata(place.join(name)).unwrap();
        (found.dev(), found.ino())
    };
    assert_eq!(ids(first, "d/deep/g"), ids(second, "d/deep/g"));
    assert_eq!(ids(first, "d/deep/g").1, ids(third, "g").1);
    let refused = format!("{:?}", errno(fs::write(third.join("g"), "x")));
    // Nothing is mounted on itself.
    assert!(!mount("rw", second) && !mount("rw,subvol=d/deep", second));
    // An empty subvolume that is mounted nowhere goes.
    let deleted = Command::new("rmdir").arg(first.join("sub")).output().unwrap().status.success();
    look(&format!("{refused} {deleted}"));
    seen
}

#[test]
fn it_is_the_same_file_system_as_on_the_kernels() {
    let ours = Mounted::new();
    let (second, third) = (Place::of(&ours, "second"), Place::of(&ours, "third"));
    let place = |path: &Path| if path == second.0 { &second } else { &third };
    let shown = history(
        &ours.path(),
        [&second.0, &third.0],
        &|options, path| {
            let mounted = place(path).mount(options, &ours.image());
            mounted.is_ok_and(|said| said.is_empty())
        },
        &|path| drop(succeed(larder().args(["subvolume", "create"]).arg(path))),
    );
    let theirs = KernelImage::empty(&ImageSpec::new("second-mount"));
    let kernel = theirs.mount("rw");
    let scratch = Scratch::new();
    let places = [Place::new(scratch.path().join("a")), Place::new(scratch.path().join("b"))];
    let device = shell(kernel.path(), "findmnt -n -o SOURCE -T . | sed 's/\\[.*//'");
    let expected = history(
        kernel.path(),
        [&places[0].0, &places[1].0],
        &|options, path| {
            let mut command = Command::new("mount");
            command.args(["-t", "btrfs", "-o", options, device.trim()]).arg(path);
            command.output().unwrap().status.success()
        },
        &|path| drop(succeed(Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(path))),
    );
    assert_eq!(shown, expected);
    assert_eq!(second.column("SOURCE"), third.column("SOURCE").replace("[/d/deep]", ""));
    succeed(larder().arg("health").arg(&third.0));
    for place in [&second, &third] {
        succeed(Command::new("df").arg(&place.0));
        place.unmount();
    }
    ours.finish();
}

/// Whichever mount was the first: the last one ends the server, and the command waits for the
/// commit.
#[test]
fn the_server_ends_with_the_last_mount() {
    let mut mounted = Mounted::in_foreground();
    let (second, third) = (Place::of(&mounted, "second"), Place::of(&mounted, "third"));
    second.mount("rw", &mounted.image()).unwrap();
    third.mount("rw", &mounted.image()).unwrap();
    let open = File::create(mounted.join("f")).unwrap();
    let output = larder().arg("umount").arg(&second.0).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("still mounted at"), "{said}");
    drop(open);
    // The first one.
    succeed(Command::new("umount").arg(mounted.path()));
    fs::write(third.0.join("g"), "bread").unwrap();
    assert!(second.mount("rw", &mounted.image()).is_ok(), "the server goes on");
    second.unmount();
    third.unmount();
    mounted.wait();
    mounted.check();
    assert_eq!(
        succeed(larder().arg("cat").arg(format!("{}:/g", mounted.image().display()))),
        "bread"
    );
}

/// A subvolume was mounted first: directories above it and beside it can be mounted too.
#[test]
fn subvolumes_beside_the_first_are_reached() {
    let mut mounted = Mounted::new();
    for name in ["a", "b", "b/c"] {
        succeed(larder().args(["subvolume", "create"]).arg(mounted.join(name)));
        fs::write(mounted.join(name).join("name"), name).unwrap();
    }
    mounted.unmount();
    mounted.mount(&["-o", "subvol=a"]);
    assert_eq!(fs::read_to_string(mounted.join("name")).unwrap(), "a");
    let id = |name: &str| {
        let path = format!("{}:/{name}", mounted.image().display());
        succeed(larder().args(["inspect", "rootid"]).arg(path)).trim().to_owned()
    };
    let (second, third) = (Place::of(&mounted, "second"), Place::of(&mounted, "third"));
    second.mount("subvol=/b/c", &mounted.image()).unwrap();
    assert_eq!(fs::read_to_string(second.0.join("name")).unwrap(), "b/c");
    third.mount(&format!("subvolid={}", id("b")), &mounted.image()).unwrap();
    assert_eq!(fs::read_to_string(third.0.join("name")).unwrap(), "b");
    third.unmount();
    third.mount("subvolid=5", &mounted.image()).unwrap();
    assert_eq!(fs::read_to_string(third.0.join("a/name")).unwrap(), "a");
    third.unmount();
    let said = third.mount("subvol=none", &mounted.image()).unwrap_err();
    assert!(said.contains("subvol=none") && !third.is_mounted(), "{said}");
    second.unmount();
    mounted.unmount();
    mounted.check();
}

/// Options that contradict those of all mounts are refused or reported, each by name.
#[test]
fn options_that_are_shared_are_told() {
    let mut mounted = Mounted::new();
    mounted.unmount();
    mounted.mount(&["-o", "compress=zstd,commit=7"]);
    let second = Place::of(&mounted, "second");
    let said = second.mount("compress=zstd,commit=7,nosuid", &mounted.image()).unwrap();
    assert_eq!(said, "", "it is so");
    assert!(second.column("VFS-OPTIONS").contains("nosuid"));
    second.unmount();
    let said = second.mount("compress=lzo,commit=7,notreelog", &mounted.image()).unwrap();
    assert!(said.contains("compress=lzo,notreelog") && !said.contains("commit=7"), "{said}");
    second.unmount();
    for word in ["allow_other", "strictatime"] {
        let said = second.mount(&format!("rw,{word}"), &mounted.image()).unwrap_err();
        let place = format!("mounted at {}", mounted.path().display());
        assert!(said.contains(word) && said.contains(&place) && !second.is_mounted(), "{said}");
    }
    assert!(second.mount("nonsense", &mounted.image()).unwrap_err().contains("nonsense"));
    mounted.finish();
}

/// A mount for reading shows new data; and an image that is served for reading is not written by
/// another server.
#[test]
fn reading_and_writing_go_through_one_server() {
    let mut mounted = Mounted::new();
    let second = Place::of(&mounted, "second");
    second.mount("ro", &mounted.image()).unwrap();
    for round in 0..3 {
        mounted.shell(&format!("echo {round} > f"));
        assert_eq!(fs::read_to_string(second.0.join("f")).unwrap(), format!("{round}\n"));
    }
    assert_eq!(errno(fs::write(second.0.join("f"), "x")), Some(Errno::ROFS));
    second.unmount();
    mounted.unmount();
    mounted.mount(&["-o", "ro"]);
    let said = second.mount("rw", &mounted.image()).unwrap_err();
    assert!(said.contains("for reading only") && said.contains("remount"), "{said}");
    second.mount("ro", &mounted.image()).unwrap();
    // Unmounting one of two for reading waits for nothing.
    second.unmount();
    second.mount("ro", &mounted.image()).unwrap();
    succeed(larder().args(["mount", "-o", "remount,rw"]).arg(mounted.path()));
    assert_eq!(errno(fs::write(second.0.join("f"), "x")), Some(Errno::ROFS));
    mounted.shell("echo new > f");
    assert_eq!(fs::read_to_string(second.0.join("f")).unwrap(), "new\n");
    // Other options change nothing for the other place.
    succeed(larder().args(["mount", "-o", "remount,nodev"]).arg(&second.0));
    assert!(
        second.column("VFS-OPTIONS").starts_with("ro,nodev"),
        "{}",
        second.column("VFS-OPTIONS")
    );
    mounted.shell("echo newer > f");
    succeed(larder().args(["mount", "-o", "remount,rw"]).arg(&second.0));
    fs::write(second.0.join("f"), "from there\n").unwrap();
    assert_eq!(mounted.shell("cat f"), "from there\n");
    succeed(larder().args(["mount", "-o", "remount,ro"]).arg(&second.0));
    assert_eq!(errno(fs::write(mounted.join("f"), "x")), Some(Errno::ROFS));
    second.unmount();
    mounted.finish();
}

/// Users mount no second time, and a user without write permission does not read next to a server
/// either.
#[test]
fn users_are_told_their_options() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    larder_in(scratch.path());
    fs::create_dir(at("mnt")).unwrap();
    let second = Place::new(at("second"));
    shell(scratch.path(), "chmod 777 . mnt second");
    let user = |line: &str| {
        let mut command = as_nobody("bash");
        command.args(["-euc", line]).current_dir(scratch.path());
        command
    };
    let refusal = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success() && !second.is_mounted(), "{command:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    succeed(&mut user("./larder mount --create 1G disk.img mnt; echo bread > mnt/f"));
    for options in ["rw", "ro"] {
        let said = refusal(&mut user(&format!("./larder mount -o {options} disk.img second")));
        assert!(said.contains("mount --bind") && said.contains("mounted at"), "{said}");
    }
    // Neither does root, if another user serves.
    let said = refusal(larder().args(["mount"]).arg(at("disk.img")).arg(&second.0));
    assert!(said.contains("mount --bind"), "{said}");
    rustix::mount::mount_bind(at("mnt"), &second.0).unwrap();
    succeed(&mut user("test $(cat second/f) = bread"));
    rustix::mount::unmount(&second.0, UnmountFlags::empty()).unwrap();
    succeed(&mut user("./larder umount mnt"));
    // While root serves an image, no user can mount it with a second server, even for reading.
    succeed(larder().arg("mount").arg(at("disk.img")).arg(at("mnt")));
    for options in ["rw", "ro"] {
        let said = refusal(&mut user(&format!("./larder mount -o {options} disk.img second")));
        assert!(said.contains("mounted at") && !said.contains("bread"), "{said}");
    }
    succeed(larder().arg("umount").arg(at("mnt")));
}

/// Mounts that begin while others begin or end join those or wait, and are never refused.
#[test]
fn mounts_at_the_same_time_are_all_there() {
    let mut mounted = Mounted::new();
    let places = ["a", "b", "c"].map(|name| Place::of(&mounted, name));
    mounted.shell("echo 0 > f");
    mounted.unmount();
    for round in 0..6 {
        let mut mounting: Vec<_> = places
            .iter()
            .map(|place| {
                let mut command = larder();
                command.arg("mount").arg(mounted.image()).arg(&place.0);
                command.stdin(Stdio::null()).spawn().unwrap()
            })
            .collect();
        assert!(mounting.iter_mut().all(|one| one.wait().unwrap().success()));
        for place in &places {
            fs::write(place.0.join("f"), format!("{round}")).unwrap();
            assert!(
                places.iter().all(|it| {
                    fs::read_to_string(it.0.join("f")).unwrap() == format!("{round}")
                })
            );
        }
        // The last goes while the first comes again.
        places[1].unmount();
        places[2].unmount();
        let mut unmounting = Command::new("umount").arg(&places[0].0).spawn().unwrap();
        places[1].mount("rw", &mounted.image()).unwrap();
        unmounting.wait().unwrap();
        assert_eq!(fs::read_to_string(places[1].0.join("f")).unwrap(), format!("{round}"));
        while places[0].is_mounted() {
            places[0].unmount();
        }
        places[1].unmount();
    }
    mounted.check();
}

#[test]
fn any_of_several_devices_leads_to_the_server() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("mnt")).unwrap();
    let (first, second) = (Place(at("mnt")), Place::new(at("second")));
    let mut mkfs = larder();
    mkfs.args(["mkfs", "-q", "-b", "512M"]).args([at("a"), at("b")]);
    succeed(&mut mkfs);
    succeed(larder().arg("mount").args([at("a"), at("b")]).arg(&first.0));
    fs::write(first.0.join("f"), "bread").unwrap();
    for name in ["b", "a"] {
        second.mount("rw", &at(name)).unwrap();
        assert_eq!(fs::read_to_string(second.0.join("f")).unwrap(), "bread");
        second.unmount();
    }
    // A command that reads does not take the server for one that ends.
    for name in ["a", "b"] {
        succeed(larder().args(["inspect", "dump-super"]).arg(at(name)));
    }
    first.unmount();
}

/// After a mount in another namespace, a detached one and a killed server.
#[test]
fn other_namespaces_and_lazy_mounts_join_too() {
    let mut mounted = Mounted::in_foreground();
    let second = Place::of(&mounted, "second");
    mounted.shell("echo bread > f");
    let program = env!("CARGO_BIN_EXE_larder");
    let (image, place) = (mounted.image(), second.0.clone());
    let line = format!(
        "{program} mount {image} {place}; cat {place}/f; {program} umount {place}",
        image = image.display(),
        place = place.display()
    );
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["-m", "--propagation", "private", "bash", "-euc", &line]);
    assert_eq!(succeed(&mut elsewhere), "bread\n");
    // No mount shows it any more, and a file is open.
    let mut open = File::create(mounted.join("g")).unwrap();
    rustix::mount::unmount(mounted.path(), UnmountFlags::DETACH).unwrap();
    second.mount("rw", &image).unwrap();
    open.write_all(b"butter").unwrap();
    assert_eq!(fs::read_to_string(second.0.join("g")).unwrap(), "butter");
    drop(open);
    // A signal unmounts all places.
    let third = Place::of(&mounted, "third");
    third.mount("ro", &image).unwrap();
    mounted.end(Signal::TERM);
    assert!(!second.is_mounted() && !third.is_mounted());
    mounted.check();
}

/// A killed server leaves mounts that are useless, and a new one starts next to them.
#[test]
fn a_killed_server_is_followed_by_another() {
    let mut mounted = Mounted::in_foreground();
    let second = Place::of(&mounted, "second");
    second.mount("rw", &mounted.image()).unwrap();
    shell(&second.0, "echo bread > f; sync f");
    mounted.kill();
    assert!(fs::metadata(second.0.join("f")).is_err() && second.is_mounted());
    second.unmount();
    second.mount("rw", &mounted.image()).unwrap();
    assert_eq!(fs::read_to_string(second.0.join("f")).unwrap(), "bread\n");
    second.unmount();
    mounted.check();
}
