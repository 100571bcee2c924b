//! Subvolumes on a mount.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, Scratch};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::support::{Mounted, assert_same_lines, larder, python, succeed, wait_until};

fn subvolume(mounted: &Mounted, arguments: &[&str]) -> String {
    succeed(larder().arg("subvolume").args(arguments).current_dir(mounted.path()))
}

/// The kernel knows the root of a mount by a number of its own. What is open stays in its cache.
#[test]
fn one_that_is_deleted_by_its_id_has_no_name_in_the_root() {
    let mounted = Mounted::new();
    subvolume(&mounted, &["create", "gone"]);
    let id = succeed(larder().args(["inspect", "rootid"]).arg(mounted.join("gone")));
    let open = fs::File::open(mounted.join("gone")).unwrap();
    subvolume(&mounted, &["delete", "--subvolid", id.trim(), "."]);
    wait_until("its name is gone", || !mounted.join("gone").exists());
    drop(open);
}

#[test]
pub(crate) fn they_are_made_snapshotted_marked_and_deleted() {
    let mounted = Mounted::new();
    assert!(!mounted.join("home").exists(), "the kernel remembers that it is not there");
    subvolume(&mounted, &["create", "home"]);
    fs::write(mounted.join("home/f"), vec![1; 100_000]).unwrap();
    subvolume(&mounted, &["snapshot", "-r", "home", "monday"]);
    fs::write(mounted.join("home/f"), "changed").unwrap();
    subvolume(&mounted, &["snapshot", "home", "tuesday"]);
    assert_eq!(fs::read(mounted.join("monday/f")).unwrap(), vec![1; 100_000]);
    assert_eq!(fs::read(mounted.join("tuesday/f")).unwrap(), b"changed");
    let error = fs::write(mounted.join("monday/g"), "").unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
    fs::write(mounted.join("tuesday/g"), "g").unwrap();
    let names = |path: &str| fs::read_dir(mounted.join(path)).unwrap().count();
    assert_eq!((names("."), names("home"), names("tuesday")), (3, 1, 2));
    subvolume(&mounted, &["delete", "monday"]);
    assert!(!mounted.join("monday").exists());
    assert_eq!(names("."), 2);
    mounted.finish();
}

#[test]
fn numbers_are_unique_and_names_do_not_cross() {
    let mounted = Mounted::new();
    subvolume(&mounted, &["create", "a"]);
    subvolume(&mounted, &["create", "b"]);
    fs::write(mounted.join("a/f"), "a").unwrap();
    fs::write(mounted.join("b/f"), "b").unwrap();
    let number = |path: &str| fs::metadata(mounted.join(path)).unwrap().ino();
    let numbers = [number("."), number("a"), number("b"), number("a/f"), number("b/f")];
    let unique: std::collections::HashSet<u64> = numbers.into_iter().collect();
    assert_eq!(unique.len(), numbers.len(), "{numbers:?}");
    let crossing = [
        fs::hard_link(mounted.join("a/f"), mounted.join("b/g")),
        fs::rename(mounted.join("a/f"), mounted.join("b/g")),
    ];
    for error in crossing.map(Result::unwrap_err) {
        assert_eq!(Errno::from_io_error(&error), Some(Errno::XDEV));
    }
    mounted.finish();
}

/// Lines that run one by one, with the program in `$LARDER`.
const REMOVALS: &[&str] = &[
    "$LARDER subvolume create empty; rmdir empty; ls",
    "$LARDER subvolume create full; touch full/f; rmdir full; rm full/f; rmdir full; ls",
    "$LARDER subvolume create fixed; $LARDER property set fixed ro true; rmdir fixed; ls",
    "$LARDER subvolume create outer; $LARDER subvolume create outer/inner; rmdir outer",
    "$LARDER property set outer ro true; rmdir outer/inner; $LARDER property set outer ro false",
    "rmdir outer/inner; rmdir outer; ls",
    "$LARDER subvolume create start; $LARDER subvolume set-default start; rmdir start",
    "$LARDER subvolume set-default 5 .; rmdir start; ls",
    "$LARDER subvolume create file; rm file; unlink file; rmdir file; mkdir file; rmdir file",
    "mkdir own; chown 65534 own; $LARDER subvolume create own/empty; $NOBODY rmdir own/empty",
    "mkdir -m 1777 sticky; $LARDER subvolume create sticky/empty; $NOBODY rmdir sticky/empty",
    "chown 65534 sticky/empty; chmod 0 sticky/empty; $NOBODY rmdir sticky/empty; rm -r own sticky",
    "mkdir -p tree/d; $LARDER subvolume create tree/in; $LARDER subvolume create tree/in/deeper",
    "touch tree/d/f tree/in/f tree/in/deeper/f; rm -r tree; ls",
    "$LARDER subvolume create a; $LARDER subvolume create b; mkdir d; mv -T a b; mv -T d b",
    "$LARDER subvolume create c; mv -T c d; rmdir a b d; ls",
    "$LARDER subvolume create open; exec 3< open; rmdir open; ls -A /proc/self/fd/3/; mkdir open",
    "rmdir open; ls",
    "$LARDER subvolume create kept; chattr +i kept; rmdir kept; mv kept moved",
    "$LARDER subvolume delete kept",
    "$LARDER subvolume delete --subvolid $($LARDER inspect rootid kept) . 2> /dev/null",
    "rm -r kept; chattr -i +a kept; touch kept/f; $LARDER subvolume delete kept; ls",
    "chattr -a kept; $LARDER subvolume delete kept > log; ls",
];

#[test]
pub(crate) fn empty_ones_are_removed_as_on_the_kernels() {
    let outcomes = |place: &Path| {
        fs::create_dir(place.join("removals")).unwrap();
        let run = |line: &&str| {
            let mut shell = Command::new("bash");
            shell.args(["-c", line]).current_dir(place.join("removals"));
            shell.env("LARDER", env!("CARGO_BIN_EXE_larder")).env("LC_ALL", "C");
            shell.env("NOBODY", "setpriv --reuid=65534 --regid=65534 --clear-groups --");
            let output = shell.output().expect("it starts");
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            ((*line).to_owned(), output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        REMOVALS.iter().map(run).collect::<Vec<_>>()
    };
    let mut mounted = Mounted::unmounted();
    fs::set_permissions(mounted.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    mounted.mount(&["-o", "allow_other", "--create", "1G"]);
    let image = KernelImage::build(&ImageSpec::new("removals"), &Content::new(75));
    for (ours, kernels) in
        outcomes(&mounted.path()).into_iter().zip(outcomes(image.mount("").path()))
    {
        assert_eq!(ours, kernels);
    }
    mounted.finish();
}

#[test]
fn sync_waits_until_deleted_subvolumes_are_gone() {
    let deletes = |place: &Path| {
        let subvolume = |words: &str| {
            let words = words.split(' ');
            succeed(larder().arg("subvolume").args(words).current_dir(place))
        };
        subvolume("create one two");
        fs::write(place.join("one/file"), vec![7; 1 << 20]).unwrap();
        let id = succeed(larder().args(["inspect", "rootid"]).arg(place.join("one")));
        let id = id.trim();
        subvolume("delete -c one two");
        let said = subvolume(&format!("sync . {id}"));
        assert_eq!(said, format!("Waiting for 1 subvolume\nSubvolume id {id} is gone (1/1)\n"));
        subvolume("sync .");
        assert_eq!(subvolume("list -d ."), "");
        assert_eq!(subvolume("sync ."), "", "there is nothing to wait for");
    };
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["-o", "commit=1", "--create", "1G"]);
    deletes(&mounted.path());
    mounted.finish();
    let image = KernelImage::build(&ImageSpec::new("deleted"), &Content::new(76));
    deletes(image.mount("subvolid=5").path());
}

/// Directories that stand for a subvolume which is not in a snapshot take what tools that copy
/// attributes ask for, as on the kernel's btrfs: `chown -R` and `rsync -a` of a snapshot work.
#[test]
fn stand_ins_of_nested_subvolumes_take_attributes() {
    let mut mounted = Mounted::new();
    mounted.shell("mkdir d");
    let run = |words: &[&str]| succeed(larder().args(words).current_dir(mounted.path()));
    run(&["subvolume", "create", "d/outer"]);
    run(&["subvolume", "create", "d/outer/inner"]);
    mounted.shell("echo x > d/outer/f");
    run(&["subvolume", "snapshot", "d/outer", "d/copy"]);
    mounted.shell("chown -R 7:8 d/copy; chmod -R go-w d/copy; chmod 700 d/copy/inner");
    mounted.shell("TZ=UTC touch -d 2001-02-03 d/copy/inner");
    let seen = mounted.shell("TZ=UTC stat -c '%u:%g %y' d/copy/inner");
    assert_eq!(seen, "7:8 2001-02-03 00:00:00.000000000 +0000\n");
    mounted.shell("! mkdir d/copy/inner/x 2>/dev/null; ! touch d/copy/inner/x 2>/dev/null");
    mounted.unmount();
    mounted.check();
}

#[test]
fn addresses_lead_to_paths_that_the_mount_shows() {
    let mut mounted = Mounted::new();
    for path in ["q", "q/in", "other"] {
        subvolume(&mounted, &["create", path]);
    }
    mounted.shell("head -c 300000 /dev/urandom > q/in/big; cp q/in/big other/copy; sync -f q");
    let file = fs::File::open(mounted.join("q/in/big")).unwrap();
    let extents = larder_ioctl::mapped_extents(std::os::fd::AsFd::as_fd(&file));
    let address = extents.map(Result::unwrap).next().expect("it has data").address.to_string();
    drop(file);
    let resolve =
        |place: &Path| succeed(larder().args(["inspect", "logical-resolve", &address]).arg(place));
    let lines = |said: String| {
        let mut lines: Vec<_> = said.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let at = |path: &str| mounted.join(path).display().to_string();
    assert_eq!(lines(resolve(&mounted.path())), [at("other/copy"), at("q/in/big")]);
    mounted.unmount();
    mounted.mount(&["-o", "subvol=q"]);
    let seen = lines(resolve(&mounted.path()));
    let at = |path: &str| mounted.join(path).display().to_string();
    assert_eq!((seen.len(), &seen[0]), (2, &at("in/big")), "{seen:?}");
    assert!(seen[1].ends_with("subvol other could not be accessed: not mounted"), "{seen:?}");
    mounted.unmount();
    mounted.check();
}

/// A shell may still be in a subvolume that is gone. The message names that one, and not the place
/// where the snapshot was to be.
#[test]
fn a_snapshot_of_a_deleted_subvolume_names_the_deleted_one() {
    let mut mounted = Mounted::new();
    let refused = |point: &Path| {
        let line = "mkdir -p other; $0 subvolume create gone >/dev/null; cd gone;
            $0 subvolume delete ../gone >/dev/null; ! $0 subvolume snapshot . ../other/new 2>&1";
        let mut bash = Command::new("bash");
        bash.args(["-euc", line, env!("CARGO_BIN_EXE_larder")]).current_dir(point);
        assert_eq!(succeed(&mut bash), "ERROR: .: the subvolume was deleted\n");
    };
    refused(&mounted.path());
    mounted.unmount();
    refused(KernelMount::open(&[mounted.image()], "").path());
}

/// What a program changes of such a directory is shown at its path as long as a program has it
/// open, as on the kernel's btrfs.
#[test]
fn open_stand_ins_show_what_was_changed() {
    let script = "import os, sys
p = 'copy/inner'
opened = os.open(p, os.O_RDONLY)
def show(status): return oct(status.st_mode), status.st_uid, status.st_gid, int(status.st_mtime) == 9
def tell(): print(show(os.stat(p)), show(os.fstat(opened)), os.stat(p).st_ino)
os.chmod(p, 0o700); tell()
os.chown(p, 5, 6); tell()
os.utime(p, (9, 9)); tell()
os.fchmod(opened, 0o711); tell()
os.listdir('copy'); os.listdir(p); tell()
os.chmod(p, 0o500); os.chmod(p, 0o600); tell()";
    let said = |point: &Path| {
        let run = |words: &str| {
            succeed(larder().arg("subvolume").args(words.split(' ')).current_dir(point))
        };
        run("create outer");
        run("create outer/inner");
        run("snapshot outer copy");
        python(point, script, &[])
    };
    let mut ours = Mounted::new();
    let (seen, image) = (said(&ours.path()), Scratch::new());
    ours.unmount();
    ours.check();
    let image = image.sparse_file("image", 256 << 20);
    succeed(larder().args(["mkfs", "-q"]).arg(&image));
    assert_same_lines(&seen, &said(KernelMount::open(&[image], "").path()));
}

/// A series of snapshots is the same on a mount of larder, on one of the kernel and in an image.
#[test]
fn a_series_of_snapshots_is_kept_on_every_mount() {
    let series = |place: &str, folder: &Path| {
        let run = |words: &[&str]| {
            let words = words.iter().map(|word| word.replace('@', place));
            succeed(larder().arg("subvolume").args(words).current_dir(folder))
        };
        run(&["create", "@home"]);
        run(&["create", "@snaps"]);
        let old = ["P20200106T010000", "P20200106T020000", "P20200107T030000", "other"];
        for name in old.map(|name| format!("@snaps/{name}")) {
            run(&["snapshot", "-r", "@home", &name]);
        }
        let words = "all=1h daily=7 weekly=4";
        let take = ["snapshot", "-r", "--keep", words, "--prefix", "P", "@home", "@snaps"];
        let said = run(&take).replace(place, "@");
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            lines[0].starts_with("Create a readonly snapshot of '@home' in '@snaps/P"),
            "{said}"
        );
        assert_eq!(lines[1..], ["Delete subvolume (no-commit): '@snaps/P20200106T010000'"]);
        let list = run(&["list", place]);
        let path = |line: &str| line.split(" path snaps/").nth(1).map(str::to_owned);
        let mut names: Vec<String> = list.lines().filter_map(path).collect();
        names.sort();
        assert_eq!(names[..2], old[1..3], "{list}");
        assert_eq!((names.len(), &*names[3]), (4, "other"), "{list}");
    };
    let mut mounted = Mounted::new();
    let point = |path: &Path| format!("{}/", path.display());
    series(&point(&mounted.path()), mounted.folder());
    mounted.unmount();
    mounted.check();
    let scratch = Scratch::new();
    let image = scratch.sparse_file("image", 256 << 20);
    let make = || succeed(larder().args(["mkfs", "-q", "-f"]).arg(&image));
    make();
    series("image:/", scratch.path());
    make();
    series(&point(KernelMount::open(std::slice::from_ref(&image), "").path()), scratch.path());
}

/// A user renames the directory of a series while root's command works in it. Root deletes
/// snapshots of that directory, and none of the one that takes its place.
#[test]
fn a_series_stays_in_its_directory_whatever_takes_the_place_of_that() {
    let mounted = Mounted::new();
    subvolume(&mounted, &["create", "home", "backup", "snaps"]);
    let old = ["P20200106T010000", "P20200106T020000", "P20200106T030000"];
    for directory in ["backup", "snaps"] {
        for name in old {
            subvolume(&mounted, &["snapshot", "-r", "home", &format!("{directory}/{name}")]);
        }
    }
    // It waits after the snapshot, until its output is read.
    let (mut output, full) = io::pipe().unwrap();
    fcntl_setfl(&full, OFlags::NONBLOCK).unwrap();
    while (&full).write(b"x").is_ok() {}
    fcntl_setfl(&full, OFlags::empty()).unwrap();
    let keep = ["snapshot", "-r", "--keep", "daily=2", "--prefix", "P", "home", "snaps"];
    let mut taking = larder();
    taking.arg("subvolume").args(keep).current_dir(mounted.path()).stdout(full);
    let mut taken = taking.spawn().unwrap();
    drop(taking);
    wait_until("it is taken", || fs::read_dir(mounted.join("snaps")).unwrap().count() == 4);
    mounted.shell("mv snaps renamed; ln -s backup snaps");
    let mut said = Vec::new();
    output.read_to_end(&mut said).unwrap();
    assert!(taken.wait().unwrap().success());
    assert_eq!(mounted.shell("ls backup").lines().collect::<Vec<_>>(), old);
    // The newest one of a day stays.
    let left = mounted.shell("ls renamed");
    assert!(left.starts_with(old[2]) && left.lines().count() == 2, "{left}");
    mounted.finish();
}
