//! How far a copy is.

use std::ffi::OsStr;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use crate::destination::{Attributes, Destination, Gone};
use crate::error::{CopyError, Stopped};

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Files, directories and other inodes; hard links count too.
    pub inodes: u64,
    /// Bytes of content; of an archive, those of it that were read.
    pub bytes: u64,
}

/// What happens during a copy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// So much is copied.
    Progress(Copied),
    /// Something could not be copied. The copy goes on, unless the observer breaks it off.
    Failed(&'a CopyError),
    /// The host does not let the copy have an extended attribute.
    NotKept {
        /// The path of the copy.
        copy: &'a Path,
        /// The attribute.
        attribute: &'a OsStr,
    },
}

type Observer<'o> = Box<dyn FnMut(Event<'_>) -> ControlFlow<()> + 'o>;

/// How far a copy is, and how many failures there were.
pub struct Course<'o> {
    /// Without one, the first failure ends the copy.
    observer: Option<Observer<'o>>,
    copied: Copied,
    failures: u64,
    first: Option<CopyError>,
}

impl fmt::Debug for Course<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Course").field("copied", &self.copied).finish_non_exhaustive()
    }
}

impl<'o> Course<'o> {
    /// One that ends with the first failure.
    pub fn strict() -> Self {
        Self { observer: None, copied: Copied::default(), failures: 0, first: None }
    }

    /// One that goes on as long as `observe` says so.
    pub fn observed(observe: impl FnMut(Event<'_>) -> ControlFlow<()> + 'o) -> Self {
        Self { observer: Some(Box::new(observe)), ..Self::strict() }
    }

    /// How many failures there were.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Tells how far the copy is.
    ///
    /// # Errors
    /// The observer stops it.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let event = Event::Progress(self.copied);
        let goes_on = self.observer.as_mut().is_none_or(|observe| observe(event).is_continue());
        if goes_on { Ok(()) } else { Err(Stopped.into()) }
    }

    /// So many bytes more are copied.
    ///
    /// # Errors
    /// The observer stops the copy.
    pub fn advance(&mut self, bytes: u64) -> anyhow::Result<()> {
        self.reach(self.copied.bytes + bytes)
    }

    /// So many bytes are copied.
    pub(crate) fn reach(&mut self, bytes: u64) -> anyhow::Result<()> {
        self.copied.bytes = bytes;
        self.check()
    }

    /// One inode more is copied, or for a directory, made.
    pub fn count(&mut self) {
        self.copied.inodes += 1;
    }

    /// Notes how the copy of one inode went.
    ///
    /// # Errors
    /// The copy ends: the observer stops it, or the destination takes nothing more.
    pub fn note(
        &mut self,
        original: &Path,
        copy: &Path,
        result: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Err(error) = result else { return Ok(()) };
        if Stopped::is_behind(&error) || Gone::is_behind(&error) {
            return Err(error);
        }
        let failure = CopyError::new(original, copy, error);
        self.failures += 1;
        let event = Event::Failed(&failure);
        if self.observer.as_mut().is_some_and(|observe| observe(event).is_continue()) {
            self.first.get_or_insert(failure);
            Ok(())
        } else {
            Err(failure.into())
        }
    }

    /// Gives the copy at `target` its attributes, and tells which it cannot have.
    ///
    /// # Errors
    /// Those of setting them; the observer stops the copy.
    pub fn finish(
        &mut self,
        destination: &mut dyn Destination,
        target: &Path,
        attributes: Attributes,
    ) -> anyhow::Result<()> {
        let not_kept = destination.finish(target, attributes)?;
        let Some(observe) = self.observer.as_mut().filter(|_| !not_kept.is_empty()) else {
            return Ok(());
        };
        let copy = &*destination.shown(target);
        let mut events = not_kept.iter().map(|attribute| Event::NotKept { copy, attribute });
        if events.any(|event| observe(event).is_break()) { Err(Stopped.into()) } else { Ok(()) }
    }

    /// How a copy went as a whole, from `original` to `copy`.
    pub(crate) fn end(
        self,
        result: anyhow::Result<()>,
        original: &Path,
        copy: &Path,
    ) -> Result<Copied, CopyError> {
        match (result, self.first) {
            (Ok(()), None) => Ok(self.copied),
            (Ok(()), Some(first)) => Err(first.first_of(self.failures)),
            (Err(error), _) => Err(CopyError::of(error, original, copy)),
        }
    }
}
