//! Snapshots sent to a client.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use larder::{SendOptions, SendProgress, SendSnapshot, StreamVersion};
use larder_ioctl::channel::{Kind, SendRequest, frame};
use rustix::io::Errno;

use super::Grant;
use crate::server::refusal::{Refusal, refuse};
use crate::server::state::Server;

/// The client is told of each further step of so many millionths.
const STEP: u32 = 1000;

/// Sends the snapshot of a grant as it is committed, until the client closes the connection.
pub(super) fn send(
    server: &Server,
    request: &SendRequest,
    grant: &Grant,
    socket: &UnixStream,
) -> Result<Vec<u8>, Refusal> {
    let version = u32::try_from(request.version).ok().and_then(StreamVersion::from_number);
    let unknown = || Refusal {
        errno: Errno::OPNOTSUPP,
        message: format!("streams of version {} are not known here", request.version),
    };
    let subvolume = |id: &u64| server.filesystem.subvolume_by_id(*id);
    let options = SendOptions {
        version: version.ok_or_else(unknown)?,
        parent: request.parent.as_ref().map(subvolume).transpose()?,
        clone_sources: request.clone_sources.iter().map(subvolume).collect::<Result<_, _>>()?,
        compressed_data: request.compressed_data,
        no_data: request.no_data,
        begins_stream: request.begins_stream,
        ends_stream: request.ends_stream,
        progress: Arc::default(),
    };
    let mut frames = Frames { socket, progress: options.progress.clone(), told: 0 };
    let root = grant.inode(server).map_err(|errno| refuse(errno, ""))?;
    root.into_subvolume()?.send(&options, &mut frames)?;
    Ok(Vec::new())
}

/// Writes bytes as frames, and tells the client how far it has come.
struct Frames<'s> {
    socket: &'s UnixStream,
    progress: Arc<SendProgress>,
    /// Millionths that the client was told.
    told: u32,
}

impl Write for Frames<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(frame::MOST_BYTES)];
        let millionths = self.progress.millionths();
        if millionths >= self.told + STEP {
            self.told = millionths;
            frame::write(self.socket, Kind::Event, &millionths.to_le_bytes())?;
        }
        frame::write(self.socket, Kind::Data, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
