//! Devices, balances and scrubs.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use larder::mkfs::Claimed;
use larder::{Balance, BalanceEnd, BalanceItem, ReplaceState, Replacement, ScrubEnd, ScrubOptions};

use crate::arguments::{path, reference};
use crate::filesystem::larder_fs;
use crate::jobs::{Told, larder_progress_callback, moved, watched};
use crate::outcome::{Failure, Outcome, number, number_of};

/// For larder_resize_device(): all of the device.
pub const LARDER_SIZE_MAX: u64 = u64::MAX;
/// For larder_resize_device(): as little as possible.
pub const LARDER_SIZE_MIN: u64 = 0;

/// Verifies every copy of everything on all devices, and repairs bad ones from good ones unless
/// `read_only`. Returns how many sectors have no good copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_scrub(
    fs: *mut larder_fs,
    read_only: bool,
    progress: larder_progress_callback,
    context: *mut c_void,
) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let fs = unsafe { reference(fs) }?;
        let scrubs = watched(fs, Told { progress, context }, |filesystem| {
            filesystem.scrub(&ScrubOptions { read_only, ..ScrubOptions::default() })
        })?;
        let mut beyond_repair = 0;
        for scrub in scrubs {
            beyond_repair += scrub.counters.uncorrectable_errors;
            match scrub.end {
                ScrubEnd::Finished | ScrubEnd::NoDevice => {}
                ScrubEnd::Cancelled => return Err(cancelled()),
                ScrubEnd::Failed(error) => return Err(error.into()),
            }
        }
        Ok(c_int::try_from(beyond_repair).unwrap_or(c_int::MAX))
    })
}

/// Moves block groups: those of data, metadata and the chunk tree that the filters let pass, or all
/// if all three are NULL. Filters are those of btrfs balance start: "usage=50,limit=2"; "" lets all
/// of its kind pass. With `force` metadata may become less safe. Returns how many block groups found
/// no room, and stayed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_balance(
    fs: *mut larder_fs,
    data: *const c_char,
    metadata: *const c_char,
    system: *const c_char,
    force: bool,
    progress: larder_progress_callback,
    context: *mut c_void,
) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let (fs, data, metadata, system) =
            unsafe { (reference(fs)?, text(data)?, text(metadata)?, text(system)?) };
        let wanted = BalanceItem::from_filters(data, metadata, system, force);
        let wanted = wanted.map_err(|error| Failure::new(libc::EINVAL, error.to_string()))?;
        let told = Told { progress, context };
        balanced(watched(fs, told, |filesystem| filesystem.balance(&wanted, &|_| ()))?)
    })
}

/// Goes on with a balance that was paused or interrupted, also one of the kernel; as
/// larder_balance(). ENOTCONN if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_resume_balance(
    fs: *mut larder_fs,
    progress: larder_progress_callback,
    context: *mut c_void,
) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let fs = unsafe { reference(fs) }?;
        let told = Told { progress, context };
        let resumed = watched(fs, told, |filesystem| filesystem.resume_balance(&|_| ()))?;
        balanced(resumed.ok_or_else(|| Failure::new(libc::ENOTCONN, "there is no balance"))?)
    })
}

/// Ends the balance that goes on, so that it can be resumed. Returns 1, or 0 if there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_pause_balance(fs: *mut larder_fs) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        Ok(c_int::from(unsafe { reference(fs) }?.root.filesystem().pause_balance()?))
    })
}

/// Ends a balance, whether it goes on or pauses. Returns 1, or 0 if there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_cancel_balance(fs: *mut larder_fs) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        Ok(c_int::from(unsafe { reference(fs) }?.root.filesystem().cancel_balance()?))
    })
}

/// Adds the block device or image at `device`, whose content is lost. An image that is not there is
/// created, `size` bytes long. With `force`, existing content is overwritten. Returns its id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_add_device(
    fs: *mut larder_fs,
    device: *const c_char,
    size: u64,
    force: bool,
) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let (fs, device) = unsafe { (reference(fs)?, path(device)?) };
        let claimed = claim(device, size, force)?;
        let id = fs.root.filesystem().add_device(claimed.device().clone())?;
        claimed.keep();
        Ok(c_int::try_from(id).unwrap_or(c_int::MAX))
    })
}

/// Moves everything on the device of this id to the others, and removes it; also if it is missing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_remove_device(
    fs: *mut larder_fs,
    id: u64,
    progress: larder_progress_callback,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let fs = unsafe { reference(fs) }?;
        let told = Told { progress, context };
        moved(fs, told, |filesystem| filesystem.remove_device(id, &|_| ()))
    })
}

/// Sets how many bytes of the device of this id the file system uses, or one of LARDER_SIZE_*. An
/// image keeps its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_resize_device(
    fs: *mut larder_fs,
    id: u64,
    size: u64,
    progress: larder_progress_callback,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let fs = unsafe { reference(fs) }?;
        let no_device = || Failure::new(libc::ENODEV, format!("there is no device {id}"));
        let room = fs.root.filesystem().device_room(id).ok_or_else(no_device)?;
        moved(fs, Told { progress, context }, |filesystem| match size {
            LARDER_SIZE_MIN => Ok(filesystem.minimize_device(id, &|_| ())?.1),
            LARDER_SIZE_MAX => filesystem.resize_device(id, room, &|_| ()),
            size => filesystem.resize_device(id, size, &|_| ()),
        })
    })
}

/// Copies everything on the device of this id to the one at `target`, which takes its place; `size`
/// and `force` are those of larder_add_device(). With `avoid_source` the device is read only where no
/// other copy is good. After an interruption larder_resume_replace() goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_replace_device(
    fs: *mut larder_fs,
    id: u64,
    target: *const c_char,
    size: u64,
    force: bool,
    avoid_source: bool,
    progress: larder_progress_callback,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (fs, target) = unsafe { (reference(fs)?, path(target)?) };
        let claimed = claim(target, size, force)?;
        let wanted = Replacement { devid: id, target: claimed.device().clone(), avoid_source };
        let replaced = moved(fs, Told { progress, context }, |filesystem| {
            filesystem.replace_device(&wanted, &|_| ())
        });
        let state = fs.root.filesystem().replace_status()?.state;
        if matches!(state, ReplaceState::Finished | ReplaceState::Suspended) {
            claimed.keep();
        }
        replaced
    })
}

/// Goes on with a replace that was interrupted. The target is one of the devices that were opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_resume_replace(
    fs: *mut larder_fs,
    progress: larder_progress_callback,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let fs = unsafe { reference(fs) }?;
        let told = Told { progress, context };
        moved(fs, told, |filesystem| filesystem.resume_replace(&|_| ()))
    })
}

/// Gives up a replace that goes on or was interrupted. Returns 1, or 0 if there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_cancel_replace(fs: *mut larder_fs) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        Ok(c_int::from(unsafe { reference(fs) }?.root.filesystem().cancel_replace()?))
    })
}

fn claim(device: &Path, size: u64, force: bool) -> Outcome<Claimed> {
    Ok(Claimed::open(device, (size != 0).then_some(size), force, true)?)
}

fn balanced(Balance { done, end }: Balance) -> Outcome<c_int> {
    match end {
        BalanceEnd::Finished => Ok(c_int::try_from(done.without_room).unwrap_or(c_int::MAX)),
        BalanceEnd::Paused => Err(Failure::new(libc::EINTR, "it was paused")),
        BalanceEnd::Cancelled => Err(cancelled()),
    }
}

fn cancelled() -> Failure {
    Failure::new(libc::EINTR, "it was cancelled")
}

/// A text, or none for NULL.
///
/// # Safety
/// As for [`path`].
unsafe fn text<'a>(text: *const c_char) -> Outcome<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises it.
    let text = unsafe { path(text) }?.to_str();
    text.map(Some).ok_or_else(|| Failure::new(libc::EINVAL, "a text is not UTF-8"))
}
