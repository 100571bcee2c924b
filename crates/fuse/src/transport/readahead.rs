//! How far the kernel reads ahead of who reads a file in order.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

/// `MINORBITS` of linux/kdev_t.h.
const MINOR_BITS: u32 = 20;

/// Has the kernel read as far ahead as the largest request goes, instead of the 128 KiB that it gives every FUSE
/// file system: then a request is on its way while the one before is read. Called before INIT is answered, with
/// which the kernel takes what is set.
///
/// # Errors
/// Only root may. Kernels that do not say which connection a `/dev/fuse` has are left as they are.
pub(super) fn read_ahead(device: &impl AsRawFd, io_bytes: usize) -> io::Result<()> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", device.as_raw_fd()))?;
    let name = name(&about).ok_or(io::ErrorKind::Unsupported)?;
    let setting = format!("/sys/class/bdi/{name}/read_ahead_kb");
    fs::write(setting, (io_bytes >> 10).to_string())
}

/// The name under which the kernel shows how it reads ahead of the mount whose connection `about` tells.
fn name(about: &str) -> Option<String> {
    let connection = about.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    // The connection has the number of the mount's device, as the kernel has it.
    let connection: u32 = connection.trim().parse().ok()?;
    let (major, minor) = (connection >> MINOR_BITS, connection & ((1 << MINOR_BITS) - 1));
    // The major number of what has no device is 0.
    let suffix = if major == 0 { "" } else { "-fuseblk" };
    Some(format!("{major}:{minor}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_connection_is_a_number() {
        let name = |about| name(about).unwrap_or_default();
        assert_eq!(name("pos:\t0\nfuse_connection:\t39\n"), "0:39");
        assert_eq!(name("pos:\t0\nfuse_connection:\t7340035\n"), "7:3-fuseblk");
        assert_eq!(name("pos:\t0\nfuse_connection:\t../1\n"), "");
        assert_eq!(name("pos:\t0\nino:\t90\n"), "");
    }
}
