//! Steps that change a file's data in other ways than writing.

use larder::{AllocateMode, ErrorKind, File, Inode, Subvolume};
use rand::RngExt;

use super::model::{MOST_BYTES, Outcome, Player};

const SECTOR: u64 = 4096;

impl Player {
    /// Allocates, zeroes, shares, copies.
    pub(super) fn data_step(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        match self.random.random_range(0..5) {
            0 => self.allocate(root, id, path),
            1 | 2 => self.clone_range(root, id, path),
            3 => self.copy(root, id, path),
            _ => self.dedupe(root, id, path),
        }
    }

    fn allocate(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        let offset = self.random.random_range(0..MOST_BYTES / 2);
        let len = self.random.random_range(1..80_000);
        let keeps_size = self.random.random();
        let mode = if keeps_size { AllocateMode::KeepSize } else { AllocateMode::Grow };
        let is_zeroed: bool = self.random.random();
        let expected = self.model.file(id).map(|file| {
            let end = (offset + len) as usize;
            if !keeps_size {
                file.resize(file.len().max(end), 0);
            }
            let zeroed = (offset as usize).min(file.len())..end.min(file.len());
            if is_zeroed {
                file[zeroed].fill(0);
            }
        });
        let seen = open(root, path).and_then(|file| {
            if is_zeroed {
                file.zero_range(offset, len, mode)
            } else {
                file.allocate(offset, len, mode)
            }
        });
        (expected, seen)
    }

    /// Shares a range of another file, or of the same.
    fn clone_range(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        let (from_path, is_in_place, data) = self.source();
        let sectors = data.as_ref().map_or(0, |data| data.len() as u64 / SECTOR);
        let from = self.random.random_range(0..=sectors) * SECTOR;
        let to = self.random.random_range(0..MOST_BYTES / 2 / SECTOR) * SECTOR;
        let is_whole = self.random.random();
        let len = if is_whole { 0 } else { self.random.random_range(1..=20) * SECTOR };
        let expected = data.and_then(|data| {
            let is_alike = self.model.peek(id)?.1 == is_in_place;
            let file = self.model.file(id)?;
            let is_same = from_path == path;
            if !is_alike {
                return Err(ErrorKind::InvalidInput);
            }
            clone(file, &data, is_same, (from, len, to)).ok_or(ErrorKind::InvalidInput)
        });
        let seen = open(root, &from_path)
            .and_then(|source| open(root, path)?.clone_range(&source, from, len, to));
        (expected, seen)
    }

    fn copy(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        let (from_path, _, data) = self.source();
        let from = self.random.random_range(0..MOST_BYTES / 6);
        // Often with the same alignment.
        let shift =
            self.random.random_range(0..10) * if self.random.random() { SECTOR } else { 777 };
        let (to, len) = (from + shift, self.random.random_range(1..60_000));
        let is_same = from_path == path;
        let mut copied = 0;
        let expected = data.and_then(|data| {
            let file = self.model.file(id)?;
            let end = data.len().min((from + len) as usize);
            copied = end.saturating_sub(from as usize) as u64;
            if is_same && shift < copied {
                return Err(ErrorKind::InvalidInput);
            }
            if copied > 0 {
                file.resize(file.len().max((to + copied) as usize), 0);
                file[to as usize..][..copied as usize].copy_from_slice(&data[from as usize..end]);
            }
            Ok(())
        });
        let seen = open(root, &from_path).and_then(|source| {
            let done = open(root, path)?.copy_range(&source, from, len, to)?;
            assert_eq!(done, copied);
            Ok(())
        });
        (expected, seen)
    }

    /// Deduplicates two ranges, which shares them only if they are equal. The content stays the
    /// same.
    fn dedupe(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        let (from_path, is_in_place, data) = self.source();
        let at = self.random.random_range(0..4) * SECTOR;
        let (mut len, mut equal) = (0, None);
        let expected = data.and_then(|data| {
            let (file, its) = self.model.peek(id)?;
            len = (data.len().min(file.len()) as u64).saturating_sub(at);
            if from_path == path || len == 0 {
                len = 0;
                return Ok(());
            }
            if its != is_in_place {
                return Err(ErrorKind::InvalidInput);
            }
            let len_bytes = len - if data.len() == file.len() { 0 } else { len % SECTOR };
            let range = at as usize..(at + len_bytes) as usize;
            equal = (data[range.clone()] == file[range]).then_some(len_bytes);
            Ok(())
        });
        let seen = open(root, &from_path).and_then(|source| {
            let file = open(root, path)?;
            if len > 0 {
                let seen = file.dedupe_range(&source, at, len, at)?;
                assert_eq!(seen, equal, "{from_path} {path}");
            }
            Ok(())
        });
        (expected, seen)
    }

    /// A random path and, if a file is there, its data and whether it is overwritten in place.
    fn source(&mut self) -> (String, bool, Result<Vec<u8>, ErrorKind>) {
        let (directory, path, name) = self.place();
        let id = self.model.find(directory, &name);
        match self.model.peek(id) {
            Ok((data, is_in_place)) => (path, is_in_place, Ok(data.clone())),
            Err(kind) => (path, false, Err(kind)),
        }
    }
}

fn open(root: &Subvolume, path: &str) -> larder::Result<File> {
    root.lookup(path).and_then(Inode::into_file)
}

/// Does to `file` what sharing does, if the rules allow it.
fn clone(
    file: &mut Vec<u8>,
    data: &[u8],
    is_same: bool,
    (from, len, to): (u64, u64, u64),
) -> Option<()> {
    let size = data.len() as u64;
    let len = if len == 0 { size.checked_sub(from)? } else { len };
    if from + len > size {
        return None;
    }
    let ends_both = from + len == size && to + len >= file.len() as u64;
    if !len.is_multiple_of(SECTOR) && !ends_both {
        return None;
    }
    if is_same && from.abs_diff(to) < len.next_multiple_of(SECTOR) {
        return None;
    }
    if len > 0 {
        file.resize(file.len().max((to + len) as usize), 0);
        file[to as usize..][..len as usize].copy_from_slice(&data[from as usize..][..len as usize]);
    }
    Some(())
}
