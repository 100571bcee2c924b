//! On-disk structures as text, in the words and layout of btrfs-progs.
//!
//! Scripts read this output, so it follows one version of it to the letter: [`OUTPUT_VERSION`].
//! Everything is written to a byte buffer without going through `fmt`, since a dump of a large tree
//! is hundreds of megabytes.

mod extent;
mod file;
mod json;
mod key;
mod leaf;
mod quota;
mod root;
mod storage;
pub mod superblock;
mod superblock_json;
mod table;
mod text;
mod time;

pub use json::{Fields, JsonList, Name, Object, write_json, write_texts};
pub use key::key_text;
pub use leaf::{NodeStyle, put_node};
pub use superblock_json::superblock_fields;
pub use table::{Cell, write_table};
pub use time::{
    calendar_time, local_time, local_time_with_zone, precise_local_time, stream_time,
    unsigned_local_time,
};

/// The release of btrfs-progs whose output this follows.
pub const OUTPUT_VERSION: &str = "btrfs-progs v6.2";
