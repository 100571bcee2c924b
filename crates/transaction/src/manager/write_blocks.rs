//! Writing the blocks of a commit or a log.

use larder_btree::WriteSet;
use larder_format::Logical;
use larder_volume::Volume;

use crate::error::Result;

/// Adjacent blocks are written together, up to so many bytes.
const RUN_BYTES: usize = 1 << 20;

/// Seals the blocks of a set, and writes them.
pub(crate) fn write_blocks(volume: &Volume, blocks: &WriteSet) -> Result<()> {
    let checksum = volume.checksum_type();
    let mut run: Vec<u8> = Vec::new();
    let mut start = Logical(0);
    for (index, logical) in blocks.addresses().enumerate() {
        let continues = logical.0 == start.0 + run.len() as u64 && run.len() < RUN_BYTES;
        if !continues {
            volume.write(start, &run)?;
            run.clear();
            start = logical;
        }
        run.extend_from_slice(blocks.seal(index, checksum)?.bytes());
    }
    Ok(volume.write(start, &run)?)
}
