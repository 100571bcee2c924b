//! The checksums of a range of data, from the checksum tree.

use larder_btree::Readahead;
use larder_format::item::csum_count;
use larder_format::{ItemType, Key, Logical, objectid};

use crate::core::shared::Core;
use crate::error::{DataError, Error, Result};

impl Core {
    /// The checksums of the sectors from `start` to `end`, one after the other.
    pub(crate) fn checksums(&self, start: Logical, end: Logical) -> Result<Vec<u8>, DataError> {
        match (self.walk_checksums(start, end), self.try_writer()) {
            // A thread may be editing the item, because data beside this one goes or comes.
            (Err(DataError::MissingChecksum(_)), Some(writer)) => {
                writer.manager.with_still_checksums(|| self.walk_checksums(start, end))
            }
            (walked, _) => walked,
        }
    }

    /// The same, found in one walk.
    fn walk_checksums(&self, start: Logical, end: Logical) -> Result<Vec<u8>, DataError> {
        let unreadable = |error: Error| DataError::Checksums(error);
        let (sectorsize, csum_size) = (self.sectorsize(), self.volume().checksum_type().size());
        let wanted_len = ((end.0 - start.0) / sectorsize) as usize * csum_size;
        let mut checksums = Vec::with_capacity(wanted_len);
        let mut cursor = self.csum_tree().map_err(unreadable)?.cursor(Readahead::Forward);
        // The item that covers the start is the last whose key is not after it.
        cursor.seek_last(csum_key(start)).map_err(|error| unreadable(error.into()))?;
        while checksums.len() < wanted_len {
            let at = Logical(start.0 + (checksums.len() / csum_size) as u64 * sectorsize);
            let covering = match cursor.item() {
                Some((key, bytes)) => self.checksums_from(at, key, bytes).map_err(unreadable)?,
                None => &[],
            };
            if covering.is_empty() {
                return Err(DataError::MissingChecksum(at));
            }
            let missing_len = wanted_len - checksums.len();
            checksums.extend_from_slice(&covering[..missing_len.min(covering.len())]);
            if checksums.len() < wanted_len {
                cursor.next().map_err(|error| unreadable(error.into()))?;
            }
        }
        Ok(checksums)
    }

    /// Whether data is read all the same if its checksums have this problem.
    pub(crate) fn goes_without_checksums(&self, problem: &DataError) -> bool {
        let rescue = self.volume().rescue();
        match problem {
            DataError::MissingChecksum(_) => rescue.ignore_data_checksums,
            DataError::Checksums(_) => rescue.ignore_data_checksums || rescue.ignore_bad_roots,
            _ => false,
        }
    }

    /// The checksums of an item from that of the sector at `at` on: none if it covers only others.
    fn checksums_from<'a>(&self, at: Logical, key: Key, bytes: &'a [u8]) -> Result<&'a [u8]> {
        if (key.objectid, key.item_type) != (objectid::EXTENT_CSUM, ItemType::EXTENT_CSUM)
            || key.offset > at.0
        {
            return Ok(&[]);
        }
        let kind = self.volume().checksum_type();
        csum_count(bytes.len(), kind)
            .map_err(|problem| Error::item(objectid::CSUM_TREE, key, problem))?;
        let skipped = (at.0 - key.offset) / self.sectorsize();
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).saturating_mul(kind.size());
        Ok(bytes.get(skipped..).unwrap_or(&[]))
    }
}

fn csum_key(logical: Logical) -> Key {
    Key::new(objectid::EXTENT_CSUM, ItemType::EXTENT_CSUM, logical.0)
}
