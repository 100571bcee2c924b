//! Agreeing with the kernel on a protocol.

use rustix::io::Errno;
use rustix::param::page_size;
use zerocopy::FromZeros;

use super::call::{Call, Outcome};
use crate::options::{AccessTimes, ServerOptions};
use crate::protocol::Reply;
use crate::protocol::abi::{
    InitFlags, InitIn, InitOut, MINOR_VERSION, OLDEST_MINOR_VERSION, VERSION,
};
use crate::transport::id_maps;

/// The features that the server uses.
const WANTED: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::EXPORT_SUPPORT)
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::DONT_MASK)
    .union(InitFlags::DO_READDIRPLUS)
    .union(InitFlags::ASYNC_DIO)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::POSIX_ACL)
    .union(InitFlags::ABORT_ERROR)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::CACHE_SYMLINKS)
    .union(InitFlags::NO_OPENDIR_SUPPORT)
    .union(InitFlags::EXPLICIT_INVAL_DATA)
    .union(InitFlags::HANDLE_KILLPRIV_V2)
    .union(InitFlags::SETXATTR_EXT)
    .union(InitFlags::INIT_EXT);
/// Requests that the kernel may have on the way without a waiting program: readahead, writeback.
const MOST_BACKGROUND: u16 = 64;

/// Features that let the kernel serve reads without a request.
const UNSEEN_READS: InitFlags = InitFlags::NO_OPENDIR_SUPPORT.union(InitFlags::CACHE_SYMLINKS);

/// Answers INIT: `options` decide what the kernel may cache, and what it must ask. The transport
/// may add features.
pub(super) fn agree(
    init: &InitIn,
    options: &ServerOptions,
    call: &Call<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    let answer = InitOut { major: VERSION, minor: MINOR_VERSION, ..InitOut::new_zeroed() };
    if init.major > VERSION {
        // The kernel then asks again in this version.
        return reply.put(&answer);
    }
    if init.major < VERSION || init.minor < OLDEST_MINOR_VERSION {
        return Err(Errno::PROTO);
    }
    let offered = u64::from(init.flags) | u64::from(init.flags2) << 32;
    let mut wanted = WANTED;
    let sees_all_reads = options.access_times != AccessTimes::Never || options.follow.is_some();
    wanted.set(UNSEEN_READS, !sees_all_reads);
    wanted.set(InitFlags::WRITEBACK_CACHE, options.writeback_cache);
    // Then the kernel names no caller in most requests.
    wanted.set(InitFlags::ALLOW_IDMAP, id_maps::can_be_seen());
    if !tells_of_direct_writes(call) {
        wanted -= InitFlags::ASYNC_DIO;
    }
    let most_io_bytes = options.most_io_bytes;
    let flags = InitFlags::from_bits_retain(offered) & (wanted | call.kernel.features());
    reply.put(&InitOut {
        // The kernel takes the minimum of this and the mount's setting.
        max_readahead: most_io_bytes as u32,
        flags: flags.bits() as u32,
        flags2: (flags.bits() >> 32) as u32,
        max_background: MOST_BACKGROUND,
        congestion_threshold: MOST_BACKGROUND / 4 * 3,
        max_write: most_io_bytes as u32,
        time_gran: 1,
        max_pages: (most_io_bytes / page_size()) as u16,
        ..answer
    })
}

/// Whether to tell the kernel to drop what a direct write replaced, which it does not do itself
/// after an asynchronous one. Over rings such writes are synchronous, since the serving thread may
/// have to answer before it can tell the kernel.
pub(super) fn tells_of_direct_writes(call: &Call<'_>) -> bool {
    !call.kernel.features().contains(InitFlags::OVER_IO_URING)
}
