//! Snapshots as streams: the format of `btrfs send` and `btrfs receive`, sending and receiving.
//!
//! - [`Reader`] and [`Writer`]: a stream as [`Command`]s, of every [`Version`].
//! - [`LocalChanges`] and [`encode_local`]: changes that processes of one machine ask for. What no
//!   stream may say is a [`Change`] and no command.
//! - [`Follower`]: the progress of a stream that passes by.
//! - [`describe`]: a command as users see it; [`dump()`]: a stream as text.
//! - [`send()`]: a read-only snapshot as a stream, full or as an increment to a parent.
//! - [`receive()`]: a stream as subvolumes of a [`Target`].
//! - [`Changes`]: changes of what lies below a directory.
//!
//! Paths and names are bytes, numbers of inodes are those of the sender.
//!
//! # Invariants
//! - No stream makes a reader panic, hang, or use more memory than the longest command of its
//!   version; an error names the byte of the stream where something is wrong.
//! - This crate reads all that it writes as the same commands, and writes a stream of the kernel
//!   again byte for byte.
//! - The stream of a snapshot does not depend on how many threads make it.
//! - Sending needs memory for changes, not for the content: a full send needs 8 bytes for each
//!   directory, and the paths of a bounded number of them.
//! - One thread compares the trees of an increment. Others bring blocks that differ into the cache
//!   ahead of it (`send/ahead.rs`), and nothing depends on them.
//! - A snapshot that is sent from a file system in use has a guard: it is walked as it was
//!   committed, without locks, and can be neither deleted nor made writable meanwhile.
//! - A receiver of subvolumes follows no symbolic link, enters no other subvolume, and changes only
//!   the subvolume that it makes. It refuses a path that does not lead down.
//! - A subvolume becomes read-only and gets a received uuid only if every command was applied.
//! - A receiver into an image changes many inodes at once, with several threads
//!   (`receive/image/batch.rs`): each inode in the order of the stream, while no name changes.
#![forbid(unsafe_code)]

mod description;
mod dump;
mod receive;
mod send;
mod wire;

pub use description::{Description, Detail, Field, describe, join};
pub use dump::{DumpError, dump};
#[cfg(target_os = "linux")]
pub use receive::MountedTarget;
pub use receive::{
    Base, Changes, Checked, Checkpoints, CommandError, CommandProblem, Event, ImageTarget, Origin,
    ReceiveError, ReceiveOptions, ReceiveProblem, Received, Target, prologue, receive,
};
pub use send::{
    Counted, Reading, SendError, SendOptions, SendProgress, Sent, origin_of, send, send_reading,
};
pub use wire::{
    Action, Attribute, Change, Command, CommandKind, Follower, LocalChanges, Original, Reader,
    StreamError, StreamProblem, Timestamp, TooLong, Version, Work, Writer, encode, encode_local,
};
