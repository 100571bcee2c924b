//! Finding the channel of a process by the names of all visible sockets.
//!
//! # Invariants
//! - An image is shown only to a process that could open it so itself: to root, to the user of this
//!   process, or to one that has it open already. Any process can bind a socket with
//!   the name of a server.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat, stat};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

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
                let is_trusted = peer.uid.is_root() || peer.uid == geteuid();
                if !is_trusted && !has_open(pid, image)? {
                    let user = peer.uid.as_raw();
                    let message = format!("process {pid} of user {user} is no server of it");
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
                }
                socket.set_read_timeout(Some(patience))?;
                Authority::Image(image).show(&socket).map_err(frame::of_socket)?;
                return Ok(Some(Self { socket, name: name.to_vec() }));
            }
        }
        Ok(None)
    }
}

/// Whether the process `pid` has the file or device `image` open, for all that `image` is open for.
fn has_open(pid: u32, image: BorrowedFd<'_>) -> io::Result<bool> {
    let wanted = identity(fstat(image)?);
    let needed = fcntl_getfl(image)? & OFlags::RWMODE;
    let open = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(open.into_iter().any(|entry| {
        let found = stat(entry.path()).is_ok_and(|found| identity(found) == wanted);
        found
            && flags(pid, &entry.file_name()).is_some_and(|flags| {
                let is_path = flags.contains(OFlags::PATH);
                !is_path && [needed, OFlags::RDWR].contains(&(flags & OFlags::RWMODE))
            })
    }))
}

/// What identifies a file, or a block device.
fn identity(found: Stat) -> (u64, u64) {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::BlockDevice => (found.st_rdev, 0),
        _ => (found.st_dev, found.st_ino),
    }
}

/// The flags with which the process `pid` has opened a descriptor.
fn flags(pid: u32, descriptor: &OsStr) -> Option<OFlags> {
    let path = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(descriptor);
    let info = fs::read_to_string(path).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u32::from_str_radix(flags.trim(), 8).ok().map(OFlags::from_bits_retain)
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
