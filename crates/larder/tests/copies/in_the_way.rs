//! Copies where there is something already.

use std::fs;

use larder::FileType;
use larder::copy::{CopyOptions, Keep};
use larder_testkit::Scratch;

use super::{kernel_view, new_image, open};

const PLAIN: Keep = Keep::Permissions { umask: 0o022 };

/// A tree: `d/f`, `d/link`, `d/pipe`.
fn tree(scratch: &Scratch) -> std::path::PathBuf {
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("d/f"), "new").unwrap();
    std::os::unix::fs::symlink("f", tree.join("d/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.join("d/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    tree
}

#[test]
fn directories_stay_and_other_things_are_replaced() {
    let scratch = Scratch::new();
    let (image, tree) = (new_image(&scratch), tree(&scratch));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.create_directory_all("in/d", 0o700).unwrap();
    root.write("in/d/kept", b"kept").unwrap();
    root.write("outside", b"outside").unwrap();
    root.symlink("/outside", "in/d/link").unwrap();
    root.write("in/d/pipe", b"no pipe").unwrap();
    CopyOptions::new().copy_in(&tree, &root, "in").unwrap();
    assert_eq!(root.read("in/d/kept").unwrap(), b"kept");
    assert_eq!(root.read("in/d/f").unwrap(), b"new");
    assert_eq!(root.read("outside").unwrap(), b"outside", "no link was followed");
    assert_eq!(root.lookup("in/d/link").unwrap().link_target().unwrap().as_os_str(), "f");
    assert_eq!(root.lookup("in/d/pipe").unwrap().file_type(), FileType::Fifo);
    drop(root);
    fs.close().unwrap();
    assert_eq!(fs::read(kernel_view(&image).path().join("in/d/f")).unwrap(), b"new");
}

#[test]
fn a_file_in_the_way_keeps_its_other_names_only_in_a_plain_copy() {
    let scratch = Scratch::new();
    let (image, tree) = (new_image(&scratch), tree(&scratch));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    for (keep, other) in [(PLAIN, "new"), (Keep::Everything, "old")] {
        root.write("target", b"old").unwrap();
        root.hard_link("target", "other").unwrap();
        CopyOptions::new().keep(keep).copy_in(tree.join("d/f"), &root, "target").unwrap();
        assert_eq!(root.read("target").unwrap(), b"new");
        assert_eq!(root.read("other").unwrap(), other.as_bytes(), "{keep:?}");
        for name in ["target", "other"] {
            root.remove_file(name).unwrap();
        }
    }
    fs.close().unwrap();
}

#[test]
fn no_copy_leaves_through_a_symbolic_link_of_the_host() {
    let scratch = Scratch::new();
    let (image, tree) = (new_image(&scratch), tree(&scratch));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    CopyOptions::new().copy_in(&tree, &root, "in").unwrap();
    let (out, outside) = (scratch.path().join("out"), scratch.path().join("outside"));
    fs::create_dir(&out).unwrap();
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, out.join("d")).unwrap();
    let error = CopyOptions::new().copy_out(&root, "in", &out).unwrap_err();
    assert_eq!(error.original(), std::path::Path::new("in/d"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs.close().unwrap();
}
