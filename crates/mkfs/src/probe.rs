//! The existing content of a device: signatures of common file systems and partition tables.

use larder_device::{Device, DeviceError};

struct Signature {
    content: &'static str,
    /// Offset of the magic from the start of the device, in bytes.
    offset: u64,
    magic: &'static [u8],
}

const fn at(offset: u64, magic: &'static [u8], content: &'static str) -> Signature {
    Signature { content, offset, magic }
}

/// The most certain ones first.
const SIGNATURES: [Signature; 26] = [
    at(0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    at(0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    at(0, b"XFSB", "an XFS file system"),
    at(0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    at(
        0x1018,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a bcache device",
    ),
    at(
        0x1018,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        "a bcachefs file system",
    ),
    at(0, b"hsqs", "a squashfs image"),
    at(0x400, b"\xe2\xe1\xf5\xe0", "an EROFS image"),
    at(0x1_0034, b"ReIsErFs", "a ReiserFS file system"),
    at(0x1_0034, b"ReIsEr2Fs", "a ReiserFS file system"),
    at(0x8000, b"JFS1", "a JFS file system"),
    at(3, b"NTFS    ", "an NTFS file system"),
    at(3, b"EXFAT   ", "an exFAT file system"),
    at(0x36, b"FAT", "a FAT file system"),
    at(0x52, b"FAT32   ", "a FAT file system"),
    at(0x8001, b"CD001", "an ISO 9660 image"),
    at(0x8001, b"BEA01", "a UDF file system"),
    at(0xff6, b"SWAPSPACE2", "swap space"),
    at(0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    at(0x218, b"LVM2 001", "an LVM physical volume"),
    at(0, b"\xfc\x4e\x2b\xa9", "a member of an MD array"),
    at(0x1000, b"\xfc\x4e\x2b\xa9", "a member of an MD array"),
    at(0x200, b"EFI PART", "a GUID partition table"),
    at(0x1000, b"EFI PART", "a GUID partition table"),
    at(0x1_0040, b"!BHRfS_M", "an unfinished btrfs file system"),
    at(0x1fe, b"\x55\xaa", "a partition table or boot sector"),
];

/// The content of the device, if it is known.
pub(crate) fn content(device: &dyn Device) -> Result<Option<&'static str>, DeviceError> {
    for signature in &SIGNATURES {
        let len_bytes = signature.magic.len() as u64;
        if signature.offset + len_bytes > device.len_bytes() {
            continue;
        }
        let mut found = vec![0; signature.magic.len()];
        device.read_at(&mut found, signature.offset)?;
        if found == signature.magic {
            return Ok(Some(signature.content));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use larder_device::MemoryDevice;

    use super::*;

    #[test]
    fn signatures_are_found_and_zeros_have_none() {
        let device = MemoryDevice::new("m", 1 << 20);
        assert_eq!(content(&device).unwrap(), None);
        for signature in SIGNATURES {
            let device = MemoryDevice::new("m", 1 << 20);
            device.write_at(signature.magic, signature.offset).unwrap();
            assert_eq!(content(&device).unwrap(), Some(signature.content));
        }
        assert_eq!(content(&MemoryDevice::new("tiny", 100)).unwrap(), None);
    }
}
