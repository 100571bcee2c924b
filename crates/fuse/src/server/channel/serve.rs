//! Taking connections and answering their requests.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::thread::{self, Scope};

use larder::Uuid;
use larder_ioctl::channel::{Kind, Request, descriptor, frame, name_for};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, UCred, shutdown};

use super::{Channel, changes, receive, send, state, walk};
use crate::protocol::abi::ShownId;
use crate::server::access::{Caller, is_privileged};
use crate::server::exchange::Exchange;
use crate::server::further;
use crate::server::refusal::Refusal;
use crate::server::state::Server;
use crate::transport::Notify;

/// What happens to a connection that is not served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// The client is told how the server ends.
    Ending,
}

/// The user and the process at the other end.
#[derive(Clone, Copy, Debug)]
struct Peer {
    uid: ShownId,
    gid: ShownId,
    pid: u32,
}

impl Peer {
    fn calls(self, server: &Server) -> Caller<'_> {
        let Self { uid, gid, pid } = self;
        Caller { uid, gid, pid, is_privileged: uid == ShownId::ROOT, owners: &server.owners }
    }
}

/// Shuts everything down when dropped, also while a panic unwinds.
struct Ending<'c> {
    channel: &'c Channel,
    listener: &'c UnixListener,
}

/// Serves the control channel while `serve` runs.
pub(in crate::server) fn during(
    exchange: &Exchange,
    kernel: &dyn Notify,
    serve: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let unique = || Uuid::new_v4().as_u64_pair().0;
    let name = exchange.channel.name.get_or_init(|| name_for(process::id(), unique()));
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    thread::scope(|scope| {
        let _ending = Ending { channel: &exchange.channel, listener: &listener };
        let accept = || accept(exchange, &listener, kernel, scope);
        thread::Builder::new().name("larder-channel".into()).spawn_scoped(scope, accept)?;
        serve()
    })
}

fn accept<'s>(
    exchange: &'s Exchange,
    listener: &UnixListener,
    kernel: &'s dyn Notify,
    scope: &'s Scope<'s, '_>,
) {
    for number in 0_u64.. {
        // It fails once the listener is shut down.
        let Ok((socket, _)) = listener.accept() else { return };
        let Ok(UCred { pid, uid, gid }) = socket_peercred(&socket) else { continue };
        let (uid, gid) = (ShownId::new(uid.as_raw()), ShownId::new(gid.as_raw()));
        let peer = Peer { uid, gid, pid: pid.as_raw_nonzero().get() as u32 };
        let is_allowed = is_privileged(uid, exchange.owner);
        if is_allowed && exchange.channel.enter(number, &socket) {
            let serve = move || {
                // An error ends the connection, and so does a panic, which was reported.
                let serve = || serve_connection(exchange, peer, &socket, kernel);
                let served = catch_unwind(AssertUnwindSafe(serve));
                exchange.channel.leave(number);
                if let Ok(Ok(Next::Ending)) = served {
                    exchange.channel.watch(socket);
                }
            };
            // Without a thread the connection is closed at once.
            if thread::Builder::new().spawn_scoped(scope, serve).is_err() {
                exchange.channel.leave(number);
            }
        }
    }
}

fn serve_connection(
    exchange: &Exchange,
    peer: Peer,
    socket: &UnixStream,
    kernel: &dyn Notify,
) -> io::Result<Next> {
    let mut body = Vec::new();
    while let Some(kind) = frame::read(socket, &mut body)? {
        let served = match Request::parse(kind, &body)? {
            Request::Send(request) => {
                exchange.with_server(|server| send::send(server, &request, socket))
            }
            Request::Receive(request) => {
                exchange.with_server(|server| receive::receive(server, &request, socket, kernel))
            }
            Request::Change(directory) => exchange.with_server(|server| {
                changes::change(server, directory, peer.calls(server), socket, kernel)
            }),
            Request::Walk(request) => exchange.with_server(|server| {
                walk::walk(server, &request, peer.calls(server), socket, kernel)
            }),
            Request::State => exchange.with_server(|server| state::keep(server, socket, kernel)),
            Request::Remount(words) => exchange.remount(&words, kernel).map(|()| Vec::new()),
            Request::Mount(words) => {
                mount_for(exchange, &words, socket)?;
                continue;
            }
            Request::Ending => return Ok(Next::Ending),
        };
        answer(socket, served)?;
    }
    Ok(Next::Nothing)
}

/// Hands out a mount with the options `words`.
fn mount_for(exchange: &Exchange, words: &str, socket: &UnixStream) -> io::Result<()> {
    match further::mount(exchange, words) {
        Ok((reply, tree)) => {
            answer(socket, Ok(reply.body()))?;
            descriptor::send(socket, tree)
        }
        Err(refusal) => answer(socket, Err(refusal)),
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

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // It fails if the other end has gone already.
        let _ = shutdown(self.listener, Shutdown::Both);
        self.channel.end();
    }
}
