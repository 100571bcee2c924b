//! Streams that change many inodes in turns, received into an image, which applies the changes with
//! several threads, and into a mounted directory, which applies command by command.
//!
//! Needs root, loop devices and btrfs in the kernel.

use std::fs;
use std::ops::ControlFlow;

use larder_format::Uuid;
use larder_stream::{
    Command, Event, ImageTarget, MountedTarget, ReceiveOptions, Target, Timestamp, Version, Writer,
    receive,
};
use larder_testkit::assert_same;
use larder_testkit::snapshots::Random;

use crate::support::{EmptyImage, assert_sound, open_writable, sendable};

const FILES: usize = 400;
const FOLDERS: usize = 5;
const TURNS: usize = 30_000;

/// A stream that is written as it is made, so that its paths need not outlive a command.
struct Stream {
    writer: Writer<Vec<u8>>,
    /// Two names of each file, or its only name twice.
    names: Vec<[Vec<u8>; 2]>,
    folders: Vec<Vec<u8>>,
    names_given: usize,
}

impl Stream {
    fn new() -> Self {
        let mut stream = Self {
            writer: Writer::new(Vec::new(), Version::V1).expect("written"),
            names: Vec::new(),
            folders: (0..FOLDERS).map(|folder| format!("folder{folder}").into_bytes()).collect(),
            names_given: 0,
        };
        let uuid = Uuid::from_bytes([7; 16]);
        stream.add(&Command::Subvol { path: b"received", uuid, ctransid: 7 });
        for path in stream.folders.clone() {
            stream.add(&Command::Mkdir { path: &path, ino: 1 });
        }
        for file in 0..FILES {
            let first = stream.new_name(file % FOLDERS);
            stream.add(&Command::Mkfile { path: &first, ino: 2 });
            let mut second = first.clone();
            if file % 2 == 0 {
                second = stream.new_name((file + 1) % FOLDERS);
                stream.add(&Command::Link { path: &second, existing: &first });
            }
            stream.names.push([first, second]);
        }
        stream
    }

    fn add(&mut self, command: &Command<'_>) {
        self.writer.write(command).expect("written");
    }

    fn new_name(&mut self, folder: usize) -> Vec<u8> {
        self.names_given += 1;
        let folder = String::from_utf8(self.folders[folder].clone()).expect("ASCII");
        format!("{folder}/name{}", self.names_given).into_bytes()
    }

    /// Changes a file, by either name; now and then moves a name or a folder.
    fn turn(&mut self, random: &mut Random) {
        let (file, name) = (random.below(FILES), random.below(2));
        let number = |random: &mut Random, bound| random.below(bound) as u64;
        let path = self.names[file][name].clone();
        let data = vec![random.below(256) as u8; random.below(5000)];
        let time = Timestamp { seconds: random.below(1 << 30) as i64, nanoseconds: 5 };
        match random.below(200) {
            0 => {
                let folder = random.below(FOLDERS);
                let to = self.new_name(folder);
                self.add(&Command::Rename { path: &path, to: &to });
                for known in self.names[file].iter_mut().filter(|known| **known == path) {
                    known.clone_from(&to);
                }
            }
            1 => {
                let folder = random.below(FOLDERS);
                self.names_given += 1;
                let to = format!("folder{}", self.names_given).into_bytes();
                let from = std::mem::replace(&mut self.folders[folder], to.clone());
                self.add(&Command::Rename { path: &from, to: &to });
                for path in self.names.iter_mut().flatten() {
                    if let Some(rest) = path.strip_prefix(&*from)
                        && rest.starts_with(b"/")
                    {
                        *path = [&*to, rest].concat();
                    }
                }
            }
            2 => {
                self.add(&Command::Write { path: b"nowhere/at all", offset: 0, data: b"x" });
                // Too early: the file does not exist yet.
                let path = self.new_name(0);
                self.add(&Command::Chmod { path: &path, mode: 0o7 });
                self.add(&Command::Mkfile { path: &path, ino: 3 });
                self.add(&utimes(&path, time));
            }
            3..60 => {
                let offset = number(random, 9000);
                self.add(&Command::Write { path: &path, offset, data: &data });
            }
            60..80 => self.add(&Command::Truncate { path: &path, size: number(random, 9000) }),
            // A short file with new content, as it is sent, and almost like that.
            80..100 => {
                let data = &data[..data.len().min(2500)];
                self.add(&Command::Write { path: &path, offset: 0, data });
                let sizes = [data.len() as u64, number(random, 2500)];
                if let Some(size) = sizes.get(random.below(3)) {
                    self.add(&Command::Truncate { path: &path, size: *size });
                }
                self.add(&utimes(&path, time));
            }
            100..130 => self.add(&Command::SetXattr {
                path: &path,
                name: b"user.one",
                data: &data[..data.len().min(200)],
            }),
            // Often there is none, which is an error.
            130..150 => self.add(&Command::RemoveXattr { path: &path, name: b"user.one" }),
            150..170 => self.add(&Command::Chmod { path: &path, mode: number(random, 0o10000) }),
            170..190 => self.add(&Command::Chown { path: &path, uid: number(random, 9), gid: 3 }),
            _ => self.add(&utimes(&path, time)),
        }
    }

    /// Sets permissions by both names in turns, and all times, which would otherwise be those of
    /// receiving.
    fn end(mut self) -> Vec<u8> {
        for [first, second] in self.names.clone() {
            for (path, mode) in [(&first, 0o600), (&second, 0o640), (&first, 0o644)] {
                self.add(&Command::Chmod { path, mode });
            }
        }
        let time = Timestamp { seconds: 77, nanoseconds: 7 };
        let paths: Vec<_> =
            self.names.iter().map(|[first, _]| first).chain(&self.folders).cloned().collect();
        for path in paths {
            self.add(&utimes(&path, time));
        }
        self.add(&utimes(b"", time));
        self.add(&Command::End);
        self.writer.into_inner()
    }
}

fn utimes(path: &[u8], time: Timestamp) -> Command<'_> {
    Command::Utimes { path, atime: time, mtime: time, ctime: time, otime: None }
}

/// The errors, command by command.
fn receive_all(stream: &[u8], target: &mut dyn Target) -> Vec<String> {
    let mut failed = Vec::new();
    let options = ReceiveOptions { max_errors: 0, ..ReceiveOptions::default() };
    let outcome = receive(stream, target, &options, &mut |event| {
        if let Event::Failed(error) = event {
            failed.push(format!("{} {}", error.action, String::from_utf8_lossy(&error.path)));
        }
        ControlFlow::Continue(())
    });
    outcome.expect_err("some commands cannot be applied");
    failed
}

#[test]
fn changes_in_turns_are_applied_in_order() {
    let mut random = Random(41);
    let mut stream = Stream::new();
    for _ in 0..TURNS {
        stream.turn(&mut random);
    }
    let stream = stream.end();
    let image = EmptyImage::new();
    let failed = {
        let filesystem = open_writable(image.device());
        let top = filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
        let failed = receive_all(&stream, &mut ImageTarget::new(top));
        filesystem.sync().expect("durable");
        failed
    };
    assert_sound(image.device());
    let mount = image.mount("noatime");
    let folder = mount.path().join("mounted");
    fs::create_dir(&folder).expect("made");
    let mut target = MountedTarget::open(&folder).expect("it opens");
    assert_eq!(failed, receive_all(&stream, &mut target));
    assert!(failed.len() > 100 && failed.iter().any(|failed| failed == "write nowhere/at all"));
    assert_same(&sendable(&folder.join("received")), &sendable(&mount.path().join("received")));
}
