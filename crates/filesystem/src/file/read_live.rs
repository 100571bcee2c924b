//! Reading a file that may have data in memory only, and making sectors dirty before a part of them
//! changes.

use std::ops::Range;

use larder_format::item::InodeFlags;

use crate::change::file_change::LockedFile;
use crate::change::locks::KeepsData;
use crate::error::Result;
use crate::file::extents::Waiting;
use crate::handle::file::File;
use crate::item::extent::ExtentContent;
use crate::live::inode::{InodeState, LiveInode};

/// A sector to be made dirty, under some condition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The one at this offset.
    Sector(u64),
    /// The one at this offset if it has data: it is neither a hole nor preallocated.
    IfData(u64),
    /// The first if it is inline: an inline extent must be the only one.
    IfInline,
}

impl Need {
    fn start(self) -> u64 {
        match self {
            Self::Sector(start) | Self::IfData(start) => start,
            Self::IfInline => 0,
        }
    }
}

impl File {
    /// Reads a file that may have dirty data. Its state is locked before and after device I/O, not
    /// meanwhile.
    pub(crate) fn read_live(&self, live: &LiveInode, buf: &mut [u8], offset: u64) -> Result<usize> {
        {
            let state = live.read();
            let len = state.len_at(offset, buf.len());
            if state.pages.holds(offset, offset + len as u64) {
                state.pages.overlay(offset, &mut buf[..len]);
                return Ok(len);
            }
        }
        // From here on the extents stay.
        let _reading = live.reading.read();
        let (len, cut, has_checksums) = {
            let state = live.read();
            let has_checksums = !state.item.flags().contains(InodeFlags::NODATASUM);
            (state.len_at(offset, buf.len()), state.pages.cut().unwrap_or(u64::MAX), has_checksums)
        };
        let there = cut.saturating_sub(offset).min(len as u64) as usize;
        self.read_tree(live, &mut buf[..there], offset, has_checksums)?;
        let state = live.read();
        // Newer data is in memory, all of it, or was cut off.
        let now = state.len_at(offset, buf.len());
        let uncut =
            state.pages.cut().unwrap_or(u64::MAX).saturating_sub(offset).min(there as u64) as usize;
        buf[uncut.min(now)..now].fill(0);
        state.pages.overlay(offset, &mut buf[..now]);
        Ok(now)
    }

    /// Reads the file as the tree has it, with its extents kept: the caller has `reading` in some
    /// mode, or `flushing`.
    pub(crate) fn read_tree(
        &self,
        live: &LiveInode,
        buf: &mut [u8],
        offset: u64,
        has_checksums: bool,
    ) -> Result<()> {
        self.core().while_content_stays(|| {
            let moves = live.extents().moves();
            let learned = self.read_known_range(live.extents(), buf, offset, has_checksums)?;
            live.extents().learn(learned, moves);
            Ok(())
        })
    }

    /// Makes sectors dirty, with their current content. The state is not locked during device I/O,
    /// and has been locked continuously since the last sector became dirty.
    pub(crate) fn load<L: KeepsData>(
        &self,
        file: &mut LockedFile<'_, '_, L>,
        needs: &[Need],
    ) -> Result<()> {
        let live = self.live_inode()?;
        let sectorsize = self.core().sectorsize();
        // No other thread creates data where there is none.
        let mut absent: Vec<Need> = Vec::new();
        loop {
            let is_dirty = |need: &Need| {
                let start = need.start();
                file.pages.is_dirty(start, start + sectorsize)
            };
            let missing: Vec<Need> = needs
                .iter()
                .filter(|need| !is_dirty(need) && !absent.contains(need))
                .copied()
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            for need in missing {
                match file.unlocked(|| self.wanted_sector(live, need))? {
                    Some(sector) => file.pages.load(need.start(), &sector),
                    None => absent.push(need),
                }
            }
        }
    }

    /// The content of a sector; none if the condition does not hold.
    fn wanted_sector(&self, live: &LiveInode, need: Need) -> Result<Option<Vec<u8>>> {
        let sectorsize = self.core().sectorsize();
        let start = need.start();
        let is_wanted = match need {
            Need::Sector(_) => true,
            Need::IfData(_) => self.has_data(live, start..start + sectorsize)?,
            Need::IfInline => self.is_inline(live)?,
        };
        if !is_wanted {
            return Ok(None);
        }
        let mut sector = vec![0; sectorsize as usize];
        self.read_live(live, &mut sector, start)?;
        Ok(Some(sector))
    }

    /// Whether there is data in a sector.
    fn has_data(&self, live: &LiveInode, sector: Range<u64>) -> Result<bool> {
        let _reading = live.reading.read();
        {
            let state = live.read();
            if state.pages.holds(sector.start, sector.end) {
                return Ok(true);
            }
            if state.pages.cut().is_some_and(|cut| cut <= sector.start) {
                return Ok(false);
            }
        }
        let extent = self.extents_within(sector.start, sector.end).next().transpose()?;
        Ok(extent.is_some_and(|extent| extent.is_data()))
    }

    /// Whether the tree has the file's data inline.
    fn is_inline(&self, live: &LiveInode) -> Result<bool> {
        let sectorsize = self.core().sectorsize();
        let size_bytes = live.read().size_bytes;
        if size_bytes == 0 || size_bytes > sectorsize {
            return Ok(false);
        }
        let _reading = live.reading.read();
        let extent = self.extents_within(0, sectorsize).next().transpose()?;
        Ok(extent.is_some_and(|extent| matches!(extent.content, ExtentContent::Inline(_))))
    }

    /// Zeroes a range within one sector if the sector is dirty: no data was left alone.
    pub(crate) fn zero(&self, state: &mut InodeState, range: Range<u64>) {
        let sectorsize = self.core().sectorsize();
        let start = range.start - range.start % sectorsize;
        if !range.is_empty() && state.pages.is_dirty(start, start + sectorsize) {
            let zeros = vec![0; (range.end - range.start) as usize];
            state.pages.write(range.start, &zeros, sectorsize);
        }
    }

    /// The sector that must be dirty before the bytes after `end` in it are zeroed.
    pub(crate) fn need_of_end(&self, end: u64) -> Option<Need> {
        let sectorsize = self.core().sectorsize();
        (!end.is_multiple_of(sectorsize)).then(|| Need::IfData(end - end % sectorsize))
    }

    /// Zeroes the bytes after `end` in its sector; see [`need_of_end`](Self::need_of_end).
    pub(crate) fn zero_behind(&self, state: &mut InodeState, end: u64) {
        let sectorsize = self.core().sectorsize();
        self.zero(state, end..end.next_multiple_of(sectorsize));
    }
}

impl LiveInode {
    /// The data that is in memory only.
    pub(crate) fn waiting(&self) -> Waiting {
        let state = self.read();
        Waiting { data: state.pages.ranges(), cut: state.pages.cut() }
    }
}

impl InodeState {
    /// How many of `most` bytes from `offset` on lie in the file.
    fn len_at(&self, offset: u64, most: usize) -> usize {
        self.size_bytes.saturating_sub(offset).min(most as u64) as usize
    }
}
