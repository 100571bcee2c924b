//! One writer on a machine.

/// Excludes other writers of the same device on this machine, as long as it lives. On other
/// machines the manifest's epoch does that.
#[derive(Debug)]
pub(crate) struct Claim {
    #[cfg(target_os = "linux")]
    _socket: std::os::unix::net::UnixListener,
}

impl Claim {
    /// Returns `None` if another writer has the claim.
    #[cfg(target_os = "linux")]
    pub(crate) fn take(uuid: &[u8; 16]) -> std::io::Result<Option<Self>> {
        use std::io::ErrorKind;
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};

        // The kernel forgets such a name when the process ends.
        let name = format!("larder-objects-{}", uuid::Uuid::from_bytes(*uuid));
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Ok(socket) => Ok(Some(Self { _socket: socket })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn take(_uuid: &[u8; 16]) -> std::io::Result<Option<Self>> {
        Ok(Some(Self {}))
    }
}
