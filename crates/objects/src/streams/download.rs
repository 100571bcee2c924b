//! Reading a stream from a store.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::Pace;
use super::catalogue::Stream;
use super::in_order::InOrder;
use super::part::{Index, Part};
use crate::error::ObjectsError;
use crate::store::Store;

/// A stream in a store, as a [`Read`]. Threads fetch parts ahead of the reader.
pub struct Download {
    store: Arc<dyn Store>,
    /// The parts that no thread fetches yet.
    rest: Box<dyn Iterator<Item = (Part, u64)> + Send>,
    /// Bytes to leave out at the start of the first part.
    skipped: u64,
    on_their_way: InOrder<Result<Bytes, ObjectsError>>,
    /// What is left of the part that is being read.
    open: Bytes,
}

impl Download {
    /// Begins to read `stream` at byte `from`.
    ///
    /// # Errors
    /// [`ObjectsError::Damaged`], and those of the store.
    pub fn begin(
        store: Arc<dyn Store>,
        stream: &Stream,
        from: u64,
        pace: Pace,
    ) -> Result<Self, ObjectsError> {
        let parts: Vec<_> = Index::fetch(&*store, stream)?.parts(stream).collect();
        let (first, skipped) = (from / stream.part_bytes, from % stream.part_bytes);
        let rest = Box::new(parts.into_iter().skip(usize::try_from(first).unwrap_or(usize::MAX)));
        let on_their_way = InOrder::new(pace.at_once);
        Ok(Self { store, rest, skipped, on_their_way, open: Bytes::new() })
    }

    fn fetch_ahead(&mut self) {
        while !self.on_their_way.is_full()
            && let Some((part, len_bytes)) = self.rest.next()
        {
            let store = Arc::clone(&self.store);
            self.on_their_way.begin(move || part.fetch(&*store, len_bytes));
        }
    }
}

impl Read for Download {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.open.is_empty() {
            self.fetch_ahead();
            match self.on_their_way.next() {
                Some(part) => {
                    self.open = part?;
                    let skipped = std::mem::take(&mut self.skipped).min(self.open.len() as u64);
                    self.open.advance(skipped as usize);
                }
                None => return Ok(0),
            }
        }
        let len = self.open.len().min(into.len());
        self.open.copy_to_slice(&mut into[..len]);
        Ok(len)
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("store", &self.store).finish_non_exhaustive()
    }
}
