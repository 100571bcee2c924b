//! How much room there is.

use zerocopy::FromZeros;

use super::{Outcome, Server, failed};
use crate::protocol::Reply;
use crate::protocol::abi::StatfsOut;

const NAME_MAX: u32 = 255;

impl Server {
    pub(super) fn statfs(&self, reply: &mut Reply<'_>) -> Outcome {
        let capacity = self.filesystem.capacity().map_err(failed)?;
        let sector_bytes = self.filesystem.sector_bytes();
        let blocks = |bytes: u64| bytes / u64::from(sector_bytes);
        reply.put(&StatfsOut {
            blocks: blocks(capacity.total_bytes),
            bfree: blocks(capacity.free_bytes),
            bavail: blocks(capacity.available_bytes),
            bsize: sector_bytes,
            frsize: sector_bytes,
            namelen: NAME_MAX,
            ..StatfsOut::new_zeroed()
        })
    }
}
