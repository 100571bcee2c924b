//! The server's end of the control channel, which [`larder_ioctl::channel`] describes.
//!
//! # Invariants
//! - The server answers root and the user who runs it, and no other user. To them a connection gives
//!   no authority: that comes with what the client shows first, a [`Grant`] or the open image.
//! - A connection has a thread of its own, and there are at most [`MOST_CONNECTIONS`]: no client
//!   holds up a request of the kernel. Clients that have shown nothing yet do not count: there are
//!   at most as many, and a new one takes the place of the oldest.
//! - Clients that do not administer the file system leave room for those that do: root of a
//!   container keeps nobody out.
//! - Serving ends when the mount does: the server shuts open connections down and waits for their
//!   threads. Those that asked how the server ends stay open until it says so.

mod changes;
mod ending;
mod grants;
mod input;
mod receive;
mod removal;
mod rights;
mod send;
mod serve;
mod state;
mod walk;

use std::collections::{HashMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use larder_ioctl::channel::{ChannelInfo, NodeId};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

pub(super) use grants::Grant;
pub(super) use serve::during;
pub(super) use walk::get_written_data;

use self::grants::Grants;

/// The most connections at a time; more are closed at once.
const MOST_CONNECTIONS: usize = 16;
/// The most of them by clients that do not administer the file system.
const MOST_OF_OTHERS: usize = 8;

/// The channel's name, its tokens and its connections. They outlast an exchange of servers.
#[derive(Debug, Default)]
pub(super) struct Channel {
    name: OnceLock<String>,
    pub(super) grants: Grants,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    /// Those that have shown nothing yet, the oldest first.
    strangers: VecDeque<(u64, UnixStream)>,
    open: HashMap<u64, Served>,
    /// Clients that asked how the server ends.
    watching: Vec<UnixStream>,
    is_ending: bool,
}

#[derive(Debug)]
struct Served {
    socket: UnixStream,
    administers: bool,
}

impl Channel {
    /// The answer to the ioctl that asks for the channel. A caller that the server does not serve
    /// learns no name.
    pub(super) fn info(&self, node: NodeId, is_served: bool) -> Result<ChannelInfo, Errno> {
        let name = self.name.get().ok_or(Errno::NOTTY)?;
        let name = if is_served { name } else { "" };
        ChannelInfo::new(name, node).ok_or(Errno::NOTTY)
    }

    /// Enters a connection that has shown nothing yet.
    fn meet(&self, number: u64, socket: &UnixStream) -> bool {
        let Connections { strangers, is_ending, .. } = &mut *self.connections.lock();
        let Ok(socket) = socket.try_clone() else { return false };
        if *is_ending {
            return false;
        }
        if strangers.len() == MOST_CONNECTIONS
            && let Some((_, oldest)) = strangers.pop_front()
        {
            // It fails if the other end has gone already.
            let _ = shutdown(oldest, Shutdown::Both);
        }
        strangers.push_back((number, socket));
        true
    }

    /// Enters a connection that has shown its authority, unless there are too many.
    fn enter(&self, number: u64, administers: bool) -> bool {
        let Connections { strangers, open, .. } = &mut *self.connections.lock();
        let stranger = strangers.iter().position(|(it, _)| *it == number);
        let Some((_, socket)) = stranger.and_then(|it| strangers.remove(it)) else { return false };
        let others = open.values().filter(|served| !served.administers).count();
        let has_room = open.len() < MOST_CONNECTIONS && (administers || others < MOST_OF_OTHERS);
        if has_room {
            open.insert(number, Served { socket, administers });
        }
        has_room
    }

    fn leave(&self, number: u64) {
        let Connections { strangers, open, .. } = &mut *self.connections.lock();
        strangers.retain(|(it, _)| *it != number);
        open.remove(&number);
    }

    /// Shuts open connections down. None is entered from now on.
    fn end(&self) {
        let mut connections = self.connections.lock();
        connections.is_ending = true;
        let strangers = connections.strangers.iter().map(|(_, socket)| socket);
        for socket in connections.open.values().map(|served| &served.socket).chain(strangers) {
            // It fails if the other end has gone already.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
}
