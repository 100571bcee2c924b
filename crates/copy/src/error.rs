//! Why something could not be copied.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use larder_platform::errno;
use rustix::io::Errno;

/// Something that could not be copied. Its text names the original, the copy and the reason.
#[derive(Debug)]
pub struct CopyError {
    original: PathBuf,
    copy: PathBuf,
    cause: anyhow::Error,
    /// Others that followed it.
    more: u64,
}

impl CopyError {
    pub(crate) fn new(original: &Path, copy: &Path, cause: anyhow::Error) -> Self {
        Self { original: original.to_owned(), copy: copy.to_owned(), cause, more: 0 }
    }

    /// The failure in `error`, or a failure of the whole copy.
    pub(crate) fn of(error: anyhow::Error, original: &Path, copy: &Path) -> Self {
        error.downcast().unwrap_or_else(|cause| Self::new(original, copy, cause))
    }

    /// The same failure, the first of `count`.
    pub(crate) fn first_of(self, count: u64) -> Self {
        Self { more: count.saturating_sub(1), ..self }
    }

    /// The original, as the caller named it, or below that. Of an archive, a name in it.
    pub fn original(&self) -> &Path {
        &self.original
    }

    /// The path of the copy.
    pub fn copy(&self) -> &Path {
        &self.copy
    }

    /// How many things could not be copied, this one included.
    pub fn failures(&self) -> u64 {
        self.more + 1
    }

    /// The reason as a number of the operating system: `EINTR` if the observer stopped the copy,
    /// `EINVAL` if an archive cannot be read or has something that cannot be unpacked.
    pub fn errno(&self) -> i32 {
        self.cause.chain().find_map(number_of).unwrap_or(errno::EINVAL)
    }

    /// Whether something on a device is wrong or unreadable, and a check is due.
    pub fn is_damage(&self) -> bool {
        let of_filesystem = |cause: &(dyn Error + 'static)| {
            Some(cause.downcast_ref::<larder_filesystem::Error>()?.is_damage())
        };
        self.cause.chain().find_map(of_filesystem).unwrap_or(false)
    }

    /// The reason in words, without the paths, and how many failures followed this one.
    pub fn reason(&self) -> String {
        match self.more {
            0 => self.own_reason(),
            more => format!("{} (and {more} more)", self.own_reason()),
        }
    }

    fn own_reason(&self) -> String {
        let mut reason = String::new();
        for cause in self.cause.chain() {
            if !reason.is_empty() {
                reason.push_str(": ");
            }
            // This one's text is complete, and begins with a path.
            if let Some(error) = cause.downcast_ref::<larder_filesystem::Error>() {
                return reason + &error.problem().to_string();
            }
            reason.push_str(&errno::in_words(cause));
        }
        reason
    }
}

fn number_of(cause: &(dyn Error + 'static)) -> Option<i32> {
    if let Some(error) = cause.downcast_ref::<larder_filesystem::Error>() {
        return Some(error.errno());
    }
    if let Some(error) = cause.downcast_ref::<Errno>() {
        return Some(error.raw_os_error());
    }
    if cause.is::<Stopped>() {
        return Some(errno::EINTR);
    }
    cause.downcast_ref::<io::Error>().and_then(errno::of)
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (original, copy) = (self.original.display(), self.copy.display());
        write!(f, "{original}: cannot copy it to {copy}: {}", self.reason())
    }
}

impl Error for CopyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause.as_ref())
    }
}

/// The observer stopped the copy.
#[derive(Debug)]
pub(crate) struct Stopped;

impl Stopped {
    /// Whether `error` is because of that.
    pub(crate) fn is_behind(error: &anyhow::Error) -> bool {
        error.chain().any(<dyn Error + 'static>::is::<Self>)
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the copy was stopped; part of it may be done")
    }
}

impl Error for Stopped {}
