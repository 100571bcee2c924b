//! Attributes that come with a listing while other threads change its files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use larder::{ListedEntry, ListedInode, Metadata, SetAttributes};
use larder_testkit::{Content, ImageSpec, KernelImage};

use super::{check, open};

const FILES: u64 = 64;
const STEPS: u64 = 40;
/// How much a file grows in each step: more than its item can lag except by a mistake.
const STEP_BYTES: u64 = 5000;

fn metadata_of(found: ListedInode) -> Metadata {
    match found {
        ListedInode::Open(inode) => inode.metadata(),
        ListedInode::Attributes(metadata) => metadata,
    }
}

/// A thread takes each file through steps: its size grows, then its owner becomes the number of the
/// step. Between steps the file is not open, so that it leaves memory and comes back. Whatever a
/// listing says of a file was true at one moment after the listing began: its size is that of a
/// step, its owner is of that step or the one before, and both are no older than the changes before
/// the listing.
#[test]
fn attributes_are_those_of_one_moment_after_the_listing_began() {
    let image = KernelImage::build(&ImageSpec::new("listed"), &Content::new(61));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let folder = root.create_directory("listed", 0o755).unwrap();
    for number in 0..FILES {
        root.create(format!("listed/{number}"), 0o644).unwrap();
    }
    let done: Vec<AtomicU64> = (0..FILES).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let change = || {
        for step in 1..=STEPS {
            for number in 0..FILES {
                let file = root.open_file(format!("listed/{number}")).unwrap();
                file.write_at(b"x", step * STEP_BYTES - 1).unwrap();
                let uid = Some(step as u32);
                let changes = SetAttributes { uid, ..SetAttributes::default() };
                file.set_attributes(&changes).unwrap();
                drop(file);
                done[number as usize].store(step, SeqCst);
            }
            // Delayed items go into the trees, and the files leave memory.
            fs.sync().unwrap();
        }
        is_over.store(true, SeqCst);
    };
    let list = || {
        let mut listings = 0;
        while !is_over.load(SeqCst) || listings < 10 {
            let before: Vec<u64> = done.iter().map(|done| done.load(SeqCst)).collect();
            let mut next = Some(0);
            while let Some(index) = next {
                let listed = folder.list_with_inodes(index, 50).unwrap();
                for entry in listed.entries {
                    let ListedEntry { entry, found } = entry.unwrap();
                    let metadata = metadata_of(found.unwrap());
                    let number: usize = entry.name().to_str().unwrap().parse().unwrap();
                    let (step, owner) = (metadata.size_bytes / STEP_BYTES, u64::from(metadata.uid));
                    assert_eq!(metadata.size_bytes % STEP_BYTES, 0, "{number}");
                    assert!(step >= before[number], "{number}: {step} after {}", before[number]);
                    assert!(owner == step || owner + 1 == step, "{number}: {owner} in {step}");
                    assert!(owner >= before[number], "{number}: {owner} after {}", before[number]);
                }
                next = listed.next;
            }
            listings += 1;
        }
    };
    thread::scope(|scope| {
        scope.spawn(change);
        scope.spawn(list);
        scope.spawn(list);
    });
    drop((folder, root, fs));
    check(&image, "listings");
}

/// Listed inodes stay out of memory; an inode that is in memory shows what only memory has.
#[test]
fn only_inodes_in_memory_are_opened() {
    let image = KernelImage::build(&ImageSpec::new("cold"), &Content::new(62));
    {
        let fs = open(&image);
        let root = fs.subvolume("/").unwrap();
        root.create_directory("listed", 0o755).unwrap();
        for name in ["cold", "open", "dirty"] {
            root.create(format!("listed/{name}"), 0o644).unwrap().write_at(b"bread", 0).unwrap();
        }
        root.create_directory("listed/folder", 0o755).unwrap();
        fs.sync().unwrap();
    }
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let _open = root.open_file("listed/open").unwrap();
    root.open_file("listed/dirty").unwrap().write_at(b"butter", 5).unwrap();
    let folder = root.open_directory("listed").unwrap();
    let listed = folder.list_with_inodes(0, 100).unwrap();
    assert_eq!(listed.next, None);
    let seen = listed.entries.into_iter().map(|entry| {
        let ListedEntry { entry, found } = entry.unwrap();
        let found = found.unwrap();
        let is_open = matches!(found, ListedInode::Open(_));
        (entry.name().to_str().unwrap().to_owned(), is_open, metadata_of(found).size_bytes)
    });
    let expected =
        [("cold", false, 5), ("open", true, 5), ("dirty", true, 11), ("folder", true, 0)];
    let seen: Vec<_> = seen.collect();
    let seen: Vec<_> = seen.iter().map(|(name, open, len)| (name.as_str(), *open, *len)).collect();
    assert_eq!(seen, expected);
}
