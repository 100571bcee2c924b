//! Copies of trees and archives, as the kernel shows them.

mod archives;
mod failures;
mod in_the_way;
mod trees;

use std::path::{Path, PathBuf};

use larder::mkfs::{MkfsOptions, mkfs};
use larder::{Filesystem, OpenOptions};
use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, Scratch, oracle};

/// A tree with all kinds of inodes, hard links, extended attributes, ACLs and sparse files.
fn original() -> KernelImage {
    KernelImage::build(&ImageSpec::new("copies"), &Content::new(1))
}

fn new_image(scratch: &Scratch) -> PathBuf {
    let image = scratch.path().join("image");
    let options = MkfsOptions { byte_count: Some(1 << 30), ..MkfsOptions::default() };
    mkfs(std::slice::from_ref(&image), &options).unwrap();
    image
}

fn open(image: &Path) -> Filesystem {
    OpenOptions::new().write(true).open([image]).unwrap()
}

/// A file system that both checkers find sound, as the kernel shows it.
fn kernel_view(image: &PathBuf) -> KernelMount {
    let report = larder::check::check([image], &larder::check::Options::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    oracle::check(std::slice::from_ref(image), true).expect("btrfs check finds nothing");
    KernelMount::open(std::slice::from_ref(image), "ro,noatime")
}
