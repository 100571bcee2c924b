//! Files.

use std::ffi::{c_char, c_int, c_void};

use larder::{File, OpenFile, Subvolume};
use libc::{O_ACCMODE, O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};

use crate::arguments::{bytes, elements_mut, owned, permissions, reference};
use crate::filesystem::larder_fs;
use crate::names::fill_stat;
use crate::outcome::{Failure, Outcome, handle, length, number};

/// An open file.
#[allow(non_camel_case_types)]
pub struct larder_file {
    file: File,
    /// For what was opened for writing.
    writer: Option<OpenFile>,
    can_read: bool,
    appends: bool,
}

impl larder_file {
    fn open(root: &Subvolume, path: &std::path::Path, flags: c_int, mode: u32) -> Outcome<Self> {
        let known = O_ACCMODE | O_APPEND | O_CREAT | O_EXCL | O_TRUNC | libc::O_CLOEXEC;
        let access = flags & O_ACCMODE;
        if flags & !known != 0 || ![O_RDONLY, O_WRONLY, O_RDWR].contains(&access) {
            return Err(Failure::new(libc::EINVAL, "a flag that is not known"));
        }
        let (has, writes) = (|flag| flags & flag != 0, access != O_RDONLY);
        let file = match (has(O_CREAT), has(O_EXCL)) {
            (true, true) => root.create(path, mode),
            (true, false) => root.open_or_create(path, mode),
            (false, _) => root.open_file(path),
        }?;
        let appends = has(O_APPEND);
        let writer = writes.then(|| file.open_for_writing(appends)).transpose()?;
        if let Some(writer) = writer.as_ref().filter(|_| has(O_TRUNC)) {
            writer.set_len(0)?;
        }
        Ok(Self { file, writer, can_read: access != O_WRONLY, appends })
    }

    fn writer(&self) -> Outcome<&OpenFile> {
        let not_open = || Failure::new(libc::EBADF, "the file is not open for writing");
        self.writer.as_ref().ok_or_else(not_open)
    }
}

/// Opens a file with the flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL,
/// O_TRUNC and O_APPEND. A new file gets the permissions `mode`; no umask applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_file_open(
    fs: *mut larder_fs,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> *mut larder_file {
    handle(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        larder_file::open(root, path, flags, permissions(mode))
    })
}

/// Reads up to `count` bytes from `offset` on. Returns how many: fewer only at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_pread(
    file: *mut larder_file,
    buffer: *mut c_void,
    count: usize,
    offset: u64,
) -> libc::ssize_t {
    length(|| {
        // SAFETY: C promises it.
        let (file, buffer) = unsafe { (reference(file)?, elements_mut(buffer.cast(), count)?) };
        if !file.can_read {
            return Err(Failure::new(libc::EBADF, "the file is not open for reading"));
        }
        Ok(file.file.read_at(buffer, offset)?)
    })
}

/// Writes all of `count` bytes at `offset`, or at the end of a file that was opened with O_APPEND.
/// Returns `count`. It is durable after a sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_pwrite(
    file: *mut larder_file,
    buffer: *const c_void,
    count: usize,
    offset: u64,
) -> libc::ssize_t {
    length(|| {
        // SAFETY: C promises it.
        let (file, data) = unsafe { (reference(file)?, bytes(buffer.cast::<u8>(), count)?) };
        let writer = file.writer()?;
        if file.appends {
            writer.append(data)?;
        } else {
            writer.write_at(data, offset)?;
        }
        Ok(count)
    })
}

/// Makes the file `size` bytes long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_ftruncate(file: *mut larder_file, size: u64) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let file = unsafe { reference(file) }?;
        Ok(file.writer()?.set_len(size)?)
    })
}

/// Makes `count` bytes of `target` from `target_offset` on share the data of `source` from
/// `source_offset` on: a reflink, as FICLONERANGE. A `count` of 0 means up to the end of `source`.
/// Offsets and `count` are in bytes, and whole blocks, except for a range that ends with `source`.
/// Both files are of one file system, and may be the same one. Fails with EXDEV for another file
/// system, with EINVAL for other ranges, and with EBADF unless `source` is open for reading and
/// `target` for writing and not for appending only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_clone_range(
    source: *mut larder_file,
    source_offset: u64,
    target: *mut larder_file,
    target_offset: u64,
    count: u64,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (source, target) = unsafe { (reference(source)?, reference(target)?) };
        if !source.can_read || target.appends {
            return Err(Failure::new(libc::EBADF, "a file is not open for this"));
        }
        target.writer()?;
        Ok(target.file.clone_range(&source.file, source_offset, count, target_offset)?)
    })
}

/// Makes the file durable: far less work than larder_sync().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_fsync(file: *mut larder_file) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let file = unsafe { reference(file) }?;
        Ok(file.file.sync()?)
    })
}

/// The attributes of an open file, as larder_stat() has them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_fstat(file: *mut larder_file, found: *mut libc::stat) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        unsafe { fill_stat(&reference(file)?.file, found) }
    })
}

/// Closes a file. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_file_close(file: *mut larder_file) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        drop(unsafe { owned(file) });
        Ok(())
    })
}
