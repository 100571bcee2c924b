//! Receives that end early again and again, and go on.
//!
//! `LARDER_EFFORT` multiplies the number of streams; `LARDER_SEED` makes others.
//! Needs root, loop devices and btrfs in the kernel.

use std::ops::ControlFlow;
use std::path::Path;

use larder_filesystem::{Directory, Inode, NewInode};
use larder_format::Uuid;
use larder_stream::{
    Checkpoints, Command, Event, ImageTarget, MountedTarget, ReceiveError, ReceiveOptions,
    Received, SendOptions, Target, Version, Writer, prologue, receive,
};
use larder_testkit::assert_same;
use larder_testkit::snapshots::{Random, mutate};

use crate::support::{
    EmptyImage, assert_sound, btrfs, delete, larder_send, open, open_writable, sendable, snapshot,
    subvolume,
};

/// Pairs of streams, times the effort.
const PAIRS: u64 = 6;

/// A directory that a stream is received in.
trait Place {
    fn target(&self) -> Box<dyn Target>;

    fn delete(&self, name: &str);

    fn names(&self) -> Vec<String>;
}

impl Place for Directory {
    fn target(&self) -> Box<dyn Target> {
        Box::new(ImageTarget::new(self.clone()))
    }

    fn delete(&self, name: &str) {
        self.delete_child_subvolume(name.as_ref()).expect("deleted");
    }

    fn names(&self) -> Vec<String> {
        let entries = self.entries().expect("listed").map(|entry| entry.expect("listed"));
        entries.map(|entry| entry.name().to_str().expect("ASCII").to_owned()).collect()
    }
}

impl Place for Path {
    fn target(&self) -> Box<dyn Target> {
        Box::new(MountedTarget::open(self).expect("a directory"))
    }

    fn delete(&self, name: &str) {
        delete(&self.join(name));
    }

    fn names(&self) -> Vec<String> {
        let entries = self.read_dir().expect("listed").map(|entry| entry.expect("listed"));
        entries.map(|entry| entry.file_name().into_string().expect("ASCII")).collect()
    }
}

/// Receives a part of the input, and says where the last checkpoint is then.
fn receive_part(
    input: &[u8],
    place: &(impl Place + ?Sized),
    checkpoints: Checkpoints,
    is_stopped_after: u64,
) -> (Result<Received, ReceiveError>, Option<u64>) {
    let options = ReceiveOptions { checkpoints: Some(checkpoints), ..ReceiveOptions::default() };
    let mut last = checkpoints.from;
    let outcome = receive(input, &mut *place.target(), &options, &mut |event| match event {
        Event::Checkpoint(position) => {
            if let Some(earlier) = last.replace(position) {
                assert!(position > earlier);
                place.delete(&Checkpoints::name(checkpoints.stream, earlier));
            }
            ControlFlow::Continue(())
        }
        Event::Read(position) if position > is_stopped_after => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    (outcome, last)
}

/// Receives the stream of the snapshot `name` in many parts.
fn receive_in_parts(
    stream: &[u8],
    place: &(impl Place + ?Sized),
    name: &str,
    random: &mut Random,
) -> usize {
    let len = stream.len();
    let number = random.below(usize::MAX) as u64;
    let every_bytes = 1 + random.below(len / 4) as u64;
    let mut from = None;
    for parts in 1.. {
        let start = from.unwrap_or(0) as usize;
        let end = (start + random.below(len / 3)).min(len);
        let is_stopped = random.below(3) == 0 && end < len;
        let input = match from {
            None => stream.to_vec(),
            Some(_) => [&prologue(&mut &stream[..]).expect("a stream"), &stream[start..]].concat(),
        };
        let left_out = len - input.len();
        let input = if is_stopped { &input } else { &input[..end.saturating_sub(left_out)] };
        let stopped_after = if is_stopped { end as u64 } else { u64::MAX };
        let checkpoints = Checkpoints { stream: number, every_bytes, from };
        let (outcome, last) = receive_part(input, place, checkpoints, stopped_after);
        let checkpoint = last.map(|last| Checkpoints::name(number, last));
        if outcome.is_ok() {
            checkpoint.inspect(|checkpoint| place.delete(checkpoint));
            return parts;
        }
        let mut left = place.names();
        if left.iter().any(|left| left == name) {
            place.delete(name);
            left.retain(|left| left != name);
        }
        assert_eq!(left, Vec::from_iter(checkpoint));
        if !is_stopped && let Some(last) = last {
            assert!(last <= end.max(start) as u64);
        }
        from = last;
    }
    unreachable!("numbers do not end")
}

#[test]
fn a_receive_goes_on_where_it_ended() {
    let first = larder_testkit::seed(1);
    for seed in first..first + PAIRS * larder_testkit::effort() {
        let mut random = Random(seed);
        let image = EmptyImage::new();
        let mut manifests = Vec::new();
        for name in ["0", "1"] {
            let mount = image.mount("noatime");
            let work = mount.path().join("work");
            if name == "0" {
                btrfs(&[&"-q", &"subvolume", &"create", &work]);
            }
            mutate(&work, &mut random, 150);
            snapshot(&work, &mount.path().join(name));
            mount.sync();
            manifests.push(sendable(&mount.path().join(name)));
        }
        let filesystem = open(image.device());
        let parent = subvolume(&filesystem, "0");
        let whole = larder_send(&parent, &SendOptions::default());
        let options = SendOptions { parent: Some(parent), ..SendOptions::default() };
        let stream = larder_send(&subvolume(&filesystem, "1"), &options);

        let target = EmptyImage::new();
        let receiver = open_writable(target.device());
        let top = receiver.subvolume_by_id(5).and_then(|top| top.root()).expect("it is there");
        let new = NewInode { mode: 0o040_755, uid: 0, gid: 0, umask: 0, device: (0, 0) };
        for (name, stream) in [("0", &whole), ("1", &stream)] {
            let place = top.create_child(name.as_ref(), &new).and_then(Inode::into_directory);
            let place = place.expect("a directory");
            let parts = receive_in_parts(stream, &place, name, &mut random);
            eprintln!("seed {seed}: {name} in {parts} parts");
        }
        receiver.sync().expect("synced");
        drop((top, receiver));
        assert_sound(target.device());

        let kernel = EmptyImage::new();
        let mount = kernel.mount("noatime");
        for (name, stream) in [("0", &whole), ("1", &stream)] {
            let place = mount.path().join(name);
            std::fs::create_dir(&place).expect("made");
            receive_in_parts(stream, &*place, name, &mut random);
        }
        for mount in [mount, target.mount("ro")] {
            for (name, manifest) in ["0", "1"].iter().zip(&manifests) {
                assert_same(manifest, &sendable(&mount.path().join(name).join(name)));
            }
        }
    }
}

/// A stream of two files. Between them is a command that cannot be applied.
fn with_a_wrong_command() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Version::V1).expect("written");
    for command in [
        Command::Subvol { path: b"received", uuid: Uuid::from_bytes([7; 16]), ctransid: 7 },
        Command::Mkfile { path: b"before", ino: 1 },
        Command::Chmod { path: b"before", mode: 0o600 },
        Command::Chmod { path: b"nowhere", mode: 0o600 },
        Command::Mkfile { path: b"after", ino: 2 },
        Command::Chmod { path: b"after", mode: 0o600 },
        Command::End,
    ] {
        writer.write(&command).expect("written");
    }
    writer.into_inner()
}

#[test]
fn no_checkpoint_is_taken_after_a_failed_command() {
    let stream = with_a_wrong_command();
    let image = EmptyImage::new();
    let filesystem = open_writable(image.device());
    let top = filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("it is there");
    let other = EmptyImage::new();
    let mount = other.mount("noatime");
    let places: [Box<dyn Target>; 2] = [top.target(), mount.path().target()];
    for mut target in places {
        let options = ReceiveOptions {
            max_errors: 0,
            checkpoints: Some(Checkpoints { stream: 7, every_bytes: 1, from: None }),
            ..ReceiveOptions::default()
        };
        let (mut taken, mut failed) = (Vec::new(), 0);
        let outcome = receive(&stream[..], &mut *target, &options, &mut |event| {
            match event {
                Event::Checkpoint(position) => taken.push(position),
                Event::Failed(_) => failed += 1,
                _ => {}
            }
            ControlFlow::Continue(())
        });
        outcome.expect_err("a command failed");
        assert_eq!((failed, taken.len()), (1, 2));
    }
}
