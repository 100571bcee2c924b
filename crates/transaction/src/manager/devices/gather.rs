//! Moving content together, so that what is free between extents can be cut.
//!
//! # Invariants
//! - Meanwhile everything is allocated at the lowest place that fits: what moves fills what is
//!   free between other content, and a new group is filled from its start.
//! - A group that finds no room stays, and its holes with it.
//! - It ends: each round but the last halves what is free between extents.

use std::sync::Arc;

use super::DeviceWork;
use crate::error::{Error, Result};
use crate::space::Group;

/// A group moves if more than this part of what it has is free between its extents...
const LEAST_SHARE: u64 = 64;
/// ... and more than so many bytes are.
const LEAST_BYTES: u64 = 64 << 10;

impl DeviceWork<'_> {
    /// Moves the content of the block groups on a device together.
    pub(super) fn gather(&mut self, devid: u64) -> Result<()> {
        let manager = self.manager;
        if !manager.bookkeeping.removes_groups() {
            return Ok(());
        }
        let mut most_bytes = u64::MAX;
        loop {
            // What lies after the last content is room for new groups.
            self.cut(devid)?;
            let scattered = self.scattered(devid);
            let free_bytes: u64 = scattered.iter().map(|(bytes, _)| bytes).sum();
            if scattered.is_empty() || free_bytes > most_bytes {
                return Ok(());
            }
            most_bytes = free_bytes / 2;
            let mut has_room = true;
            for (_, group) in scattered {
                has_room &= self.empty(&group)?;
            }
            if !has_room {
                self.pack(devid)?;
            }
        }
    }

    /// The groups on a device with much free space between their extents, and how much that is, the
    /// most first.
    fn scattered(&self, devid: u64) -> Vec<(u64, Arc<Group>)> {
        let mut found = Vec::new();
        for group in self.groups_on(devid) {
            let free_bytes = group.scattered_bytes().saturating_sub(self.spare_bytes(&group));
            if free_bytes > LEAST_BYTES.max(group.used() / LEAST_SHARE) {
                found.push((free_bytes, group));
            }
        }
        found.sort_by_key(|(free_bytes, _)| std::cmp::Reverse(*free_bytes));
        found
    }

    /// Moves everything out of a group. Returns whether there was room for it.
    pub(super) fn empty(&mut self, group: &Group) -> Result<bool> {
        self.progress.total_bytes += group.used();
        let manager = self.manager;
        let mut advance = |bytes: u64| self.advance(bytes);
        let emptied = manager.empty_one_group(group.start(), &mut advance);
        match emptied {
            Ok(emptied) => {
                self.moved.add(&emptied.map(|emptied| emptied.moved).unwrap_or_default());
                Ok(true)
            }
            Err(Error::NoSpace { .. } | Error::NoPlace { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
