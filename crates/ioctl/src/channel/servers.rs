//! Finding the channel of a process by the names of all visible sockets.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;

use super::{Authority, Channel, frame};

/// An abstract name for a server in the process `pid`; `unique` makes it differ from others.
pub fn name_for(pid: u32, unique: u64) -> String {
    format!("{}{unique:016x}", prefix(pid))
}

fn prefix(pid: u32) -> String {
    format!("larder-{pid}-")
}

impl Channel {
    /// Connects to a server in the process `pid` with the authority of `image`, which that server
    /// has mounted; `None` if none listens there, or not visibly to this process. Fails if the
    /// server takes longer than `patience`.
    pub fn of_process(
        pid: u32,
        image: BorrowedFd<'_>,
        patience: Duration,
    ) -> io::Result<Option<Self>> {
        // A row for each socket; the name comes last, and begins with an @ if it is abstract.
        let table = fs::read("/proc/net/unix")?;
        let rows = table.split(|byte| *byte == b'\n');
        let names =
            rows.filter_map(|row| row.rsplit(|byte| *byte == b' ').next()?.strip_prefix(b"@"));
        let prefix = prefix(pid);
        for name in names.filter(|name| name.starts_with(prefix.as_bytes())) {
            // A server that ended meanwhile does not listen.
            let Ok(socket) = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
            else {
                continue;
            };
            // Any process can use the name.
            let peer = socket_peercred(&socket)?;
            if peer.pid.as_raw_pid().unsigned_abs() == pid {
                socket.set_read_timeout(Some(patience))?;
                Authority::Image(image).show(&socket).map_err(frame::of_socket)?;
                return Ok(Some(Self { socket, name: name.to_vec() }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;
    use std::process;

    use super::*;

    #[test]
    fn a_channel_is_found_by_its_process_and_no_other() {
        let (this, other) = (process::id(), process::id() + 1);
        let listen = |pid| {
            let name = name_for(pid, u64::from(this));
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
        };
        let listener = listen(this);
        let false_one = listen(other);
        let image = File::open("/dev/null").unwrap();
        let connect = |pid| Channel::of_process(pid, image.as_fd(), Duration::from_secs(60));
        let found = connect(this).unwrap().expect("it listens");
        assert_eq!(found.name, name_for(this, u64::from(this)).into_bytes());
        assert!(connect(other).unwrap().is_none(), "it listens under another's name");
        drop((listener, false_one));
        drop(found);
    }
}
