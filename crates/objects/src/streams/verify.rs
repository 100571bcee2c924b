//! Whether all that the catalogue promises is there.

use std::sync::Arc;

use super::Pace;
use super::catalogue::{Stream, StreamId};
use super::in_order::InOrder;
use super::part::Index;
use crate::error::ObjectsError;
use crate::store::{Problem, Store};

/// Something that keeps a stream from being received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The stream.
    pub stream: StreamId,
    /// What is wrong, with the name of the object.
    pub problem: String,
}

/// Reads all parts of `streams` and compares them with their checksums. `tell` gets the bytes that
/// were read, and those that there are.
///
/// # Errors
/// Those of a store that cannot be read. What is missing or damaged is a finding.
pub fn verify(
    store: &Arc<dyn Store>,
    streams: &[&Stream],
    pace: Pace,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Finding>, ObjectsError> {
    let total = streams.iter().map(|stream| stream.len_bytes).sum();
    let mut verifying = Verifying { findings: Vec::new(), done: 0, total, tell };
    let mut on_their_way = InOrder::new(pace.at_once);
    for stream in streams {
        let index = match Index::fetch(&**store, stream) {
            Ok(index) => index,
            Err(error) => {
                verifying.note(stream.id, stream.len_bytes, Err(error))?;
                continue;
            }
        };
        for (part, len_bytes) in index.parts(stream) {
            if on_their_way.is_full() {
                verifying.note_next(&mut on_their_way)?;
            }
            let store = Arc::clone(store);
            on_their_way
                .begin(move || (part.stream, len_bytes, part.fetch(&*store, len_bytes).map(drop)));
        }
    }
    while verifying.note_next(&mut on_their_way)? {}
    Ok(verifying.findings)
}

/// The stream, the bytes and the state of a part or an index.
type Seen = (StreamId, u64, Result<(), ObjectsError>);

struct Verifying<'a> {
    findings: Vec<Finding>,
    done: u64,
    total: u64,
    tell: &'a mut dyn FnMut(u64, u64),
}

impl Verifying<'_> {
    /// Notes the next result. Returns whether there was one.
    fn note_next(&mut self, on_their_way: &mut InOrder<Seen>) -> Result<bool, ObjectsError> {
        let Some((stream, len_bytes, result)) = on_their_way.next() else { return Ok(false) };
        self.note(stream, len_bytes, result)?;
        Ok(true)
    }

    fn note(
        &mut self,
        stream: StreamId,
        len_bytes: u64,
        result: Result<(), ObjectsError>,
    ) -> Result<(), ObjectsError> {
        self.done += len_bytes;
        (self.tell)(self.done, self.total);
        let Err(error) = result else { return Ok(()) };
        let is_finding = match &error {
            ObjectsError::Damaged { .. } => true,
            ObjectsError::Store(error) => error.problem == Problem::NotFound,
            _ => false,
        };
        if !is_finding {
            return Err(error);
        }
        self.findings.push(Finding { stream, problem: error.to_string() });
        Ok(())
    }
}
