//! The control channel of a Larder mount: a way to send its server requests that need more than one
//! message and one answer (for others see [`Envelope`](crate::abi::Envelope)).
//!
//! [`CHANNEL`], an ioctl that FUSE does pass on, returns the abstract name of the socket on which
//! the server of a mount listens, and the inode that it was called on. Over the socket go
//! [frames](frame): first the client's [`Authority`], then a [`Request`], any number of frames that
//! belong to it, and last a reply; then the next request. The server talks to root and to the user
//! who runs it, and closes all other connections. The name begins with the id of the server's
//! process, so that a server is also found if its mounts cannot be reached.
//!
//! # Invariants
//! - A frame is at most [`MOST_FRAME_BYTES`](frame::MOST_BYTES) long, whatever its header says.
//! - Any process in the network namespace can connect to the socket. So a connection has no
//!   authority of its own. It has that of a [`Token`], which the server gives to a caller of an ioctl
//!   on an open inode, or that of an open image.
//! - A request names no inode: it is about the inode of the token, and about what its caller can
//!   reach below it.
//! - No descriptor of the mount goes to the server, which would wait for itself if it used one. For
//!   the same reason a client looks a path up itself in a mount that the server returns.

mod authority;
pub mod descriptor;
mod ending;
pub mod frame;
mod mount;
mod receive;
mod request;
mod servers;
mod state;
mod walk;

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use authority::{Authority, Token, token};
pub use ending::Ending;
pub use frame::Kind;
pub use mount::MountReply;
pub use receive::{CheckpointRequest, ReceiveNews, ReceiveReply, ReceiveRequest};
pub use request::{Request, SendRequest};
pub use servers::name_for;
pub use state::{DeviceRange, StateCall, StateDevice};
pub use walk::{Attributes, Record, WalkRequest, Wants};

use crate::abi::CHANNEL;
use crate::call;
use crate::invalid::invalid;

/// Version of all messages of a channel.
const VERSION: u32 = 3;
/// Bytes of a channel's name.
const NAME_BYTES: usize = 48;

/// The result of [`CHANNEL`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct ChannelInfo {
    /// Version of the server.
    pub version: u32,
    /// Bytes of `name` in use; none if the server does not serve the caller.
    pub name_len: u32,
    /// Abstract name of the socket on which the server listens.
    pub name: [u8; NAME_BYTES],
    /// The inode that the ioctl was called on.
    pub node: NodeId,
}

impl ChannelInfo {
    /// The answer of a server that listens under `name`; `None` if that is too long.
    pub fn new(name: &str, node: NodeId) -> Option<Self> {
        let mut info =
            Self { version: VERSION, name_len: name.len() as u32, name: [0; NAME_BYTES], node };
        info.name.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(info)
    }
}

/// An inode of a Larder mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct NodeId {
    /// Id of its subvolume.
    pub subvolume: u64,
    /// Its number there.
    pub inode: u64,
}

/// The error for a user other than root and the user who runs the server. Root of a user namespace
/// is any user.
const NOT_SERVED: &str = "the server of this mount takes larder's requests only from root and from \
                          the user who runs it, also in a user namespace; the system's own \
                          commands work here";

/// The error if nothing listens under the name that the server gave.
const NOT_HEARD: &str = "the server of this mount listens in another network namespace; the \
                         system's own commands work here";

/// A connection to the server of a mount.
#[derive(Debug)]
pub struct Channel {
    socket: UnixStream,
    name: Vec<u8>,
}

impl Channel {
    /// Connects to the server of the Larder mount that `inode` lies in, with the authority of that
    /// inode; `None` if it is another file system. Also returns the id of `inode`.
    ///
    /// # Errors
    /// `PermissionDenied` if the server does not serve this user.
    pub fn of(inode: impl AsFd) -> io::Result<Option<(Self, NodeId)>> {
        let Some((name, node)) = find(&inode)? else { return Ok(None) };
        if name.is_empty() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, NOT_SERVED));
        }
        let token = token(inode)?;
        let socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name)?);
        let socket = socket.map_err(|error| match error.kind() {
            kind @ io::ErrorKind::ConnectionRefused => io::Error::new(kind, NOT_HEARD),
            _ => error,
        })?;
        Authority::Token(token).show(&socket).map_err(frame::of_socket)?;
        Ok(Some((Self { socket, name }, node)))
    }

    /// The id of this inode in the channel's mount; `None` if it is in another.
    pub fn node(&self, inode: impl AsFd) -> io::Result<Option<NodeId>> {
        let found = find(inode)?;
        Ok(found.filter(|(name, _)| *name == self.name).map(|(_, node)| node))
    }

    /// The socket, for a client that sends and receives at the same time.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Sends a request, and passes the [`Data`](Kind::Data) and [`Event`](Kind::Event) frames of
    /// the answer to `take`. Returns the body of the reply.
    ///
    /// # Errors
    /// The server's error, with its message; `UnexpectedEof` if it ended.
    pub fn call(
        &mut self,
        request: &Request,
        take: &mut dyn FnMut(Kind, &[u8]) -> io::Result<()>,
    ) -> io::Result<Vec<u8>> {
        let written = frame::write(&mut self.socket, request.kind(), &request.body());
        written.map_err(frame::of_socket)?;
        let mut body = Vec::new();
        loop {
            match frame::read(&mut self.socket, &mut body).map_err(frame::of_socket)? {
                Some(kind @ (Kind::Data | Kind::Event)) => take(kind, &body)?,
                Some(Kind::Done) => return Ok(body),
                Some(Kind::Failed) => return Err(frame::failure(&body)),
                Some(_) => return Err(invalid("a reply of another kind")),
                None => return Err(frame::gone()),
            }
        }
    }
}

/// The id of this inode in a Larder mount; `None` if it is in another file system.
pub fn node_of(inode: impl AsFd) -> io::Result<Option<NodeId>> {
    Ok(find(inode)?.map(|(_, node)| node))
}

/// The address of the mount's server, and the id of this inode.
fn find(inode: impl AsFd) -> io::Result<Option<(Vec<u8>, NodeId)>> {
    let info: ChannelInfo = match call::read::<CHANNEL, _>(inode) {
        Ok(info) => info,
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
                _ => Err(error),
            };
        }
    };
    if info.version != VERSION {
        return Err(invalid("the server of the mount is of another version of larder"));
    }
    let name = info.name.get(..info.name_len as usize).ok_or(invalid("the name of a channel"))?;
    Ok(Some((name.to_vec(), info.node)))
}
