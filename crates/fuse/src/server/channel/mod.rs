//! The server's end of the control channel, which [`larder_ioctl::channel`] describes.
//!
//! # Invariants
//! - The server answers root and the user who runs it, and no other user.
//! - A connection has a thread of its own, and there are at most [`MOST_CONNECTIONS`]: no client
//!   holds up a request of the kernel.
//! - Serving ends when the mount does: the server shuts open connections down and waits for their
//!   threads. Those that asked how the server ends stay open until it says so.

mod changes;
mod ending;
mod input;
mod receive;
mod removal;
mod rights;
mod send;
mod serve;
mod state;
mod walk;

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use larder_ioctl::channel::{ChannelInfo, NodeId};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

pub(super) use serve::during;

/// The most connections at a time; more are closed at once.
const MOST_CONNECTIONS: usize = 16;

/// The channel's name and its connections. They outlast an exchange of servers.
#[derive(Debug, Default)]
pub(super) struct Channel {
    name: OnceLock<String>,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    open: HashMap<u64, UnixStream>,
    /// Clients that asked how the server ends.
    watching: Vec<UnixStream>,
    is_ending: bool,
}

impl Channel {
    /// The answer to the ioctl that asks for the channel.
    pub(super) fn info(&self, node: NodeId) -> Result<ChannelInfo, Errno> {
        let name = self.name.get().ok_or(Errno::NOTTY)?;
        ChannelInfo::new(name, node).ok_or(Errno::NOTTY)
    }

    /// Enters a connection, unless there are too many.
    fn enter(&self, number: u64, socket: &UnixStream) -> bool {
        let Connections { open, is_ending, .. } = &mut *self.connections.lock();
        let Ok(socket) = socket.try_clone() else { return false };
        let has_room = open.len() < MOST_CONNECTIONS && !*is_ending;
        if has_room {
            open.insert(number, socket);
        }
        has_room
    }

    fn leave(&self, number: u64) {
        self.connections.lock().open.remove(&number);
    }

    /// Shuts open connections down. None is entered from now on.
    fn end(&self) {
        let mut connections = self.connections.lock();
        connections.is_ending = true;
        for socket in connections.open.values() {
            // It fails if the other end has gone already.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
}
