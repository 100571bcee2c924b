//! libblkid, if the system has it: the library that knows the content of devices.
//!
//! It is loaded when the program first needs it. A program without a dynamic linker knows nothing
//! this way, and neither does a system without the library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use libloading::Library;

use crate::signature::{Purpose, Signature};

/// The library by the name of its interface, which has been the same since 2009.
const NAME: &str = "libblkid.so.1";

/// `BLKID_SUBLKS_UUID`, `BLKID_SUBLKS_TYPE` and `BLKID_SUBLKS_USAGE` of blkid/blkid.h.
const WANTED: c_int = 1 << 3 | 1 << 5 | 1 << 7;

/// The most probes that find something, of which there are a few dozen.
const MOST_PROBES: usize = 256;

/// A `blkid_probe`.
type RawProbe = *mut c_void;

/// The functions that are called, with their types of blkid/blkid.h.
struct Blkid {
    new_probe: unsafe extern "C" fn() -> RawProbe,
    free_probe: unsafe extern "C" fn(RawProbe),
    set_device: unsafe extern "C" fn(RawProbe, c_int, i64, i64) -> c_int,
    enable_superblocks: unsafe extern "C" fn(RawProbe, c_int) -> c_int,
    set_superblocks_flags: unsafe extern "C" fn(RawProbe, c_int) -> c_int,
    enable_partitions: unsafe extern "C" fn(RawProbe, c_int) -> c_int,
    do_probe: unsafe extern "C" fn(RawProbe) -> c_int,
    lookup_value:
        unsafe extern "C" fn(RawProbe, *const c_char, *mut *const c_char, *mut usize) -> c_int,
    /// The functions are there as long as it is loaded.
    _library: Library,
}

impl Blkid {
    /// The library; `None` if the system does not have it.
    fn get() -> Option<&'static Self> {
        static LOADED: OnceLock<Option<Blkid>> = OnceLock::new();
        LOADED.get_or_init(|| Self::load().ok()).as_ref()
    }

    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: loading libblkid runs no code that expects anything of the program.
        let library = unsafe { Library::new(NAME)? };
        // SAFETY: the types are those that blkid/blkid.h declares for these names, for all
        // versions of this interface.
        unsafe {
            Ok(Self {
                new_probe: *library.get(b"blkid_new_probe\0")?,
                free_probe: *library.get(b"blkid_free_probe\0")?,
                set_device: *library.get(b"blkid_probe_set_device\0")?,
                enable_superblocks: *library.get(b"blkid_probe_enable_superblocks\0")?,
                set_superblocks_flags: *library.get(b"blkid_probe_set_superblocks_flags\0")?,
                enable_partitions: *library.get(b"blkid_probe_enable_partitions\0")?,
                do_probe: *library.get(b"blkid_do_probe\0")?,
                lookup_value: *library.get(b"blkid_probe_lookup_value\0")?,
                _library: library,
            })
        }
    }
}

/// A search in one file.
struct Probe<'f> {
    blkid: &'static Blkid,
    raw: NonNull<c_void>,
    /// It stays open meanwhile.
    _file: &'f File,
}

impl<'f> Probe<'f> {
    fn new(blkid: &'static Blkid, file: &'f File, range: Range<u64>) -> io::Result<Self> {
        // SAFETY: it has no conditions.
        let raw = unsafe { (blkid.new_probe)() };
        let raw = NonNull::new(raw).ok_or(io::ErrorKind::OutOfMemory)?;
        let probe = Self { blkid, raw, _file: file };
        let number = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
        let (offset, len_bytes) = (number(range.start)?, number(range.end - range.start)?);
        // SAFETY: the probe was just made, and the file is open as long as it is used.
        let is_set = unsafe {
            (blkid.set_device)(raw.as_ptr(), file.as_raw_fd(), offset, len_bytes) == 0
                && (blkid.enable_superblocks)(raw.as_ptr(), 1) == 0
                && (blkid.set_superblocks_flags)(raw.as_ptr(), WANTED) == 0
                && (blkid.enable_partitions)(raw.as_ptr(), 1) == 0
        };
        if is_set { Ok(probe) } else { Err(io::Error::other("libblkid cannot read it")) }
    }

    /// Goes to the next thing that is there; whether there is one.
    fn advance(&self) -> io::Result<bool> {
        // SAFETY: the probe has its device.
        match unsafe { (self.blkid.do_probe)(self.raw.as_ptr()) } {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(io::Error::other("libblkid cannot read it")),
        }
    }

    /// What it says about the thing that it is at.
    fn value(&self, name: &CStr) -> Option<String> {
        let mut data = ptr::null();
        // SAFETY: the name ends with a zero, and the library accepts no place for the length.
        let outcome = unsafe {
            (self.blkid.lookup_value)(
                self.raw.as_ptr(),
                name.as_ptr(),
                &raw mut data,
                ptr::null_mut(),
            )
        };
        if outcome != 0 || data.is_null() {
            return None;
        }
        // SAFETY: it ends with a zero, and stays until the next search or the end of the probe.
        let value = unsafe { CStr::from_ptr(data) };
        Some(value.to_string_lossy().into_owned())
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by the same library, and is used no more.
        unsafe { (self.blkid.free_probe)(self.raw.as_ptr()) }
    }
}

/// The first thing that the library finds in this part of the file.
pub(crate) fn signature(file: &File, range: Range<u64>) -> io::Result<Option<Signature>> {
    let Some(blkid) = Blkid::get() else { return Ok(None) };
    if range.is_empty() {
        return Ok(None);
    }
    let probe = Probe::new(blkid, file, range)?;
    for _ in 0..MOST_PROBES {
        if !probe.advance()? {
            break;
        }
        if let Some(name) = probe.value(c"TYPE") {
            let purpose = match probe.value(c"USAGE").as_deref() {
                Some("filesystem") => Purpose::Filesystem,
                Some("raid") => Purpose::Member,
                Some("crypto") => Purpose::Encrypted,
                _ => Purpose::Other,
            };
            return Ok(Some(Signature { name, purpose, uuid: probe.value(c"UUID") }));
        }
        if let Some(name) = probe.value(c"PTTYPE") {
            return Ok(Some(Signature { name, purpose: Purpose::PartitionTable, uuid: None }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn found(file: &File, range: Range<u64>) -> Option<Signature> {
        signature(file, range).unwrap()
    }

    #[test]
    fn the_library_is_there_and_knows_what_lies_in_a_part() {
        assert!(Blkid::get().is_some(), "apt install libblkid1");
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        assert_eq!(found(&file, 0..64 << 20), None);
        // The header of swap space: version 1 and a last page.
        let (start, end) = (16 << 20, 32 << 20);
        let mut page = [0; 4096];
        page[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
        page[1028..1032].copy_from_slice(&4095_u32.to_le_bytes());
        page[4086..].copy_from_slice(b"SWAPSPACE2");
        file.write_all_at(&page, start).unwrap();
        file.flush().unwrap();
        assert_eq!(found(&file, 0..64 << 20), None);
        let swap = found(&file, start..end).expect("swap space");
        assert_eq!((&*swap.name, swap.purpose), ("swap", Purpose::Other));
        assert_eq!(found(&file, start..start), None);
    }

    #[test]
    fn a_member_of_an_array_is_found_by_its_end() {
        let file = tempfile::tempfile().unwrap();
        let len_bytes = 64_u64 << 20;
        file.set_len(len_bytes).unwrap();
        let mut block = [0; 4096];
        block[0..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        block[8..12].copy_from_slice(&90_u32.to_le_bytes());
        block[20..24].copy_from_slice(&7_u32.to_le_bytes());
        file.write_all_at(&block, len_bytes - (64 << 10)).unwrap();
        let member = found(&file, 0..len_bytes).expect("a member");
        assert_eq!((&*member.name, member.purpose), ("linux_raid_member", Purpose::Member));
    }
}
