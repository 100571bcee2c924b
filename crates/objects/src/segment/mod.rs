//! Segments: immutable objects with content of the device, cut into [pieces].
//!
//! ```text
//!   content | table: id, deltas; its checksum | its length 4 | magic 4
//! ```

mod deltas;
mod open;
pub(crate) mod pieces;

use bytes::Bytes;

use crate::codec::{Decoder, Encoder, Malformed};
use crate::error::ObjectsError;
use crate::fetch::fetch;
use crate::flush;
use crate::id::{Kind, ObjectId};
use crate::map::Delta;
use crate::store::Store;

pub(crate) use deltas::Deltas;
pub(crate) use open::{Closed, OpenSegment};

const MAGIC: [u8; 4] = *b"LrS3";

/// The length of the table at a segment's end that is read along with the footer. A larger one
/// costs another request.
const LIKELY_TABLE_BYTES: u64 = 16 << 10;

const FOOTER_BYTES: u64 = 8;

/// A segment as it goes to the store. It takes no more memory than it has bytes, nearly: it may
/// stay in the cache for long.
pub(crate) fn seal(id: ObjectId, mut content: Vec<u8>, deltas: &[Delta]) -> Bytes {
    let mut table = Encoder::default();
    table.number(id.raw());
    Delta::encode(deltas, &mut table);
    let table = table.sealed();
    content.extend(&table);
    content.extend((table.len() as u32).to_le_bytes());
    content.extend(MAGIC);
    pieces::cut(id, &mut content);
    if content.len() < content.capacity() / 8 * 7 {
        return Bytes::copy_from_slice(&content);
    }
    content.into()
}

/// Reads what the segment or flush `id` changed.
pub(crate) fn read_deltas(
    store: &dyn Store,
    id: ObjectId,
    len_bytes: u64,
) -> Result<Vec<Delta>, ObjectsError> {
    if id.kind() == Kind::Flush {
        return Ok(flush::read(store, id)?.deltas);
    }
    let name = Kind::Segment.name(id);
    let held_bytes = pieces::held_bytes(len_bytes);
    let mut likely = LIKELY_TABLE_BYTES + FOOTER_BYTES;
    loop {
        let from = held_bytes.saturating_sub(likely);
        let place = pieces::place_of(from);
        let found = fetch(store, &name, place..len_bytes, |bytes| {
            let end = pieces::held_from(place, bytes);
            let table_bytes = table_bytes(&end)?;
            let wanted = table_bytes + FOOTER_BYTES;
            if wanted > end.len() as u64 {
                let is_possible = wanted <= held_bytes;
                return if is_possible { Ok(Err(wanted)) } else { Err(TOO_LONG) };
            }
            let table_end = end.len() - FOOTER_BYTES as usize;
            Ok(Ok(decode(&end[table_end - table_bytes as usize..table_end], id)?))
        })?;
        match found {
            Ok(deltas) => return Ok(deltas),
            Err(wanted) => likely = wanted,
        }
    }
}

const TOO_LONG: Malformed = Malformed("its table is too long");

/// Reads all of the segment or flush `id`, and compares it with its checksums.
pub(crate) fn verify(store: &dyn Store, id: ObjectId, len_bytes: u64) -> Result<(), ObjectsError> {
    if id.kind() == Kind::Flush {
        return flush::read(store, id).map(drop);
    }
    fetch(store, &Kind::Segment.name(id), 0..len_bytes, |object| {
        if object.len() as u64 != len_bytes {
            return Err(Malformed("its length is wrong"));
        }
        for piece in pieces::checked(id, 0, object) {
            piece?;
        }
        let held_bytes = pieces::held_bytes(len_bytes);
        let from = pieces::place_of(held_bytes.saturating_sub(FOOTER_BYTES));
        let table_bytes = table_bytes(&pieces::held_from(from, &object[from as usize..]))?;
        let start = held_bytes.checked_sub(FOOTER_BYTES + table_bytes).ok_or(TOO_LONG)?;
        let place = pieces::place_of(start);
        let end = pieces::held_from(place, &object[place as usize..]);
        decode(&end[..table_bytes as usize], id).map(drop)
    })
}

fn table_bytes(end: &[u8]) -> Result<u64, Malformed> {
    let (rest, magic) = end.split_last_chunk::<4>().ok_or(Malformed("it is cut off"))?;
    let (_, len) = rest.split_last_chunk::<4>().ok_or(Malformed("it is cut off"))?;
    if *magic != MAGIC {
        return Err(Malformed("it is no segment of this version of larder, or is cut off"));
    }
    Ok(u64::from(u32::from_le_bytes(*len)))
}

fn decode(table: &[u8], id: ObjectId) -> Result<Vec<Delta>, Malformed> {
    let mut from = Decoder::unsealed(table)?;
    if from.number()? != id.raw() {
        return Err(Malformed("it is another segment"));
    }
    let deltas = Delta::decode(&mut from)?;
    from.end()?;
    Ok(deltas)
}
