//! What differs between operating systems, behind one interface.
//!
//! - [`OsStrExt`] and [`OsStringExt`]: names as bytes, as a file system has them.
//! - [`join`] and [`split`]: paths inside a file system, where `/` separates names on every system.
//! - [`FileExt`] and [`write_vectored_at`]: reads and writes at an offset of a file.
//! - [`sync_directory`]: names that are durable.
//! - [`FileTypeExt`], [`FileId`] and [`device_number`]: what a path leads to.
//! - [`create_private_folders`] and [`for_this_user_only`]: folders and files for this user only.
//! - [`errno`]: the numbers of errors.
//! - [`user`]: the owner of new files.
//! - [`uptime`]: a clock that nobody sets.
//! - `HostTree`, on Linux: a tree of files that other users may change while it is read.
//!
//! On Unix these are the standard library's own, or what the system says. On Windows, `\` is a part
//! of a name as long as a path stays with these functions; [`Path`](std::path::Path) itself takes it
//! for a separator there.
//!
//! # Invariants
//! - Bytes that became a name become the same bytes again, on every system.
#![forbid(unsafe_code)]

pub mod errno;
#[cfg(target_os = "linux")]
mod host_tree;
#[cfg(unix)]
mod unix;
#[cfg(any(windows, test))]
mod wide;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub use host_tree::{HostTree, Pinned, is_name, open_quietly};
#[cfg(unix)]
pub use unix::{
    FileExt, FileId, FileTypeExt, OsStrExt, OsStringExt, create_private_folders, device_number,
    for_this_user_only, join, split, sync_directory, uptime, user, write_vectored_at,
};
#[cfg(windows)]
pub use windows::{
    FileExt, FileId, FileTypeExt, OsStrExt, OsStringExt, create_private_folders, device_number,
    for_this_user_only, join, split, sync_directory, uptime, user, write_vectored_at,
};
