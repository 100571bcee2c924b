//! Sorting more than fits into memory: sorted runs in a temporary file, and their merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use larder_filesystem::{Error, Result};
use larder_platform::FileExt;
use larder_platform::errno::in_words;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Memory for records that are not in the file.
pub(crate) const BUFFER_BYTES: usize = 64 << 20;
/// Bytes of each run that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Takes records in any order.
pub(crate) struct Sorter<T> {
    buffer: Vec<T>,
    /// Records in a run.
    most: usize,
    file: Option<File>,
    runs: Vec<Range<u64>>,
}

/// Gives them in order.
pub(crate) struct Sorted<T> {
    runs: Vec<Run<T>>,
    /// The next record of each run, and which run that is.
    next: BinaryHeap<Reverse<(T, usize)>>,
    file: Option<File>,
    len: u64,
}

struct Run<T> {
    /// Bytes of the file that are not read yet.
    rest: Range<u64>,
    buffer: std::vec::IntoIter<T>,
    of: PhantomData<T>,
}

impl<T: Ord + Copy + FromBytes + IntoBytes + Immutable + KnownLayout> Sorter<T> {
    pub(crate) fn new(buffer_bytes: usize) -> Self {
        let most = (buffer_bytes / size_of::<T>()).max(1);
        Self { buffer: Vec::new(), most, file: None, runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, record: T) -> Result<()> {
        if self.buffer.len() == self.most {
            self.spill().map_err(Error::Temporary)?;
        }
        self.buffer.push(record);
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        self.buffer.sort_unstable();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(temporary_file()?),
        };
        let bytes = self.buffer.as_bytes();
        file.write_all(bytes)?;
        let start = self.runs.last().map_or(0, |run| run.end);
        self.runs.push(start..start + bytes.len() as u64);
        self.buffer.clear();
        Ok(())
    }

    pub(crate) fn sorted(mut self) -> Result<Sorted<T>> {
        self.buffer.sort_unstable();
        let spilled: u64 = self.runs.iter().map(|run| run.end - run.start).sum();
        let len = spilled / size_of::<T>() as u64 + self.buffer.len() as u64;
        let in_file = self.runs.into_iter().map(|rest| (rest, Vec::new()));
        let all = in_file.chain([(0..0, self.buffer)]);
        let runs =
            all.map(|(rest, buffer)| Run { rest, buffer: buffer.into_iter(), of: PhantomData });
        let runs: Vec<Run<T>> = runs.collect();
        let count = runs.len();
        let mut sorted = Sorted { runs, next: BinaryHeap::new(), file: self.file, len };
        for run in 0..count {
            sorted.refill(run).map_err(Error::Temporary)?;
        }
        Ok(sorted)
    }
}

impl<T: Ord + Copy + FromBytes + IntoBytes + Immutable + KnownLayout> Sorted<T> {
    /// How many records there were at first.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn next(&mut self) -> Result<Option<T>> {
        let Some(Reverse((record, run))) = self.next.pop() else { return Ok(None) };
        self.refill(run).map_err(Error::Temporary)?;
        Ok(Some(record))
    }

    /// Takes the next record of a run.
    fn refill(&mut self, number: usize) -> io::Result<()> {
        let run = &mut self.runs[number];
        if let Some(file) = &self.file
            && run.buffer.len() == 0
            && !run.rest.is_empty()
        {
            let most = READ_BYTES / size_of::<T>() * size_of::<T>();
            let len = (run.rest.end - run.rest.start).min(most as u64) as usize;
            let mut records = vec![T::new_zeroed(); len / size_of::<T>()];
            file.read_exact_at(records.as_mut_bytes(), run.rest.start)?;
            run.rest.start += len as u64;
            run.buffer = records.into_iter();
        }
        self.next.extend(run.buffer.next().map(|record| Reverse((record, number))));
        Ok(())
    }
}

/// A file without a name. `/tmp` is memory on many systems.
pub(crate) fn temporary_file() -> io::Result<File> {
    let chosen = env::var_os("TMPDIR").map(PathBuf::from);
    let directory = chosen.unwrap_or_else(|| {
        let large = Path::new("/var/tmp");
        if large.is_dir() { large.into() } else { env::temp_dir() }
    });
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {}", directory.display(), in_words(&error)))
    };
    tempfile::tempfile_in(&directory).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_in_the_file_and_in_memory_are_merged() {
        for most in [1, 7, 100, 1000] {
            let mut sorter = Sorter::new(most * size_of::<u64>());
            let numbers = (0..300_u64).map(|number| number * 7919 % 101);
            numbers.clone().for_each(|number| sorter.push(number).expect("there is space"));
            let mut sorted = sorter.sorted().expect("it reads back");
            assert_eq!(sorted.len(), 300);
            let mut expected: Vec<u64> = numbers.collect();
            expected.sort_unstable();
            let found = std::iter::from_fn(|| sorted.next().expect("it reads back"));
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}
