//! Subvolumes on a mount.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;

use crate::support::{Mounted, larder, succeed};

fn subvolume(mounted: &Mounted, arguments: &[&str]) -> String {
    succeed(larder().arg("subvolume").args(arguments).current_dir(mounted.path()))
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
    let error = fs::remove_dir(mounted.join("a")).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::PERM));
    mounted.finish();
}
