//! The existing content of a device: signatures of common file systems and partition tables.
//!
//! libblkid knows many more, but not every system has it, and it cannot read every image.

use larder_device::{Device, DeviceError, Purpose, Signature as SystemSignature};

/// The unit of the places of signatures at the end.
const SECTOR_BYTES: u64 = 512;

struct Signature {
    content: &'static str,
    place: Place,
    magic: &'static [u8],
}

/// Where the magic is.
#[derive(Clone, Copy)]
enum Place {
    /// So many bytes from the start of the device.
    Start(u64),
    /// So many bytes before its end.
    End(u64),
    /// In the last whole 64 KiB that have as many behind them at most (metadata 0.90 of MD).
    LastBlock,
    /// At least 8 KiB before its end, at a multiple of 4 KiB (metadata 1.0 of MD).
    LastPages,
}

impl Place {
    /// The offset from the start of a device of this length, in bytes.
    fn offset(self, len_bytes: u64) -> Option<u64> {
        match self {
            Self::Start(offset) => Some(offset),
            Self::End(distance) => len_bytes.checked_sub(distance),
            Self::LastBlock => (len_bytes & !0xffff).checked_sub(0x1_0000),
            Self::LastPages => {
                let sectors = (len_bytes / SECTOR_BYTES).checked_sub(16)?;
                Some((sectors & !7) * SECTOR_BYTES)
            }
        }
    }
}

const fn at(offset: u64, magic: &'static [u8], content: &'static str) -> Signature {
    placed(Place::Start(offset), magic, content)
}

const fn placed(place: Place, magic: &'static [u8], content: &'static str) -> Signature {
    Signature { content, place, magic }
}

const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
const MD_MEMBER: &str = "a member of an MD array";
const LVM: &str = "an LVM physical volume";
const SWAP: &str = "swap space";
const RAID_MEMBER: &str = "a member of a RAID set of firmware";

/// The most certain ones first.
const SIGNATURES: [Signature; 46] = [
    placed(Place::LastBlock, MD, MD_MEMBER),
    placed(Place::LastPages, MD, MD_MEMBER),
    at(0, MD, MD_MEMBER),
    at(0x1000, MD, MD_MEMBER),
    placed(Place::End(1024), b"Intel Raid ISM Cfg Sig. ", RAID_MEMBER),
    placed(Place::End(512), b"\xde\x11\xde\x11", RAID_MEMBER),
    at(0x18, b"LVM2 001", LVM),
    at(0x218, b"LVM2 001", LVM),
    at(0x418, b"LVM2 001", LVM),
    at(0x618, b"LVM2 001", LVM),
    at(0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    at(3, b"-FVE-FS-", "an encrypted volume (BitLocker)"),
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
    at(0x1_0034, b"ReIsEr3Fs", "a ReiserFS file system"),
    at(0x400, b"H+\0\x04", "an HFS Plus file system"),
    at(0x400, b"HX\0\x05", "an HFS Plus file system"),
    at(0x406, b"\x34\x34", "a NILFS2 file system"),
    at(0x1_0000, b"\x01\x16\x19\x70", "a GFS2 file system"),
    at(0x20, b"NXSB", "an APFS container"),
    at(0xff6, b"SWAPSPACE2", SWAP),
    at(0x1ff6, b"SWAPSPACE2", SWAP),
    at(0x3ff6, b"SWAPSPACE2", SWAP),
    at(0xfff6, b"SWAPSPACE2", SWAP),
    at(0xff6, b"SWAP-SPACE", SWAP),
    at(0xff6, b"S1SUSPEND\0", "a suspended system in swap space"),
    at(0x200, b"EFI PART", "a GUID partition table"),
    at(0x1000, b"EFI PART", "a GUID partition table"),
    placed(Place::End(512), b"EFI PART", "a GUID partition table"),
    at(0x1_0040, b"!BHRfS_M", "an unfinished btrfs file system"),
    at(0x1fe, b"\x55\xaa", "a partition table or boot sector"),
];

/// Where the uberblocks of the first label of ZFS are, and how far they are apart at least.
const ZFS_UBERBLOCKS: std::ops::Range<u64> = 0x2_0000..0x4_0000;
const ZFS_STEP_BYTES: usize = 1024;
const ZFS_MAGIC: u64 = 0x00ba_b10c;
const ZFS: &str = "a member of a ZFS pool";

/// The content of the device, if it is known.
pub(crate) fn content(device: &dyn Device) -> Result<Option<&'static str>, DeviceError> {
    for signature in &SIGNATURES {
        let len_bytes = signature.magic.len() as u64;
        let Some(offset) = signature.place.offset(device.len_bytes()) else { continue };
        if offset + len_bytes > device.len_bytes() {
            continue;
        }
        let mut found = vec![0; signature.magic.len()];
        device.read_at(&mut found, offset)?;
        if found == signature.magic {
            return Ok(Some(signature.content));
        }
    }
    Ok(is_of_zfs(device)?.then_some(ZFS))
}

fn is_of_zfs(device: &dyn Device) -> Result<bool, DeviceError> {
    if device.len_bytes() < ZFS_UBERBLOCKS.end {
        return Ok(false);
    }
    let mut found = vec![0; (ZFS_UBERBLOCKS.end - ZFS_UBERBLOCKS.start) as usize];
    device.read_at(&mut found, ZFS_UBERBLOCKS.start)?;
    let is_one = |block: &[u8]| {
        let number = block.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        number.is_some_and(|number| number == ZFS_MAGIC || number.swap_bytes() == ZFS_MAGIC)
    };
    Ok(found.chunks(ZFS_STEP_BYTES).any(is_one))
}

/// The content of the device in words, after libblkid has found something.
pub(crate) fn described(
    device: &dyn Device,
    signature: &SystemSignature,
) -> Result<String, DeviceError> {
    let name = &signature.name;
    if let Some(content) = content(device)?
        && matches!(signature.purpose, Purpose::Filesystem | Purpose::Other)
    {
        return Ok(content.to_owned());
    }
    Ok(match signature.purpose {
        Purpose::Filesystem => format!("a file system of the type {name}"),
        Purpose::Member => format!("a member of an array or a group of volumes ({name})"),
        Purpose::Encrypted => format!("an encrypted volume ({name})"),
        Purpose::PartitionTable => format!("a partition table ({name})"),
        Purpose::Other => format!("content of the type {name}"),
    })
}

#[cfg(test)]
mod tests {
    use larder_device::MemoryDevice;

    use super::*;

    #[test]
    fn signatures_are_found_and_zeros_have_none() {
        let device = MemoryDevice::new("m", 1 << 20);
        assert_eq!(content(&device).unwrap(), None);
        for len_bytes in [1 << 20, (1 << 20) + 512, (1 << 20) + 70_000] {
            for signature in SIGNATURES {
                let device = MemoryDevice::new("m", len_bytes);
                let offset = signature.place.offset(len_bytes).unwrap();
                device.write_at(signature.magic, offset).unwrap();
                assert_eq!(content(&device).unwrap(), Some(signature.content));
            }
        }
        for magic in [ZFS_MAGIC.to_le_bytes(), ZFS_MAGIC.to_be_bytes()] {
            let device = MemoryDevice::new("m", 1 << 20);
            device.write_at(&magic, ZFS_UBERBLOCKS.start + 7 * 1024).unwrap();
            assert_eq!(content(&device).unwrap(), Some(ZFS));
        }
        assert_eq!(content(&MemoryDevice::new("tiny", 100)).unwrap(), None);
    }
}
