//! Streams received from a client.
//!
//! # Invariants
//! - The kernel caches what it is shown, and is shown nothing of a subvolume before its receive has
//!   ended: its name cannot be opened until then.

use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;

use larder::{Directory, ReceiveCheckpoints, ReceiveEvent, ReceiveOptions, ReceiveSnapshots};
use larder_ioctl::channel::{
    CheckpointRequest, Kind, ReceiveNews, ReceiveReply, ReceiveRequest, frame,
};

use super::{Grant, input};
use crate::protocol::Notice;
use crate::server::refusal::Refusal;
use crate::server::state::Server;
use crate::transport::Notify;

/// The client is told of each further step of so many bytes.
const STEP_BYTES: u64 = 256 << 10;

/// The names of one receive, hidden until this is dropped.
struct Hiding<'s> {
    server: &'s Server,
    directory: &'s Directory,
    kernel: &'s dyn Notify,
    names: Vec<OsString>,
}

impl Hiding<'_> {
    fn hide(&mut self, name: &OsStr) {
        self.server.hidden.insert(self.directory, name);
        self.names.push(name.to_owned());
    }

    /// Makes the kernel forget that there is nothing of this name in the directory.
    fn tell_kernel(&self, name: &OsStr) {
        let id = self.server.nodes.id_of(self.directory);
        for notice in Notice::name_and_directory(id, name) {
            // It fails if the kernel knows nothing to forget.
            let _ = self.kernel.notify(&notice);
        }
    }
}

impl Drop for Hiding<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            self.server.hidden.remove(self.directory, name);
        }
        self.names.iter().for_each(|name| self.tell_kernel(name));
    }
}

/// Receives the streams that follow the request.
pub(super) fn receive(
    server: &Server,
    request: &ReceiveRequest,
    grant: &Grant,
    socket: &UnixStream,
    kernel: &dyn Notify,
) -> Result<Vec<u8>, Refusal> {
    let directory = grant.writable_directory(server)?;
    let ReceiveRequest { stop_at_end, max_errors, force_decompress, .. } = *request;
    let checkpoints = request.checkpoints.map(|checkpoints| {
        let CheckpointRequest { stream, every_bytes, from } = checkpoints;
        ReceiveCheckpoints { stream, every_bytes, from }
    });
    let options = ReceiveOptions { stop_at_end, max_errors, force_decompress, checkpoints };
    let mut hiding = Hiding { server, directory: &directory, kernel, names: Vec::new() };
    let mut told_bytes = 0;
    let mut observe = |event: ReceiveEvent<'_>| {
        match event {
            ReceiveEvent::Begins { name, .. } => hiding.hide(OsStr::from_bytes(name)),
            ReceiveEvent::Checkpoint(byte) => {
                if let Some(checkpoints) = checkpoints {
                    let name = ReceiveCheckpoints::name(checkpoints.stream, byte);
                    hiding.tell_kernel(OsStr::new(&name));
                }
            }
            _ => {}
        }
        match tell(&event, &mut told_bytes, socket) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let outcome = directory.receive(input::direct(socket), &options, &mut observe);
    let reply = match outcome {
        Ok(received) => ReceiveReply::Received {
            stream_bytes: received.stream_bytes,
            subvolumes: received.subvolumes,
            commands: received.commands,
        },
        Err(error) => {
            // The commands that were applied stay, so that the user can look at them.
            server.filesystem.sync()?;
            let message = error.to_string();
            ReceiveReply::Failed { unfinished: error.unfinished, message }
        }
    };
    Ok(reply.body())
}

/// Tells the client of an event.
fn tell(event: &ReceiveEvent<'_>, told_bytes: &mut u64, socket: &UnixStream) -> io::Result<()> {
    let news = |news: ReceiveNews<'_>| frame::write(socket, Kind::Event, &news.body());
    match *event {
        ReceiveEvent::Begins { name, is_snapshot } => {
            news(ReceiveNews::Begins { name, is_snapshot })
        }
        ReceiveEvent::Failed(error) => news(ReceiveNews::Failed(error.to_string().as_bytes())),
        ReceiveEvent::Checkpoint(byte) => news(ReceiveNews::Checkpoint(byte)),
        ReceiveEvent::Read(bytes) if bytes >= *told_bytes + STEP_BYTES => {
            *told_bytes = bytes;
            news(ReceiveNews::Read(bytes))
        }
        _ => Ok(()),
    }
}
