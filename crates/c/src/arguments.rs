//! What C hands over, as references and paths.

use std::ffi::{CStr, OsStr, c_char};
use std::path::Path;

use larder_platform::OsStrExt;

use crate::outcome::{Failure, Outcome};

/// The permissions of new files, whose type is narrower on some systems.
pub(crate) fn permissions(mode: impl Into<u32>) -> u32 {
    mode.into()
}

/// Something that C points to.
///
/// # Safety
/// `pointer` is NULL, or valid for as long as the call takes.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: the caller promises it.
    unsafe { pointer.as_ref() }.ok_or_else(is_null)
}

/// Something that C points to, and that no other thread uses.
///
/// # Safety
/// As [`reference`], and nothing else refers to it.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: the caller promises it.
    unsafe { pointer.as_mut() }.ok_or_else(is_null)
}

/// A handle that C gives back; NULL is none.
///
/// # Safety
/// `pointer` came from [`handle`](crate::outcome::handle), and C does not use it again.
pub(crate) unsafe fn owned<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: it came from a box, and the caller promises that this is its end.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// A path.
///
/// # Safety
/// `text` is NULL, or ends with a zero and stays as it is for as long as the call takes.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Outcome<&'a Path> {
    if text.is_null() {
        return Err(is_null());
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Several paths.
///
/// # Safety
/// `texts` are `count` pointers that are each as for [`path`].
pub(crate) unsafe fn paths<'a>(
    texts: *const *const c_char,
    count: usize,
) -> Outcome<Vec<&'a Path>> {
    // SAFETY: the caller promises it.
    let texts = unsafe { bytes(texts, count) }?;
    // SAFETY: the caller promises it.
    texts.iter().map(|text| unsafe { path(*text) }).collect()
}

/// `count` elements to read.
///
/// # Safety
/// `start` is valid for reading them, or `count` is zero.
pub(crate) unsafe fn bytes<'a, T>(start: *const T, count: usize) -> Outcome<&'a [T]> {
    match count {
        0 => Ok(&[]),
        _ if start.is_null() => Err(is_null()),
        // SAFETY: the caller promises it.
        _ => Ok(unsafe { std::slice::from_raw_parts(start, count) }),
    }
}

/// `count` elements to fill.
///
/// # Safety
/// `start` is valid for reading and writing them, and nothing else refers to them; or `count` is
/// zero.
pub(crate) unsafe fn elements_mut<'a, T>(start: *mut T, count: usize) -> Outcome<&'a mut [T]> {
    match count {
        0 => Ok(&mut []),
        _ if start.is_null() => Err(is_null()),
        // SAFETY: the caller promises it.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(start, count) }),
    }
}

fn is_null() -> Failure {
    Failure::new(libc::EFAULT, "an argument is NULL")
}
