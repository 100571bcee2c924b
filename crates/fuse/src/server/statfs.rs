//! Free and used space.

use zerocopy::FromZeros;

use super::call::{Outcome, failed};
use super::state::Server;
use crate::protocol::Reply;
use crate::protocol::abi::StatfsOut;

const NAME_MAX: u32 = 255;

pub(super) fn statfs(server: &Server, reply: &mut Reply<'_>) -> Outcome {
    let capacity = server.filesystem.capacity().map_err(failed)?;
    let sector_bytes = server.filesystem.sector_bytes();
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
