//! The flushing ladder: what is tried, in order, before there is no space left.

use super::TransactionManager;
use crate::error::{Error, Result};
use crate::space::{Priority, Reservation, SpaceKind};

/// A step of the ladder: something that holds space and can give it back.
pub trait MakesRoom: Send + Sync {
    /// Gives space back, if possible `len_bytes` or more. It may use what was promised to it before,
    /// and [`attach`](TransactionManager::attach), but asks for no promises: that would lead here.
    fn make_room(&self, manager: &TransactionManager, len_bytes: u64) -> Result<()>;
}

impl TransactionManager {
    /// Promises `len_bytes` of `kind`. When there is no room it is made: by the steps that were added,
    /// by running delayed references, by a commit that releases what is pinned.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when none of that helped.
    ///
    /// # Panics
    /// When a commit is needed and this thread has a [`Handle`](super::Handle).
    pub fn reserve(
        &self,
        kind: SpaceKind,
        len_bytes: u64,
        priority: Priority,
    ) -> Result<Reservation> {
        self.check_alive()?;
        let attempt = || match self.space().try_reserve(kind, len_bytes, priority) {
            Ok(reservation) => Ok(Some(reservation)),
            Err(Error::NoSpace { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        if let Some(reservation) = attempt()? {
            return Ok(reservation);
        }
        let steps = self.steps.read().clone();
        for step in steps {
            step.make_room(self, len_bytes)?;
            if let Some(reservation) = attempt()? {
                return Ok(reservation);
            }
        }
        // Running references alone frees nothing before a commit, which runs them all.
        self.commit()?;
        attempt()?.ok_or(Error::NoSpace { kind, len_bytes })
    }
}
