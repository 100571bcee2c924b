//! Paths, symbolic links, subvolumes by path and by number, as in the kernel.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use larder::{ErrorKind, Filesystem, Inode, OpenOptions};
use larder_testkit::{Content, Event, ImageSpec, KernelImage, oracle};

/// Valid and invalid paths of many forms.
const PATHS: [&str; 46] = [
    "",
    ".",
    "./",
    "..",
    "../..",
    "data",
    "data/",
    "data/.",
    "data//",
    "data/..",
    "data/../links",
    "data/./../links/./linked",
    "links/linked",
    "links/linked/",
    "links/linked/.",
    "links/linked/..",
    "links/linked/nothing",
    "links/nothing",
    "links/nothing/",
    "links/nothing/..",
    "nothing/nothing",
    "links/symlink",
    "links/symlink/",
    "links/symlink/..",
    "links/symlink-to-folder",
    "links/symlink-to-folder/",
    "links/symlink-to-folder/.",
    "links/symlink-to-folder/linked",
    "links/symlink-to-folder/../linked",
    "links/symlink-dangling",
    "links/symlink-dangling/",
    "links/symlink-to-itself",
    "links/symlink-to-itself/",
    "links/symlink-to-itself/more",
    "links/symlink-long",
    "links/fifo/more",
    "subvolumes/first",
    "subvolumes/first/..",
    "subvolumes/first/../..",
    "subvolumes/first/inner/file",
    "subvolumes/first/plain/innermost/../../file-1",
    "subvolumes/of-everything/subvolumes/first",
    "subvolumes/of-everything/subvolumes/first/..",
    "subvolumes/of-everything/subvolumes/first/../first/nothing",
    "chain/40",
    "chain/41",
];

/// The result for a path: an inode, or an errno.
type Place = Result<(u64, u64, u32), i32>;

fn kernel_place(found: io::Result<Metadata>) -> Place {
    match found {
        Ok(metadata) => Ok((metadata.ino(), metadata.size(), metadata.mode())),
        Err(error) => Err(error.raw_os_error().expect("the kernel's errors have numbers")),
    }
}

fn own_place(found: larder::Result<Inode>) -> Place {
    match found {
        Ok(inode) => {
            let metadata = inode.metadata();
            Ok((metadata.inode, metadata.size_bytes, metadata.mode))
        }
        Err(error) => Err(error.errno()),
    }
}

/// A chain of symbolic links, each to the one before: 40 are followed, 41 are too many.
fn add_chain(root: &Path) {
    let folder = root.join("chain");
    fs::create_dir(&folder).expect("the image can be written");
    fs::write(folder.join("0"), "the end").expect("the image can be written");
    for number in 1..=41 {
        symlink(format!("{}", number - 1), folder.join(number.to_string()))
            .expect("the image can be written");
    }
}

fn build() -> KernelImage {
    let spec = ImageSpec::new("paths").then(Event::SetDefault("subvolumes/first"));
    let image = KernelImage::build(&spec, &Content::new(31));
    add_chain(image.mount("subvolid=5").path());
    image
}

fn open(image: &KernelImage) -> Filesystem {
    OpenOptions::new().open(image.devices()).expect("it is sound")
}

#[test]
fn paths_lead_where_they_lead_in_the_kernel() {
    let image = build();
    let fs = open(&image);
    let top = fs.subvolume("/").expect("there is a top level");
    let mount = image.mount("ro,subvolid=5");
    let long_name = "n".repeat(256);
    for path in PATHS.into_iter().chain([&*long_name]) {
        // The kernel's `..` leads out of the mount, and it accepts no empty path.
        if path.is_empty() || path.starts_with("..") {
            assert_eq!(own_place(top.resolve(path)).map(|place| place.0), Ok(256), "{path:?}");
            continue;
        }
        let at = mount.path().join(path);
        // Joining paths drops the last slash, which matters: this adds it as a byte.
        let at = Path::new(OsStr::from_bytes(at.as_os_str().as_bytes()));
        assert_eq!(own_place(top.resolve(path)), kernel_place(fs::metadata(at)), "{path:?}");
        assert_eq!(own_place(top.lookup(path)), kernel_place(fs::symlink_metadata(at)), "{path:?}");
    }
}

#[test]
fn absolute_links_start_at_the_subvolume() {
    let image = build();
    {
        let mount = image.mount("subvolid=5");
        let folder = mount.path().join("subvolumes/first/plain");
        symlink("/inner/file", folder.join("absolute")).expect("the image can be written");
        symlink("/", folder.join("top")).expect("the image can be written");
    }
    let fs = open(&image);
    let first = fs.subvolume("subvolumes/first").expect("it is there");
    let inner = first.resolve("inner/file").expect("it is there");
    assert_eq!(first.resolve("/plain/absolute").expect("it leads there"), inner);
    assert_eq!(first.resolve("plain/top/inner/file").expect("it leads there"), inner);
    assert_eq!(first.read_link("plain/absolute").expect("it is a link"), Path::new("/inner/file"));
    let outside = fs.subvolume("/").and_then(|top| top.resolve("subvolumes/first/plain/absolute"));
    assert_eq!(outside.expect_err("there is no such place").kind(), ErrorKind::NotFound);
    let not_a_link = first.read_link("inner/file").expect_err("it is a file");
    assert_eq!(not_a_link.kind(), ErrorKind::InvalidInput);
}

#[test]
fn parents_lead_up_to_the_top_level() {
    let fs = open(&build());
    let top = fs.subvolume("/").and_then(|top| top.root()).expect("there is a top level");
    for path in [
        "subvolumes/first/plain/innermost",
        "subvolumes/of-everything/subvolumes/first",
        "links/elsewhere",
    ] {
        let mut at = top.resolve(path).and_then(Inode::into_directory).expect("it is there");
        for part in Path::new(path).ancestors() {
            assert_eq!(at, top.resolve(part).and_then(Inode::into_directory).expect("it is there"));
            at = at.parent().expect("it has a parent");
        }
        assert_eq!(at, top, "the top level's parent is the top level");
    }
}

#[test]
fn subvolumes_are_listed_as_btrfs_progs_does() {
    let image = build();
    let fs = open(&image);
    let own: Vec<String> = fs
        .subvolumes()
        .map(|info| info.expect("all can be read"))
        .filter(|info| !info.is_being_deleted && info.id != 5)
        .map(|info| {
            let path = fs.subvolume_path(info.id).expect("it has a path");
            let name = info.name.expect("all but the top level have a name");
            format!(
                "ID {} gen {} cgen {} parent {} top level {} parent_uuid {:<36} received_uuid {:<36} \
                 uuid {} path {}",
                info.id,
                info.generation,
                info.creation_generation,
                name.parent,
                name.parent,
                shown(info.parent_uuid),
                shown(info.received_uuid),
                info.uuid,
                path.display()
            )
        })
        .collect();
    let mount = image.mount("ro,subvolid=5");
    let theirs = oracle::subvolume_list(&mount, &["-pcuqR"]).expect("btrfs-progs lists them");
    assert_eq!(own, theirs.lines().collect::<Vec<_>>());
    assert_eq!(own.len(), 10, "{own:#?}");
}

fn shown(uuid: larder::Uuid) -> String {
    if uuid.is_nil() { "-".to_owned() } else { uuid.to_string() }
}

#[test]
fn subvolumes_are_found_by_path_and_number() {
    let fs = open(&build());
    let first = fs.subvolume("/subvolumes/first/").expect("it is there");
    assert_eq!(fs.default_subvolume().expect("there is one"), first);
    assert_eq!(fs.subvolume_by_id(first.id()).expect("it is there"), first);
    assert_eq!(first.path().expect("it has a path"), PathBuf::from("subvolumes/first"));
    assert_eq!(fs.subvolume("/").expect("it is there").id(), 5);
    let kind = |found: larder::Result<_>| found.map(|_| ()).expect_err("there is none").kind();
    assert_eq!(kind(fs.subvolume("data")), ErrorKind::InvalidInput);
    assert_eq!(kind(fs.subvolume("nothing")), ErrorKind::NotFound);
    assert_eq!(kind(fs.subvolume_by_id(999)), ErrorKind::NotFound);
    assert_eq!(kind(fs.subvolume_by_id(7)), ErrorKind::NotFound);
    let placeholder = fs.subvolume("subvolumes/of-everything/subvolumes/first");
    assert_eq!(kind(placeholder), ErrorKind::InvalidInput);
}

#[test]
fn listings_go_on_where_they_stopped() {
    let fs = open(&build());
    let top = fs.subvolume("/").expect("there is a top level");
    let directory = top.open_directory("many/entries").expect("it is there");
    let all: Vec<_> = directory
        .entries()
        .expect("it is a directory")
        .map(|entry| entry.expect("it can be read").name().to_owned())
        .collect();
    let mut pieces = Vec::new();
    let mut next = 0;
    loop {
        let entries = directory.entries_from(next).expect("it is a directory");
        let piece: Vec<_> = entries.take(7).map(|entry| entry.expect("it can be read")).collect();
        let Some(last) = piece.last() else { break };
        next = last.index() + 1;
        pieces.extend(piece.iter().map(|entry| entry.name().to_owned()));
    }
    assert_eq!(pieces, all);
    assert!(all.len() > 300);
    let refusal = top.open_directory("many/extents").map(|_| ()).expect_err("it is none");
    assert!(matches!(refusal.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound));
}
