//! The server's end of the control channel, which [`larder_ioctl::channel`] describes.
//!
//! # Invariants
//! - Nobody but root and the user who runs the server is talked to.
//! - A connection has a thread of its own, and there are at most [`MOST_CONNECTIONS`]: whatever they ask for
//!   holds up no request of the kernel's.
//! - Serving ends when the mount does: open connections are shut down, and their threads waited for. Those that
//!   asked how the server ends stay open until it says so.

mod ending;
mod receive;
mod refusal;
mod send;

use std::collections::HashMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::OnceLock;
use std::thread::{self, Scope};

use larder::Uuid;
use larder_ioctl::channel::{ChannelInfo, Kind, NodeId, Request, descriptor, frame, name_for};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, shutdown};

use super::Exchange;
use super::Server;
use crate::transport::Notify;

pub(super) use receive::Hidden;
pub(super) use refusal::Refusal;

/// Connections at a time; more are closed at once.
const MOST_CONNECTIONS: usize = 16;

/// Where requests come in that FUSE does not pass on.
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

/// What becomes of a connection that is not served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// It is told how the server ends.
    Ending,
}

/// Shuts everything down when dropped, also while a panic unwinds.
struct Ending<'c> {
    channel: &'c Channel,
    listener: &'c UnixListener,
}

impl Exchange {
    /// Serves the control channel while `serve` runs.
    pub(in crate::server) fn with_channel(
        &self,
        kernel: &dyn Notify,
        serve: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let unique = || Uuid::new_v4().as_u64_pair().0;
        let name = self.channel.name.get_or_init(|| name_for(process::id(), unique()));
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        thread::scope(|scope| {
            let _ending = Ending { channel: &self.channel, listener: &listener };
            let accept = || self.accept(&listener, kernel, scope);
            thread::Builder::new().name("larder-channel".into()).spawn_scoped(scope, accept)?;
            serve()
        })
    }

    fn accept<'s>(
        &'s self,
        listener: &UnixListener,
        kernel: &'s dyn Notify,
        scope: &'s Scope<'s, '_>,
    ) {
        for number in 0_u64.. {
            // It fails once the listener is shut down.
            let Ok((socket, _)) = listener.accept() else { return };
            let peer = socket_peercred(&socket);
            let uid = peer.map(|peer| peer.uid.as_raw());
            let is_known = uid.is_ok_and(|uid| uid == 0 || uid == self.owner);
            if is_known && self.channel.enter(number, &socket) {
                let serve = move || {
                    // What fails here is at its end, and so is what panics, which was reported.
                    let serve = || self.serve_connection(&socket, kernel);
                    let served = catch_unwind(AssertUnwindSafe(serve));
                    self.channel.connections.lock().open.remove(&number);
                    if let Ok(Ok(Next::Ending)) = served {
                        self.channel.watch(socket);
                    }
                };
                // Without a thread the connection is closed unheard.
                if thread::Builder::new().spawn_scoped(scope, serve).is_err() {
                    self.channel.connections.lock().open.remove(&number);
                }
            }
        }
    }

    fn serve_connection(&self, socket: &UnixStream, kernel: &dyn Notify) -> io::Result<Next> {
        let mut body = Vec::new();
        while let Some(kind) = frame::read(socket, &mut body)? {
            let served = match Request::parse(kind, &body)? {
                Request::Send(request) => {
                    self.with_server(|server| server.send_snapshot(&request, socket))
                }
                Request::Receive(request) => {
                    self.with_server(|server| server.receive(&request, socket, kernel))
                }
                Request::Remount(words) => self.remount(&words, kernel).map(|()| Vec::new()),
                Request::Mount(words) => {
                    self.mount_for(&words, socket)?;
                    continue;
                }
                Request::Ending => return Ok(Next::Ending),
            };
            answer(socket, served)?;
        }
        Ok(Next::Nothing)
    }

    /// Hands out a mount with the options `words`.
    fn mount_for(&self, words: &str, socket: &UnixStream) -> io::Result<()> {
        match self.mount(words) {
            Ok((reply, tree)) => {
                answer(socket, Ok(reply.body()))?;
                descriptor::send(socket, tree)
            }
            Err(refusal) => answer(socket, Err(refusal)),
        }
    }
}

/// Ends a request.
fn answer(socket: &UnixStream, served: Result<Vec<u8>, Refusal>) -> io::Result<()> {
    match served {
        Ok(body) => frame::write(socket, Kind::Done, &body),
        Err(Refusal { errno, message }) => {
            let body = frame::failed(errno.raw_os_error(), &message);
            frame::write(socket, Kind::Failed, &body)
        }
    }
}

impl Server {
    /// What the ioctl that asks for the channel returns.
    pub(super) fn channel_info(&self, node: NodeId) -> Result<ChannelInfo, Errno> {
        let name = self.channel.name.get().ok_or(Errno::NOTTY)?;
        ChannelInfo::new(name, node).ok_or(Errno::NOTTY)
    }
}

impl Channel {
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
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // They fail where the other end has gone already.
        let _ = shutdown(self.listener, Shutdown::Both);
        let mut connections = self.channel.connections.lock();
        connections.is_ending = true;
        for socket in connections.open.values() {
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
}
