//! How far the kernel reads ahead of who reads a file in order.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use super::MAX_IO_BYTES;

/// Has the kernel read as far ahead as the largest request goes, instead of the 128 KiB that it gives every FUSE
/// file system: then a request is on its way while the one before is read. Called before INIT is answered, with
/// which the kernel takes what is set.
///
/// # Errors
/// Only root may. Kernels that do not say which connection a `/dev/fuse` has are left as they are.
pub(super) fn read_ahead(device: &impl AsRawFd) -> io::Result<()> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", device.as_raw_fd()))?;
    let connection = connection(&about).ok_or(io::ErrorKind::Unsupported)?;
    // The connection has the minor number of the mount; the major number of what has no device is 0.
    let setting = format!("/sys/class/bdi/0:{connection}/read_ahead_kb");
    fs::write(setting, (MAX_IO_BYTES >> 10).to_string())
}

fn connection(about: &str) -> Option<u32> {
    about.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::connection;

    #[test]
    fn a_connection_is_a_number() {
        assert_eq!(connection("pos:\t0\nfuse_connection:\t39\n"), Some(39));
        assert_eq!(connection("pos:\t0\nfuse_connection:\t../1\n"), None);
        assert_eq!(connection("pos:\t0\nino:\t90\n"), None);
    }
}
