//! The page cache of a file: data that the trees do not have yet, and the space that is reserved
//! for it.
//!
//! Each sector of a file is clean, dirty, under writeback ("writing"), or dirty again while it is
//! under writeback ("rewritten"):
//!
//! ```text
//! clean      ── write, adopt, load ──────────▶ dirty
//! dirty      ── truncate, cut_off, forget ───▶ clean
//! dirty      ── begin_writeback ─────────────▶ writing
//! writing    ── written_back ────────────────▶ clean
//! writing    ── put_back ────────────────────▶ dirty
//! writing    ── write, load ─────────────────▶ rewritten
//! rewritten  ── written_back, put_back ──────▶ dirty, with the newer data
//! ```
//!
//! # Invariants
//! - Dirty data and data under writeback consist of whole sectors. A reader sees dirty data first,
//!   then data under writeback, then the trees' data up to where the file is cut off.
//! - At most one writeback of a file is in progress. Its [`Writeback`] ends it, and can do so once.
//! - While a writeback is in progress, nothing is truncated or cut off: sectors only become dirty.
//! - The reserved space belongs to the dirty data. It goes with the data into a writeback, and
//!   comes back with it.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::dirty::DirtyData;
use crate::cache::reservation::DataReservation;
use crate::cache::slices::Slices;

/// The data of a file that the trees do not have. The module describes the states of each sector.
#[derive(Default)]
pub(crate) struct PageCache {
    dirty: DirtyData,
    /// Shared with the [`Writeback`] in progress.
    writing: Option<Arc<DirtyData>>,
    /// The trees' extents from there on are cut off, and go with the next writeback.
    cut: Option<u64>,
    /// Space for writing the dirty data back: for the data, and for the items that say where it is.
    reservation: Option<DataReservation>,
}

/// A writeback in progress. [`PageCache::written_back`] or [`PageCache::put_back`] ends it. If
/// neither does, because the transaction was aborted, the data stays readable.
#[must_use]
pub(crate) struct Writeback {
    data: Arc<DirtyData>,
    cut: Option<u64>,
    reservation: Option<DataReservation>,
}

impl PageCache {
    /// Whether the trees have all content of the file.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.writing.is_none() && self.cut.is_none()
    }

    /// Where the trees' extents are cut off.
    pub(crate) fn cut(&self) -> Option<u64> {
        self.cut
    }

    /// Whether all of `start..end` is dirty.
    pub(crate) fn is_dirty(&self, start: u64, end: u64) -> bool {
        self.dirty.covers(start, end)
    }

    /// Bytes of dirty data.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty.len_bytes()
    }

    /// Runs of dirty data, some of which may adjoin.
    pub(crate) fn run_count(&self) -> usize {
        self.dirty.run_count()
    }

    /// Bytes of data that the trees do not have.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.dirty.len_bytes() + self.writing.as_ref().map_or(0, |writing| writing.len_bytes())
    }

    /// Bytes of memory that this data takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let writing = self.writing.as_ref().map_or(0, |writing| writing.memory_bytes());
        self.dirty.memory_bytes() + writing
    }

    /// Whether all of `start..end` is dirty or under writeback.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        let Some(writing) = &self.writing else { return self.dirty.covers(start, end) };
        let mut at = start;
        while at < end {
            match self.dirty.covered_until(at).max(writing.covered_until(at)) {
                until if until > at => at = until,
                _ => return false,
            }
        }
        true
    }

    /// Copies cached data over `buf`, which has the content at `offset` on the devices.
    pub(crate) fn overlay(&self, offset: u64, buf: &mut [u8]) {
        if let Some(writing) = &self.writing {
            writing.overlay(offset, buf);
        }
        self.dirty.overlay(offset, buf);
    }

    /// The ranges of cached data, in order; no two touch.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let mut data = self.dirty.covered();
        data.extend(self.writing.iter().flat_map(|writing| writing.covered()));
        data.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in data {
            match merged.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// Inserts `data` at `offset`. The sectors that it covers only in part are dirty already.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], sectorsize: u64) {
        self.dirty.write_bytes(offset, data, sectorsize);
    }

    /// Takes over `data` as all content of a file that has none.
    pub(crate) fn adopt(&mut self, data: Vec<u8>, sectorsize: u64) {
        debug_assert!(self.is_clean());
        self.dirty = DirtyData::adopted(data, sectorsize);
    }

    /// Makes the sector at `start` dirty with the file's content, unless it is dirty: dirty data is
    /// newer.
    pub(crate) fn load(&mut self, start: u64, sector: &[u8]) {
        if !self.dirty.covers(start, start + sector.len() as u64) {
            self.dirty.write(start, sector);
        }
    }

    /// Drops dirty data from `end`, the start of a sector, on.
    pub(crate) fn truncate(&mut self, end: u64) {
        self.check_no_writeback();
        self.dirty.truncate(end);
    }

    /// Drops dirty data from `end`, the start of a sector, on, and notes that the trees' extents
    /// from there on go with the next writeback.
    pub(crate) fn cut_off(&mut self, end: u64) {
        self.truncate(end);
        self.cut = Some(self.cut.map_or(end, |earlier| earlier.min(end)));
    }

    /// Drops everything: the trees have it, or no thread will ask for it.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Adds space for writing the dirty data back.
    pub(crate) fn reserve(&mut self, more: DataReservation) {
        match &mut self.reservation {
            Some(reservation) => reservation.absorb(more),
            None => self.reservation = Some(more),
        }
    }

    /// The space for writing the dirty data back.
    pub(crate) fn reservation(&mut self) -> Option<&mut DataReservation> {
        self.reservation.as_mut()
    }

    /// Begins to write the dirty data back.
    pub(crate) fn begin_writeback(&mut self) -> Writeback {
        self.check_no_writeback();
        let data = Arc::new(std::mem::take(&mut self.dirty));
        self.writing = Some(data.clone());
        Writeback { data, cut: self.cut, reservation: self.reservation.take() }
    }

    /// Makes data dirty again after a failed writeback, except where newer data is.
    pub(crate) fn put_back(&mut self, writeback: Writeback) {
        self.writing = None;
        let Writeback { data, reservation, .. } = writeback;
        let older = Arc::into_inner(data).expect("the cache and the writeback alone share it");
        self.dirty.add_older(older);
        if let Some(reservation) = reservation {
            self.reserve(reservation);
        }
    }

    /// The trees have the data, and nothing after the cut. Gives the reserved space back.
    pub(crate) fn written_back(&mut self, writeback: Writeback) {
        debug_assert!(self.cut == writeback.cut, "nothing is cut off during a writeback");
        self.writing = None;
        self.cut = None;
        drop(writeback);
    }

    fn check_no_writeback(&self) {
        debug_assert!(self.writing.is_none(), "a writeback is in progress");
    }
}

impl Writeback {
    /// The data as contiguous ranges, each with its offset.
    pub(crate) fn ranges(&self) -> Vec<(u64, Slices<'_>)> {
        self.data.ranges()
    }

    /// Where the trees' extents are cut off.
    pub(crate) fn cut(&self) -> Option<u64> {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECTOR: u64 = 16;
    const SECTORS: usize = 48;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize),
        Load(usize),
        Truncate(usize),
        CutOff(usize),
        Forget,
        Begin,
        PutBack,
        WrittenBack,
    }

    fn step() -> impl Strategy<Value = Step> {
        let sector = 0..SECTORS;
        prop_oneof![
            8 => (sector.clone(), 1..12_usize).prop_map(|(start, len)| Step::Write(start, len)),
            4 => sector.clone().prop_map(Step::Load),
            1 => sector.clone().prop_map(Step::Truncate),
            1 => sector.prop_map(Step::CutOff),
            1 => Just(Step::Forget),
            6 => Just(Step::Begin),
            3 => Just(Step::PutBack),
            4 => Just(Step::WrittenBack),
        ]
    }

    /// The content of a sector in each of its possible places.
    #[derive(Clone, Copy, Default)]
    struct Sector {
        dirty: Option<u8>,
        writing: Option<u8>,
        tree: u8,
    }

    impl Sector {
        fn seen(self) -> u8 {
            self.dirty.or(self.writing).unwrap_or(self.tree)
        }

        fn is_held(self) -> bool {
            self.dirty.or(self.writing).is_some()
        }
    }

    fn bytes_of(sector: usize) -> Range<usize> {
        let start = sector * SECTOR as usize;
        start..start + SECTOR as usize
    }

    fn count(sectors: &[Sector], is_counted: impl Fn(&Sector) -> bool) -> u64 {
        SECTOR * sectors.iter().filter(|sector| is_counted(sector)).count() as u64
    }

    fn check(cache: &PageCache, sectors: &[Sector], cut: Option<usize>) {
        let mut seen: Vec<u8> =
            sectors.iter().flat_map(|sector| [sector.tree; SECTOR as usize]).collect();
        cache.overlay(0, &mut seen);
        for (at, sector) in sectors.iter().enumerate() {
            let (start, end) = (at as u64 * SECTOR, (at as u64 + 1) * SECTOR);
            assert_eq!(seen[bytes_of(at)], [sector.seen(); SECTOR as usize], "sector {at}");
            assert_eq!(cache.is_dirty(start, end), sector.dirty.is_some(), "sector {at}");
            assert_eq!(cache.holds(start, end), sector.is_held(), "sector {at}");
        }
        let held = |at: &usize| sectors[*at].is_held();
        let starts = (0..SECTORS).filter(|at| held(at) && (*at == 0 || !held(&(at - 1))));
        let starts: Vec<u64> = starts.map(|at| at as u64 * SECTOR).collect();
        let ranges = cache.ranges();
        assert_eq!(ranges.iter().map(|range| range.start).collect::<Vec<_>>(), starts);
        let held_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert_eq!(held_bytes, count(sectors, |sector| sector.is_held()));
        let dirty_bytes = count(sectors, |sector| sector.dirty.is_some());
        assert_eq!(cache.dirty_bytes(), dirty_bytes);
        let writing_bytes = count(sectors, |sector| sector.writing.is_some());
        assert_eq!(cache.unwritten_bytes(), dirty_bytes + writing_bytes);
        assert!(cache.memory_bytes() >= dirty_bytes + writing_bytes);
        assert_eq!(cache.cut(), cut.map(|cut| cut as u64 * SECTOR));
    }

    proptest! {
        /// Each step moves each sector as the diagram says.
        #[test]
        fn sectors_are_in_the_states_of_the_diagram(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let mut cache = PageCache::default();
            let mut sectors = [Sector::default(); SECTORS];
            let (mut cut, mut writeback) = (None, None);
            for (number, step) in (1_u8..).zip(steps) {
                match step {
                    Step::Write(start, len) => {
                        let end = (start + len).min(SECTORS);
                        let data = vec![number; (end - start) * SECTOR as usize];
                        cache.write(start as u64 * SECTOR, &data, SECTOR);
                        sectors[start..end].iter_mut().for_each(|it| it.dirty = Some(number));
                    }
                    Step::Load(at) => {
                        let sector = &mut sectors[at];
                        cache.load(at as u64 * SECTOR, &[sector.seen() | 0x80; SECTOR as usize]);
                        sector.dirty = sector.dirty.or(Some(sector.seen() | 0x80));
                    }
                    Step::Truncate(end) if writeback.is_none() => {
                        cache.truncate(end as u64 * SECTOR);
                        sectors[end..].iter_mut().for_each(|sector| sector.dirty = None);
                    }
                    Step::CutOff(end) if writeback.is_none() => {
                        cache.cut_off(end as u64 * SECTOR);
                        sectors[end..].iter_mut().for_each(|sector| sector.dirty = None);
                        cut = Some(cut.map_or(end, |earlier: usize| earlier.min(end)));
                    }
                    Step::Forget if writeback.is_none() => {
                        cache.forget();
                        for sector in &mut sectors {
                            sector.dirty = None;
                        }
                        cut = None;
                    }
                    Step::Begin if writeback.is_none() => {
                        let begun = cache.begin_writeback();
                        prop_assert_eq!(begun.cut(), cache.cut());
                        for sector in &mut sectors {
                            sector.writing = sector.dirty.take();
                        }
                        for (start, data) in begun.ranges() {
                            let data = data.joined();
                            for (at, byte) in (start as usize..).zip(data.iter()) {
                                let written = sectors[at / SECTOR as usize].writing;
                                prop_assert_eq!(written, Some(*byte));
                            }
                        }
                        writeback = Some(begun);
                    }
                    Step::PutBack => {
                        let Some(writeback) = writeback.take() else { continue };
                        cache.put_back(writeback);
                        for sector in &mut sectors {
                            sector.dirty = sector.dirty.or(sector.writing.take());
                            sector.writing = None;
                        }
                    }
                    Step::WrittenBack => {
                        let Some(writeback) = writeback.take() else { continue };
                        cache.written_back(writeback);
                        cut = None;
                        for sector in &mut sectors {
                            sector.tree = sector.writing.take().unwrap_or(sector.tree);
                        }
                    }
                    Step::Truncate(_) | Step::CutOff(_) | Step::Forget | Step::Begin => {}
                }
                check(&cache, &sectors, cut);
                let is_clean = writeback.is_none()
                    && cut.is_none()
                    && sectors.iter().all(|sector| !sector.is_held());
                prop_assert_eq!(cache.is_clean(), is_clean);
            }
        }
    }

    #[test]
    #[should_panic(expected = "a writeback is in progress")]
    fn a_second_writeback_does_not_begin() {
        let mut cache = PageCache::default();
        let _first = cache.begin_writeback();
        let _second = cache.begin_writeback();
    }

    #[test]
    #[should_panic(expected = "a writeback is in progress")]
    fn nothing_is_cut_off_during_a_writeback() {
        let mut cache = PageCache::default();
        let _writeback = cache.begin_writeback();
        cache.cut_off(0);
    }
}
