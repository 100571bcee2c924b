//! Sending snapshots of mounted file systems.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use larder_filesystem::Relative;
use larder_format::{Uuid, objectid};
use larder_ioctl::KernelSend;
use larder_ioctl::channel::{Channel, Kind, Request, SendRequest, node_of};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::estimate::Estimate;
use super::filesystem::MountedFilesystem;
use crate::{Error, Overview, SendError, SendOptions, StreamOrigin, StreamVersion, SubvolumeInfo};

/// How much goes through a pipe at once.
const PIPE_BYTES: usize = 1 << 20;

/// A snapshot in a file system that is mounted, by larder or by the kernel. The file system cannot
/// be unmounted as long as this exists.
#[derive(Clone, Debug)]
pub struct MountedSnapshot {
    root: Arc<File>,
    id: u64,
    on: On,
}

/// The server of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Larder(Uuid),
    Kernel(Uuid),
}

impl MountedSnapshot {
    /// Opens the snapshot whose root is at `path`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let root = Arc::new(File::open(path)?);
        let no_root = || io::Error::new(io::ErrorKind::InvalidInput, "not a subvolume");
        let filesystem = larder_ioctl::filesystem_info(&root)
            .map_err(|_| io::Error::new(io::ErrorKind::Unsupported, "not in a mounted btrfs"))?;
        let filesystem = filesystem.uuid;
        if let Some(node) = node_of(&root)? {
            let is_root = node.inode == objectid::FIRST_FREE;
            let snapshot = Self { root, id: node.subvolume, on: On::Larder(filesystem) };
            return is_root.then_some(snapshot).ok_or_else(no_root);
        }
        if std::os::unix::fs::MetadataExt::ino(&root.metadata()?) != objectid::FIRST_FREE {
            return Err(no_root());
        }
        let id = larder_ioctl::subvolume_info(&root)?.id;
        Ok(Self { root, id, on: On::Kernel(filesystem) })
    }

    /// The name of its root in the directory above.
    pub fn name(&self) -> io::Result<Vec<u8>> {
        Ok(larder_ioctl::subvolume_info(&self.root)?.name)
    }

    /// How streams name this snapshot.
    pub fn origin(&self) -> io::Result<StreamOrigin> {
        let larder_ioctl::SubvolumeInfo { uuid, received_uuid, ctransid, .. } =
            larder_ioctl::subvolume_info(&self.root)?;
        Ok(StreamOrigin::sent(uuid, received_uuid, ctransid))
    }

    /// The other read-only subvolumes of the file system for which `is_wanted` is true. Those that
    /// lie outside of what is mounted are left out.
    pub fn others(
        &self,
        mut is_wanted: impl FnMut(&SubvolumeInfo) -> bool,
    ) -> crate::Result<Vec<Self>> {
        let filesystem = MountedFilesystem::of(self.root.try_clone().map_err(Error::Mounted)?);
        // What the path here and the one from the top level have in common is below the top of
        // both.
        let here = std::fs::read_link(format!("/proc/self/fd/{}", self.root.as_raw_fd()));
        let here = here.map_err(Error::Mounted)?;
        let from_top = filesystem.subvolume_path(self.id)?;
        let (mounted_at, mounted) = without_common_end(&here, &from_top);
        let mut others = Vec::new();
        for info in filesystem.subvolumes()? {
            let info = info?;
            let is_other = info.id != self.id && info.is_read_only && !info.is_being_deleted;
            if !is_other || !is_wanted(&info) {
                continue;
            }
            let path = filesystem.subvolume_path(info.id)?;
            let Ok(below) = path.strip_prefix(mounted) else { continue };
            let found = Self::open(mounted_at.join(below));
            let is_it = |found: &Self| found.is_together(self) && found.id == info.id;
            others.extend(found.ok().filter(is_it));
        }
        Ok(others)
    }

    /// Whether both lie on one file system.
    pub fn is_together(&self, other: &Self) -> bool {
        self.on == other.on
    }

    /// The newest version of the stream that the kernel or the server of the file system sends.
    pub fn newest_version(&self) -> StreamVersion {
        let kernel = || StreamVersion::from_number(larder_ioctl::newest_stream_version().ok()?);
        match self.on {
            On::Larder(_) => StreamVersion::NEWEST,
            On::Kernel(_) => kernel().unwrap_or(StreamVersion::V1),
        }
    }

    /// Sends this snapshot to `output`, as [`SendSnapshot::send`](crate::SendSnapshot::send) does. All
    /// snapshots must be [together](Self::is_together). Only root may do that and, on a mount of
    /// larder, the user who mounted it. Returns the bytes of the stream.
    pub fn send(
        &self,
        options: &SendOptions<Self>,
        output: &mut dyn Write,
    ) -> Result<u64, SendError> {
        match self.on {
            On::Larder(_) => self.send_by_larder(options, output),
            On::Kernel(_) => self.send_by_kernel(options, output),
        }
    }

    /// Like [`Subvolume::closest_relative`](crate::Subvolume::closest_relative).
    pub fn closest_relative<'a>(&self, others: &'a [Self]) -> io::Result<Option<&'a Self>> {
        if others.is_empty() {
            return Ok(None);
        }
        let relative = |snapshot: &Self| -> io::Result<Relative> {
            let larder_ioctl::SubvolumeInfo { uuid, parent_uuid, ctransid: generation, .. } =
                larder_ioctl::subvolume_info(&snapshot.root)?;
            Ok(Relative { uuid, parent_uuid, generation })
        };
        let infos = others.iter().map(|other| Ok((relative(other)?, other)));
        Ok(relative(self)?.closest(infos.collect::<io::Result<Vec<_>>>()?))
    }

    fn send_by_larder(
        &self,
        options: &SendOptions<Self>,
        output: &mut dyn Write,
    ) -> Result<u64, SendError> {
        let request = SendRequest {
            version: options.version.number().into(),
            parent: options.parent.as_ref().map(|parent| parent.id),
            clone_sources: options.clone_sources.iter().map(|source| source.id).collect(),
            compressed_data: options.compressed_data,
            no_data: options.no_data,
            begins_stream: options.begins_stream,
            ends_stream: options.ends_stream,
        };
        let gone = || io::Error::other("the mount is gone");
        let found = Channel::of(&self.root).and_then(|found| found.ok_or_else(gone));
        let (mut channel, _) = found.map_err(SendError::Mounted)?;
        let mut stream_bytes = 0;
        let mut is_unwritten = false;
        let mut take = |kind: Kind, data: &[u8]| {
            if kind == Kind::Event {
                let millionths = data.try_into().map_or(0, u32::from_le_bytes);
                options.progress.set_millionths(millionths);
                return Ok(());
            }
            stream_bytes += data.len() as u64;
            output.write_all(data).inspect_err(|_| is_unwritten = true)
        };
        match channel.call(&Request::Send(request), &mut take) {
            Ok(_) => output.flush().map_err(SendError::Output).map(|()| stream_bytes),
            Err(error) if is_unwritten => Err(SendError::Output(error)),
            Err(error) => Err(SendError::Mounted(error)),
        }
    }

    fn send_by_kernel(
        &self,
        options: &SendOptions<Self>,
        output: &mut dyn Write,
    ) -> Result<u64, SendError> {
        for snapshot in [self].into_iter().chain(&options.parent).chain(&options.clone_sources) {
            let info = larder_ioctl::subvolume_info(&snapshot.root).map_err(SendError::Mounted)?;
            if !info.is_read_only {
                return Err(SendError::NotReadOnly(info.id));
            }
        }
        let (from, to) = pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| SendError::Mounted(io::Error::from(error)))?;
        // A smaller pipe is only slower.
        let _ = fcntl_setpipe_size(&to, PIPE_BYTES);
        let sources = options.parent.iter().chain(&options.clone_sources);
        let sources: Vec<u64> = sources.map(|source| source.id).collect();
        let request = KernelSend {
            version: options.version.number(),
            parent: options.parent.as_ref().map(|parent| parent.id),
            clone_sources: &sources,
            compressed_data: options.compressed_data,
            no_data: options.no_data,
            begins_stream: options.begins_stream,
            ends_stream: options.ends_stream,
        };
        thread::scope(|scope| {
            let root = &self.root;
            let sending = scope.spawn(move || larder_ioctl::send(root, &request, to.as_fd()));
            let mut estimate = Estimate::new(root, options);
            // An error here closes the pipe, and that ends the other thread.
            let copied = copy(from, output, &mut estimate);
            let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let stream_bytes = copied?;
            sent.map_err(SendError::Mounted)?;
            Ok(stream_bytes)
        })
    }
}

/// Both paths without the parts at their ends that are the same.
fn without_common_end<'a>(one: &'a Path, other: &'a Path) -> (&'a Path, &'a Path) {
    let (mut one, mut other) = (one, other);
    while let (Some(above_one), Some(above_other)) = (one.parent(), other.parent())
        && one.file_name() == other.file_name()
    {
        (one, other) = (above_one, above_other);
    }
    (one, other)
}

/// Copies everything that comes through a pipe.
fn copy(
    from: OwnedFd,
    output: &mut dyn Write,
    estimate: &mut Estimate<'_>,
) -> Result<u64, SendError> {
    let (mut from, mut buffer) = (File::from(from), vec![0; PIPE_BYTES]);
    let mut bytes = 0;
    loop {
        let len = match from.read(&mut buffer) {
            Ok(0) => return output.flush().map_err(SendError::Output).map(|()| bytes),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(SendError::Mounted(error)),
        };
        estimate.pass(&buffer[..len]);
        output.write_all(&buffer[..len]).map_err(SendError::Output)?;
        bytes += len as u64;
    }
}
