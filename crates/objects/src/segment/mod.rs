//! Segments: immutable objects with content of the device.
//!
//! ```text
//!   content | table: id, checksum of the content, deltas; its checksum | its length 4 | magic 4
//! ```

mod deltas;
mod open;

use bytes::Bytes;
use crc_fast::crc32_iscsi;

use crate::codec::{Decoder, Encoder, Malformed};
use crate::error::ObjectsError;
use crate::id::{Kind, ObjectId};
use crate::map::Delta;
use crate::store::Store;

pub(crate) use deltas::Deltas;
pub(crate) use open::{Closed, OpenSegment};

const MAGIC: [u8; 4] = *b"LrSg";

/// The length of the table at a segment's end that is read along with the footer. A larger one
/// costs another request.
const LIKELY_TABLE_BYTES: u64 = 16 << 10;

const FOOTER_BYTES: u64 = 8;

/// A segment as it goes to the store. It takes no more memory than it has bytes, nearly: it may
/// stay in the cache for long.
pub(crate) fn seal(id: ObjectId, mut content: Vec<u8>, deltas: &[Delta]) -> Bytes {
    let mut table = Encoder::default();
    table.number(id.raw());
    table.number(u64::from(crc32_iscsi(&content)));
    Delta::encode(deltas, &mut table);
    let table = table.sealed();
    content.extend(&table);
    content.extend((table.len() as u32).to_le_bytes());
    content.extend(MAGIC);
    if content.len() < content.capacity() / 8 * 7 {
        return Bytes::copy_from_slice(&content);
    }
    content.into()
}

/// Reads what the segment `id` changed, from its end.
pub(crate) fn read_deltas(
    store: &dyn Store,
    id: ObjectId,
    len_bytes: u64,
) -> Result<Vec<Delta>, ObjectsError> {
    let name = Kind::Segment.name(id);
    let damaged = |why: Malformed| ObjectsError::damaged(store, &name, &why);
    let from = len_bytes.saturating_sub(LIKELY_TABLE_BYTES + FOOTER_BYTES);
    let end = store.get(&name, from..len_bytes)?;
    let table_bytes = table_bytes(&end).map_err(damaged)?;
    let table_end = len_bytes - FOOTER_BYTES;
    let start = table_end.checked_sub(table_bytes).ok_or(Malformed("its table is too long"));
    let start = start.map_err(damaged)?;
    let table = if start >= from {
        end.slice((start - from) as usize..(table_end - from) as usize)
    } else {
        store.get(&name, start..table_end)?
    };
    Ok(decode(&table, id).map_err(damaged)?.0)
}

/// Reads all of the segment `id`, and compares it with its checksums.
pub(crate) fn verify(store: &dyn Store, id: ObjectId, len_bytes: u64) -> Result<(), ObjectsError> {
    let name = Kind::Segment.name(id);
    let object = store.get(&name, 0..len_bytes)?;
    let checked = || {
        if object.len() as u64 != len_bytes {
            return Err(Malformed("its length is wrong"));
        }
        let table_end = object.len().checked_sub(FOOTER_BYTES as usize);
        let table_bytes = table_bytes(&object)? as usize;
        let start = table_end.and_then(|end| end.checked_sub(table_bytes));
        let (Some(start), Some(end)) = (start, table_end) else {
            return Err(Malformed("its table is too long"));
        };
        let (_, checksum) = decode(&object[start..end], id)?;
        if crc32_iscsi(&object[..start]) != checksum {
            return Err(Malformed("the checksum of its content is wrong"));
        }
        Ok(())
    };
    checked().map_err(|why| ObjectsError::damaged(store, &name, &why))
}

fn table_bytes(end: &[u8]) -> Result<u64, Malformed> {
    let (rest, magic) = end.split_last_chunk::<4>().ok_or(Malformed("it is cut off"))?;
    let (_, len) = rest.split_last_chunk::<4>().ok_or(Malformed("it is cut off"))?;
    if *magic != MAGIC {
        return Err(Malformed("it is no segment of larder, or is cut off"));
    }
    Ok(u64::from(u32::from_le_bytes(*len)))
}

/// The deltas, and the checksum of the content.
fn decode(table: &[u8], id: ObjectId) -> Result<(Vec<Delta>, u32), Malformed> {
    let mut from = Decoder::unsealed(table)?;
    if from.number()? != id.raw() {
        return Err(Malformed("it is another segment"));
    }
    let checksum = from.small()?;
    let deltas = Delta::decode(&mut from)?;
    from.end()?;
    Ok((deltas, checksum))
}
