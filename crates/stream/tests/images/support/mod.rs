//! Helpers of the tests: snapshots, and streams that the kernel makes of them.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use larder_device::{Access, Device, FileDevice};
use larder_filesystem::{Filesystem, Inode, NewInode, Subvolume, Tuning, WriteOptions};
use larder_stream::{
    ImageTarget, MountedTarget, ReceiveError, ReceiveOptions, Received, SendOptions, receive, send,
};
use larder_testkit::command::run;
use larder_testkit::{KernelMount, Scratch, oracle};
use larder_volume::{OpenOptions, Volume};

pub(crate) use larder_testkit::snapshots::sendable;

#[track_caller]
pub(crate) fn btrfs(arguments: &[&dyn AsRef<OsStr>]) -> String {
    run("btrfs", arguments.iter().map(AsRef::as_ref)).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
pub(crate) fn snapshot(source: &Path, target: &Path) {
    btrfs(&[&"subvolume", &"snapshot", &"-r", &source, &target]);
}

#[track_caller]
pub(crate) fn delete(subvolume: &Path) {
    btrfs(&[&"subvolume", &"delete", &subvolume]);
}

/// The output of `btrfs send` with these options.
#[track_caller]
pub(crate) fn kernel_send(
    options: &[&dyn AsRef<OsStr>],
    snapshot: &Path,
    scratch: &Path,
) -> Vec<u8> {
    let file = scratch.join("kernel-stream");
    let mut arguments: Vec<&dyn AsRef<OsStr>> = vec![&"send", &"-q"];
    arguments.extend(options);
    arguments.extend([&"-f" as &dyn AsRef<OsStr>, &file, &snapshot]);
    btrfs(&arguments);
    let stream = std::fs::read(&file).expect("the stream is there");
    std::fs::remove_file(&file).expect("the stream can be removed");
    stream
}

/// The output of `btrfs receive --dump` for a stream.
#[track_caller]
pub(crate) fn kernel_dump(stream: &[u8], scratch: &Path) -> Vec<u8> {
    let file = scratch.join("dumped-stream");
    std::fs::write(&file, stream).expect("the stream is written");
    let mut command = Command::new("btrfs");
    command.args(["receive", "--dump", "-f"]).arg(&file).env("LC_ALL", "C").env("TZ", "UTC");
    let output = command.output().expect("btrfs runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Makes `btrfs receive` create a subvolume in `folder`, and returns its path.
#[track_caller]
pub(crate) fn kernel_receive(stream: &[u8], folder: &Path, name: &str, scratch: &Path) -> PathBuf {
    let file = scratch.join("received-stream");
    std::fs::write(&file, stream).expect("the stream is written");
    btrfs(&[&"receive", &"-q", &"-f", &file, &folder]);
    std::fs::remove_file(&file).expect("the stream can be removed");
    folder.join(name)
}

/// An empty file system; removed when dropped.
#[derive(Debug)]
pub(crate) struct EmptyImage {
    scratch: Scratch,
    device: Vec<PathBuf>,
}

impl EmptyImage {
    #[track_caller]
    pub(crate) fn new() -> Self {
        Self::with_node_size(16 << 10)
    }

    #[track_caller]
    pub(crate) fn with_node_size(node_size_bytes: u32) -> Self {
        let scratch = Scratch::new();
        let device = scratch.sparse_file("device", 1 << 30);
        let node_size = node_size_bytes.to_string();
        let arguments = ["-q".as_ref(), "-n".as_ref(), node_size.as_ref(), device.as_os_str()];
        run("mkfs.btrfs", arguments).unwrap_or_else(|error| panic!("{error}"));
        Self { scratch, device: vec![device] }
    }

    pub(crate) fn device(&self) -> &[PathBuf] {
        &self.device
    }

    #[track_caller]
    pub(crate) fn mount(&self, options: &str) -> KernelMount {
        KernelMount::open(&self.device, options)
    }

    /// A folder for streams.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

/// Opens a file system that no kernel has mounted, for writing.
#[track_caller]
pub(crate) fn open_writable(devices: &[PathBuf]) -> Filesystem {
    let open = |path: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path, Access::ReadWrite).expect("the image opens"))
    };
    let devices = devices.iter().map(open).collect();
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let volume = Volume::open(devices, &options).expect("it is a file system");
    let options = WriteOptions {
        cache_bytes: 32 << 20,
        commit_interval: None,
        commit_bytes: 128 << 20,
        dirty_bytes: 64 << 20,
        tuning: Tuning::default(),
        resync_progress: &|_| (),
    };
    options.open(Arc::new(volume)).expect("its trees are there")
}

/// Receives a stream in the directory of this name below the top level, which is created if
/// missing; an empty name means the top level itself.
pub(crate) fn larder_receive(
    stream: &[u8],
    filesystem: &Filesystem,
    folder: &str,
) -> Result<Received, ReceiveError> {
    let mut directory =
        filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
    if !folder.is_empty() {
        let new = NewInode { mode: 0o040_755, uid: 0, gid: 0, umask: 0, device: (0, 0) };
        let name = folder.as_ref();
        let found = directory.child(name).or_else(|_| directory.create_child(name, &new));
        directory = found.and_then(Inode::into_directory).expect("a directory");
    }
    let mut target = ImageTarget::new(directory);
    let options = ReceiveOptions::default();
    receive(stream, &mut target, &options, &mut |_| ControlFlow::Continue(()))
}

/// Receives a stream in a directory of a mounted file system.
pub(crate) fn mounted_receive(stream: &[u8], directory: &Path) -> Result<Received, ReceiveError> {
    let mut target = MountedTarget::open(directory).expect("a directory");
    let options = ReceiveOptions::default();
    receive(stream, &mut target, &options, &mut |_| ControlFlow::Continue(()))
}

/// Neither checker finds an error.
#[track_caller]
pub(crate) fn assert_sound(devices: &[PathBuf]) {
    oracle::check(devices, true).unwrap_or_else(|error| panic!("{error}"));
    let filesystem = open(devices);
    let report = larder_check::check(filesystem.volume(), &larder_check::Options::default())
        .expect("nobody stops it");
    assert!(report.is_clean(), "{report:#?}");
}

/// Opens a file system that no kernel has mounted.
#[track_caller]
pub(crate) fn open(devices: &[PathBuf]) -> Filesystem {
    let open = |path: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path, Access::ReadOnly).expect("the image opens"))
    };
    let devices = devices.iter().map(open).collect();
    let volume = Volume::open(devices, &OpenOptions::default()).expect("it is a file system");
    Filesystem::open(Arc::new(volume), 32 << 20).expect("its trees are there")
}

/// The subvolume at `path` from the top level.
#[track_caller]
pub(crate) fn subvolume(filesystem: &Filesystem, path: &str) -> Subvolume {
    let found = filesystem.subvolumes().find_map(|info| {
        let id = info.expect("subvolumes are listed").id;
        let here = filesystem.subvolume_path(id).ok()?;
        (here.as_os_str() == path).then_some(id)
    });
    let id = found.unwrap_or_else(|| panic!("there is no subvolume {path}"));
    filesystem.subvolume_by_id(id).expect("it is there")
}

/// The stream that Larder sends.
#[track_caller]
pub(crate) fn larder_send(snapshot: &Subvolume, options: &SendOptions) -> Vec<u8> {
    let mut stream = Vec::new();
    let sent = send(snapshot, options, &mut stream).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sent.stream_bytes, stream.len() as u64);
    stream
}

/// Changes of every kind to the files of the testkit.
pub(crate) fn change(root: &Path) {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;
    let data = root.join("data");
    fs::rename(data.join("text-4096"), data.join("text-4097")).expect("renamed over");
    fs::rename(&data, root.join("sparse/data")).expect("moved");
    fs::rename(root.join("links"), &data).expect("moved to what was another's name");
    fs::create_dir(root.join("links")).expect("made");
    fs::rename(root.join("xattrs"), root.join("links/xattrs")).expect("moved into a new one");
    let file = OpenOptions::new().write(true).open(root.join("sparse/data/text-300007"));
    let file = file.expect("opens");
    file.write_all_at(b"in the middle", 150_000).expect("written");
    file.set_len(200_000).expect("cut");
    fs::remove_dir_all(root.join("many")).expect("removed");
    fs::write(root.join("many"), b"a file now").expect("written");
}
