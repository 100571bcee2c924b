//! How far the kernel reads ahead of a program that reads a file in order.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

/// `MINORBITS` of linux/kdev_t.h.
const MINOR_BITS: u32 = 20;

/// Makes the kernel read as far ahead as the largest request goes, instead of its 128 KiB for FUSE:
/// then one request is on its way while the one before is read. Called before INIT is answered,
/// when the kernel reads the setting.
///
/// # Errors
/// Only root may. A kernel that does not tell the connection of a `/dev/fuse` keeps its setting.
pub(super) fn read_ahead(device: &impl AsRawFd, io_bytes: usize) -> io::Result<()> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", device.as_raw_fd()))?;
    let name = name(&about).ok_or(io::ErrorKind::Unsupported)?;
    let setting = format!("/sys/class/bdi/{name}/read_ahead_kb");
    fs::write(setting, (io_bytes >> 10).to_string())
}

/// The kernel's name for the readahead setting of a connection, which `about` describes.
fn name(about: &str) -> Option<String> {
    let connection = about.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    // The connection has the device number of the mount, in the kernel's form.
    let connection: u32 = connection.trim().parse().ok()?;
    let (major, minor) = (connection >> MINOR_BITS, connection & ((1 << MINOR_BITS) - 1));
    // The major number is 0 without a block device.
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
