//! Streams of snapshots.

use std::ops::ControlFlow;

use jiff::tz::TimeZone;
use larder::{OpenOptions, ReceiveOptions, ReceiveSnapshots};
use larder_format::crc32c;

use crate::Image;

/// The cache that the file system is opened with.
const CACHE_BYTES: usize = 1 << 20;
/// Lengths of a stream's header and of a command's, and the places of length and checksum in the
/// latter.
const STREAM_HEADER_BYTES: usize = 17;
const COMMAND_HEADER_BYTES: usize = 10;
const LEN: std::ops::Range<usize> = 0..4;
const CHECKSUM: std::ops::Range<usize> = 6..10;

/// Prints a stream, as it is and with valid checksums: no fuzzer finds one.
pub fn stream_dump(bytes: &[u8]) {
    for stream in [bytes, &mended(bytes)] {
        let _ = larder_stream::dump(stream, std::io::sink(), &TimeZone::UTC);
    }
}

/// Receives a stream, with valid checksums, into a copy of `image` in memory.
pub fn stream_receive(image: &Image, bytes: &[u8]) {
    let options = OpenOptions::new().write(true).commit_interval(None).cache_bytes(CACHE_BYTES);
    let fs = options.open_devices(vec![image.sound()]).expect("the image is sound");
    let target = fs.subvolume("/").and_then(|top| top.root()).expect("the image is sound");
    let options = ReceiveOptions { max_errors: 0, ..ReceiveOptions::default() };
    let _ = target.receive(&*mended(bytes), &options, &mut |_| ControlFlow::Continue(()));
    fs.sync().expect("no stream breaks the file system");
}

/// The stream with valid checksums in all whole commands.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut stream = bytes.to_vec();
    let mut at = STREAM_HEADER_BYTES;
    while let Some(header) = stream.get(at..at + COMMAND_HEADER_BYTES) {
        let len = header[LEN].try_into().map_or(0, u32::from_le_bytes);
        let end = at + COMMAND_HEADER_BYTES + len as usize;
        let Some(command) = stream.get_mut(at..end) else { break };
        command[CHECKSUM].fill(0);
        let checksum = crc32c::raw(0, command);
        command[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        at = end;
    }
    stream
}

#[cfg(test)]
mod tests {
    use super::mended;
    use crate::seeds;

    #[test]
    fn a_valid_stream_needs_no_mending() {
        for stream in seeds::snapshots() {
            assert!(mended(&stream) == stream);
        }
    }
}
