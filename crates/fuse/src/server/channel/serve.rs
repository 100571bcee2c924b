//! Taking connections and answering their requests.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, Scope};
use std::time::Duration;

use larder::Uuid;
use larder::objects::collect_garbage;
use larder_ioctl::channel::{Authority, Kind, Request, descriptor, frame, name_for};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, shutdown};

use super::{Channel, Grant, changes, receive, send, state, walk};
use crate::protocol::abi::ShownId;
use crate::server::access::is_served;
use crate::server::exchange::Exchange;
use crate::server::further;
use crate::server::refusal::{Refusal, refuse};
use crate::transport::Notify;

/// What happens to a connection that is not served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// The client is told how the server ends.
    Ending,
}

/// Why a connection is served.
enum Authorized {
    By(Grant),
    /// By the open image, and whether it is open for writing.
    ByImage {
        is_writable: bool,
    },
}

/// How often clients that wait for the end hear why it does not come.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a client may take to show its authority.
const PATIENCE: Duration = Duration::from_secs(10);

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
    let (served, is_served) = mpsc::channel::<()>();
    thread::scope(|outer| {
        // A connection may still wait for a device when the mount has ended: it commits.
        let tell = move || {
            if is_served.recv().is_ok() {
                while is_served.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    exchange.say_why_it_waits();
                }
            }
        };
        thread::Builder::new().name("larder-ending".into()).spawn_scoped(outer, tell)?;
        let result = thread::scope(|scope| {
            let _ending = Ending { channel: &exchange.channel, listener: &listener };
            let accept = || accept(exchange, &listener, kernel, scope);
            thread::Builder::new().name("larder-channel".into()).spawn_scoped(scope, accept)?;
            let result = serve();
            let _ = served.send(());
            result
        });
        drop(served);
        result
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
        let Ok(peer) = socket_peercred(&socket) else { continue };
        let is_known = is_served(ShownId::new(peer.uid.as_raw()), exchange.owner);
        if is_known && exchange.channel.meet(number, &socket) {
            let serve = move || {
                // An error ends the connection, and so does a panic, which was reported.
                let serve = || serve_connection(exchange, number, &socket, kernel);
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
    number: u64,
    socket: &UnixStream,
    kernel: &dyn Notify,
) -> io::Result<Next> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let Some(shown) = Authority::shown(socket)? else { return Ok(Next::Nothing) };
    socket.set_read_timeout(None)?;
    let authorized = match authorized(exchange, shown) {
        Ok(authorized) => authorized,
        Err(refusal) => {
            answer(socket, Err(refusal))?;
            return Ok(Next::Nothing);
        }
    };
    let administers = match &authorized {
        Authorized::By(grant) => grant.administers(),
        Authorized::ByImage { is_writable } => *is_writable,
    };
    if !exchange.channel.enter(number, administers) {
        answer(socket, Err(refuse(Errno::BUSY, "its server serves too many clients already")))?;
        return Ok(Next::Nothing);
    }
    let mut body = Vec::new();
    while let Some(kind) = frame::read(socket, &mut body)? {
        let request = Request::parse(kind, &body)?;
        let served = match (request, &authorized) {
            (Request::Mount(words), _) => {
                mount_for(exchange, &words, &authorized, socket)?;
                continue;
            }
            (Request::Ending, _) => return Ok(Next::Ending),
            // Every user may ask for a sync.
            (Request::Commit, _) => Ok(exchange.commit(kernel).map(|()| Vec::new())?),
            // A mount does it by itself, later.
            (Request::Collect, _) => collect(exchange),
            (_, Authorized::ByImage { .. }) => {
                Err(refuse(Errno::PERM, "this needs an open file of the mount, not the image"))
            }
            (request, Authorized::By(grant)) => {
                serve_request(exchange, request, grant, socket, kernel)
            }
        };
        answer(socket, served)?;
    }
    Ok(Next::Nothing)
}

/// Serves a request about an inode of the mount, or about all of it.
fn serve_request(
    exchange: &Exchange,
    request: Request,
    grant: &Grant,
    socket: &UnixStream,
    kernel: &dyn Notify,
) -> Result<Vec<u8>, Refusal> {
    match request {
        Request::Change => {
            exchange.with_server(|server| changes::change(server, grant, socket, kernel))
        }
        Request::Walk(request) => {
            exchange.with_server(|server| walk::walk(server, &request, grant, socket, kernel))
        }
        Request::Send(request) => {
            grant.check_administers()?;
            exchange.with_server(|server| send::send(server, &request, grant, socket))
        }
        Request::Receive(request) => {
            grant.check_may_everything()?;
            exchange.with_server(|server| receive::receive(server, &request, grant, socket, kernel))
        }
        Request::State => {
            grant.check_administers()?;
            exchange.with_server(|server| state::keep(server, socket, kernel))
        }
        Request::Remount(words) => {
            grant.check_administers()?;
            exchange.remount(&words, kernel).map(|()| Vec::new())
        }
        Request::Mount(_) | Request::Commit | Request::Collect | Request::Ending => {
            unreachable!("these are served apart")
        }
    }
}

/// Deletes what nothing needs any more on object storage.
fn collect(exchange: &Exchange) -> Result<Vec<u8>, Refusal> {
    exchange.with_server(|server| {
        let collected = collect_garbage(&server.filesystem);
        let collected = collected.map_err(|error| refuse(Errno::IO, &error.to_string()))?;
        let collected = collected.ok_or_else(|| {
            refuse(Errno::ROFS, "it is mounted read-only, or does not lie on object storage")
        })?;
        let numbers = [collected.rewritten, collected.deleted, collected.waiting];
        Ok(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    })
}

/// What a client may do that has shown this.
fn authorized(exchange: &Exchange, shown: Authority) -> Result<Authorized, Refusal> {
    match shown {
        Authority::Token(token) => {
            let grant = exchange.channel.grants.redeem(token);
            let grant = grant.filter(|grant| grant.is_of(exchange.owner));
            let grant =
                grant.ok_or_else(|| refuse(Errno::PERM, "the token is not valid (any more)"))?;
            Ok(Authorized::By(grant))
        }
        Authority::Image(image) => {
            let is_writable = exchange.is_writable_image(&image)?;
            Ok(Authorized::ByImage { is_writable })
        }
    }
}

/// Hands out a mount with the options `words`.
fn mount_for(
    exchange: &Exchange,
    words: &str,
    authorized: &Authorized,
    socket: &UnixStream,
) -> io::Result<()> {
    let is_writable = match authorized {
        Authorized::By(grant) => grant.check_administers().map(|()| true),
        Authorized::ByImage { is_writable } => Ok(*is_writable),
    };
    match is_writable.and_then(|is_writable| further::mount(exchange, words, is_writable)) {
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
