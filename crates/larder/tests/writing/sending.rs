//! Sending snapshots of a file system that is in use.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::Arc;

use larder::device::{Device, MemoryDevice};
use larder::{
    ErrorKind, Filesystem, OpenOptions, SendError, SendOptions, SendSnapshot, SnapshotKind,
    Subvolume,
};
use larder_mkfs::{MkfsOptions, mkfs_on};
use larder_testkit::{Content, ImageSpec, KernelImage};

use super::{check, open};

/// Accepts a stream, and does something after its first piece.
struct Output<F: FnOnce()> {
    stream: Vec<u8>,
    meanwhile: Option<F>,
}

impl<F: FnOnce()> Write for Output<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.extend_from_slice(bytes);
        self.meanwhile.take().into_iter().for_each(|meanwhile| meanwhile());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send(snapshot: &Subvolume, parent: Option<&Subvolume>, meanwhile: impl FnOnce()) -> Vec<u8> {
    let options = SendOptions { parent: parent.cloned(), ..SendOptions::default() };
    let mut output = Output { stream: Vec::new(), meanwhile: Some(meanwhile) };
    snapshot.send(&options, &mut output).unwrap();
    output.stream
}

#[test]
fn a_send_reads_the_last_commit_and_keeps_it() {
    let image = KernelImage::build(&ImageSpec::new("held"), &Content::new(54));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let work = root.create_subvolume("work").unwrap();
    for number in 0..200 {
        let file = work.create(format!("file{number}"), 0o644).unwrap();
        file.write_at(&vec![number as u8; 20_000], 0).unwrap();
    }
    // An open inode without a name stays as long as it is held, and is not in the stream.
    let unlinked = work.open_file("file0").unwrap();
    let before = work.snapshot_to(&root, "before", SnapshotKind::ReadOnly).unwrap();
    work.remove_file("file0").unwrap();
    work.open_file("file1").unwrap().write_at(b"changed", 100).unwrap();
    // Marked as read-only, not created so.
    work.set_read_only(true).unwrap();
    let refused = work.create("more", 0o644).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);

    let mut streams = Vec::new();
    let mut unlinked = Some(unlinked);
    for round in 0..2 {
        let stream = send(&work, Some(&before), || {
            for (name, held) in [("work", &work), ("before", &before)] {
                let deleted = root.delete_subvolume(name).map_err(|error| error.kind());
                assert_eq!(deleted, Err(ErrorKind::NotPermitted));
                let changed = held.set_read_only(false).map_err(|error| error.kind());
                assert_eq!(changed, Err(ErrorKind::NotPermitted));
            }
            drop(unlinked.take());
            fs.sync().unwrap();
            for number in 0..300 {
                let file = root.create(format!("new{round}-{number}"), 0o644).unwrap();
                file.write_at(&vec![7; 30_000], 0).unwrap();
            }
            fs.sync().unwrap();
        });
        streams.push(stream);
    }
    assert!(streams[0] == streams[1]);
    let writable = work.snapshot_to(&root, "writable", SnapshotKind::Writable).unwrap();
    let error = writable.send(&SendOptions::default(), &mut io::sink()).unwrap_err();
    assert!(matches!(error, SendError::NotReadOnly(_)), "{error}");
    // Nothing is held any more.
    before.set_read_only(false).unwrap();
    before.set_read_only(true).unwrap();
    root.delete_subvolume("writable").unwrap();
    drop((root, work, before, writable, fs));
    check(&image, "held subvolumes");

    let fs = larder::OpenOptions::new().open(image.devices()).unwrap();
    let [work, before] = ["work", "before"].map(|name| fs.subvolume(name).unwrap());
    let again = send(&work, Some(&before), || {});
    assert!(again == streams[0]);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.delete_subvolume("work").unwrap();
    root.delete_subvolume("before").unwrap();
    drop((root, fs));
    check(&image, "deleted afterwards");
}

/// A small file system with small nodes, few of which are in memory, and a snapshot of many files.
fn many_leaves() -> (Filesystem, Subvolume, Subvolume) {
    let device = Arc::new(MemoryDevice::new("moving".to_owned(), 256 << 20));
    let devices: Vec<Arc<dyn Device>> = vec![device];
    let options = MkfsOptions { node_size_bytes: Some(4096), ..MkfsOptions::default() };
    mkfs_on(&devices, &options).unwrap();
    let options = OpenOptions::new().write(true).commit_interval(None).cache_bytes(0);
    let fs = options.discard(true).open_devices(devices).unwrap();
    let root = fs.subvolume("/").unwrap();
    let work = root.create_subvolume("work").unwrap();
    for number in 0..6000_u32 {
        let file = work.create(format!("file{number}"), 0o644).unwrap();
        file.write_at(&[number as u8; 1000], 0).unwrap();
    }
    let snapshot = work.snapshot_to(&root, "snapshot", SnapshotKind::ReadOnly).unwrap();
    fs.sync().unwrap();
    (fs, root, snapshot)
}

/// Writes files, until there is no space or there are this many.
fn fill(fs: &Filesystem, root: &Subvolume, files: u32) -> larder::Result<()> {
    for number in 0..files {
        let file = root.create(format!("filling{number}"), 0o644)?;
        file.write_at(&vec![number as u8; 1900], 0)?;
        if number % 1000 == 0 {
            fs.sync()?;
        }
    }
    fs.sync()
}

/// The blocks of a snapshot go elsewhere while it is sent, and others are written where they were.
#[test]
fn a_send_reads_what_it_began_with_while_its_blocks_move() {
    let (fs, root, snapshot) = many_leaves();
    let expected = send(&snapshot, None, || {});
    let sent = send(&snapshot, None, || {
        for _ in 0..2 {
            fs.move_tree(snapshot.id()).unwrap();
            fs.sync().unwrap();
        }
        fill(&fs, &root, 5000).unwrap();
    });
    assert!(sent == expected);
}

/// A writer gets the space of a send, which then fails instead of sending something else.
#[test]
fn a_send_gives_way_to_writers_if_its_blocks_have_moved() {
    let (fs, root, snapshot) = many_leaves();
    let is_full = Cell::new(false);
    let mut output = Output {
        stream: Vec::new(),
        meanwhile: Some(|| {
            fs.move_tree(snapshot.id()).unwrap();
            let full = fill(&fs, &root, u32::MAX).map_err(|error| error.kind());
            assert_eq!(full, Err(ErrorKind::NoSpace));
            is_full.set(true);
        }),
    };
    let error = snapshot.send(&SendOptions::default(), &mut output).unwrap_err();
    assert!(is_full.get());
    assert!(error.to_string().contains("send it again"), "{error}");
    // Without moves all of it is where it was.
    let moved = send(&snapshot, None, || {});
    assert!(send(&snapshot, None, || drop(fill(&fs, &root, u32::MAX))) == moved);
}
