//! Linux: a name of a socket, which the kernel forgets when the process ends.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Excludes other writers of the same device on this machine, as long as it lives. On other
/// machines the manifest's epoch does that.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixListener,
}

impl Claim {
    /// Returns `None` if another writer has the claim.
    pub(crate) fn take(uuid: &[u8; 16]) -> io::Result<Option<Self>> {
        let name = format!("larder-objects-{}", uuid::Uuid::from_bytes(*uuid));
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Ok(socket) => Ok(Some(Self { _socket: socket })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }
}
