//! Snapshots as streams.

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use larder::{
    ReceiveError, ReceiveEvent, ReceiveOptions, ReceiveSnapshots, SendError, SendOptions,
    SendSnapshot,
};

use crate::arguments::path;
use crate::filesystem::larder_fs;
use crate::outcome::{Failure, Outcome, number, number_of};
use crate::subvolumes::at;

const BUFFER_BYTES: usize = 1 << 20;

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<ReceiveError> for Failure {
    fn from(error: ReceiveError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// What a descriptor leads to.
///
/// # Safety
/// `fd` is not closed during the call.
unsafe fn file(fd: c_int) -> Outcome<File> {
    if fd < 0 {
        return Err(Failure::new(libc::EBADF, "no file descriptor"));
    }
    // SAFETY: it is not -1, and the caller promises the rest.
    let copy = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    let failed = |error: std::io::Error| {
        Failure::new(error.raw_os_error().unwrap_or(libc::EBADF), "no file descriptor")
    };
    Ok(copy.map_err(failed)?.into())
}

/// Writes the read-only snapshot at `path` to the file descriptor `fd`, in the format of `btrfs
/// send`: whole, or as the difference from the read-only snapshot at `parent` unless that is NULL.
/// `fd` stays open. After an error, the beginning of a stream was written, which receivers
/// recognize. A pipe without a reader raises SIGPIPE, as with write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_send(
    fs: *mut larder_fs,
    path: *const c_char,
    parent: *const c_char,
    fd: c_int,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let ((root, snapshot), output) = unsafe { (larder_fs::at(fs, path)?, file(fd)?) };
        // SAFETY: C promises it.
        let parent = if parent.is_null() { None } else { Some(unsafe { self::path(parent) }?) };
        let options = SendOptions {
            parent: parent.map(|parent| at(root, parent)).transpose()?,
            ..SendOptions::default()
        };
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        at(root, snapshot)?.send(&options, &mut output)?;
        output.flush().map_err(SendError::Output)?;
        Ok(())
    })
}

/// Reads streams of `btrfs send` from the file descriptor `fd` up to its end, and makes their
/// snapshots in the directory at `path`. `fd` stays open. Returns how many there are. Each is
/// read-only, and durable once it is complete; after an error, the unfinished one stays as a
/// subvolume that can be changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_receive(
    fs: *mut larder_fs,
    path: *const c_char,
    fd: c_int,
) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let ((root, directory), input) = unsafe { (larder_fs::at(fs, path)?, file(fd)?) };
        let directory = root.open_directory(directory)?;
        let mut count = 0;
        let mut observe = |event: ReceiveEvent<'_>| {
            count += c_int::from(matches!(event, ReceiveEvent::Begins { .. }));
            ControlFlow::Continue(())
        };
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        directory.receive(input, &ReceiveOptions::default(), &mut observe)?;
        Ok(count)
    })
}
