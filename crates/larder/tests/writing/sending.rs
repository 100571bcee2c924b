//! Sending snapshots of a file system that is in use.

use std::io::{self, Write};

use larder::{ErrorKind, SendError, SendOptions, SendSnapshot, SnapshotKind, Subvolume};
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
