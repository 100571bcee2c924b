//! Copies that fail, in part or as a whole.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use larder::copy::{CopyOptions, Event};
use larder_testkit::Scratch;
use rustix::io::Errno;

use super::{new_image, open};

/// A tree in which `a/x` and `c/x` cannot be copied to `in`, where these are directories.
fn tree_and_obstacles(scratch: &Scratch, root: &larder::Subvolume) -> std::path::PathBuf {
    let tree = scratch.path().join("tree");
    for name in ["a", "b", "c"] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join("x"), name).unwrap();
        if name != "b" {
            root.create_directory_all(format!("in/{name}/x"), 0o755).unwrap();
        }
    }
    tree
}

#[test]
fn the_first_failure_ends_a_copy_without_an_observer() {
    let scratch = Scratch::new();
    let fs = open(&new_image(&scratch));
    let root = fs.subvolume("/").unwrap();
    let tree = tree_and_obstacles(&scratch, &root);
    let error = CopyOptions::new().copy_in(&tree, &root, "in").unwrap_err();
    assert_eq!(error.original(), tree.join("a/x"));
    assert_eq!(error.copy(), Path::new("in/a/x"));
    assert_eq!(error.errno(), Errno::ISDIR.raw_os_error());
    let expected =
        format!("{}: cannot copy it to in/a/x: Is a directory", error.original().display());
    assert_eq!(error.to_string(), expected);
    assert!(!root.exists("in/b").unwrap());
    fs.close().unwrap();
}

#[test]
fn an_observed_copy_goes_on_and_fails_in_the_end() {
    let scratch = Scratch::new();
    let fs = open(&new_image(&scratch));
    let root = fs.subvolume("/").unwrap();
    let tree = tree_and_obstacles(&scratch, &root);
    let mut failed = Vec::new();
    let observe = |event: Event<'_>| {
        if let Event::Failed(error) = event {
            failed.push(error.copy().to_owned());
        }
        ControlFlow::Continue(())
    };
    let error = CopyOptions::new().observe(observe).copy_in(&tree, &root, "in").unwrap_err();
    assert_eq!(failed, [Path::new("in/a/x"), Path::new("in/c/x")]);
    assert_eq!((error.failures(), error.copy()), (2, Path::new("in/a/x")));
    assert!(error.to_string().ends_with("Is a directory (and 1 more)"), "{error}");
    assert_eq!(root.read("in/b/x").unwrap(), b"b");
    fs.close().unwrap();
}

/// A further name of a file that could not be copied is a file of its own.
#[test]
fn other_names_of_what_failed_are_copied() {
    let scratch = Scratch::new();
    let fs = open(&new_image(&scratch));
    let root = fs.subvolume("/").unwrap();
    let tree = tree_and_obstacles(&scratch, &root);
    for name in ["b/y", "b/z"] {
        fs::hard_link(tree.join("a/x"), tree.join(name)).unwrap();
    }
    let observe = |_: Event<'_>| ControlFlow::Continue(());
    let error = CopyOptions::new().observe(observe).copy_in(&tree, &root, "in").unwrap_err();
    assert_eq!(error.failures(), 2, "{error}");
    let found = root.lookup("in/b/y").unwrap().metadata();
    assert_eq!((found.nlink, found.inode), (2, root.lookup("in/b/z").unwrap().metadata().inode));
    assert_eq!(root.read("in/b/z").unwrap(), b"a");
    fs.close().unwrap();
}

#[test]
fn an_observer_stops_a_copy() {
    let scratch = Scratch::new();
    let fs = open(&new_image(&scratch));
    let root = fs.subvolume("/").unwrap();
    let tree = tree_and_obstacles(&scratch, &root);
    let observe = |event: Event<'_>| match event {
        Event::Progress(copied) if copied.inodes > 1 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let error = CopyOptions::new().observe(observe).copy_in(&tree, &root, "new").unwrap_err();
    assert_eq!(error.errno(), Errno::INTR.raw_os_error());
    assert!(root.exists("new/a").unwrap() && !root.exists("new/b").unwrap());
    fs.close().unwrap();
}

#[test]
fn missing_and_impossible_operands_are_named() {
    let scratch = Scratch::new();
    let fs = open(&new_image(&scratch));
    let root = fs.subvolume("/").unwrap();
    root.create_directory_all("d/e", 0o755).unwrap();
    let none = scratch.path().join("none");
    let error = |result: Result<larder::copy::Copied, larder::copy::CopyError>| {
        let error = result.unwrap_err();
        (Errno::from_raw_os_error(error.errno()), error.to_string())
    };
    let not_found = [
        error(CopyOptions::new().copy_in(&none, &root, "in")),
        error(CopyOptions::new().copy_out(&root, "none", scratch.path().join("out"))),
        error(CopyOptions::new().copy_out(&root, "d", none.join("out"))),
        error(CopyOptions::new().copy_within(&root, "none", &root, "in")),
        error(CopyOptions::new().unpack(&[0; 1024][..], &root, "none")),
    ];
    for (number, said) in not_found {
        assert_eq!(number, Errno::NOENT, "{said}");
        assert!(said.contains("none"), "{said}");
    }
    let (_, said) = error(CopyOptions::new().copy_within(&root, "d", &root, "d/e/f"));
    assert!(said.ends_with("its copy would lie in itself"), "{said}");
    let (number, said) = error(CopyOptions::new().unpack(&[1; 1024][..], &root, "d"));
    assert_eq!(number, Errno::INVAL, "{said}");
    assert!(said.contains("this is no tar archive"), "{said}");
    fs.close().unwrap();
}
