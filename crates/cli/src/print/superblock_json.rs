//! Superblocks as JSON, with the names that `dump-super` shows.

use larder_format::superblock::{BackupRoot, MAGIC, Superblock};
use larder_format::{ChecksumType, Key, Uuid};
use serde::Serialize;
use serde_json::{Value, json};
use zerocopy::IntoBytes;

use super::superblock::{COMPAT_RO_FLAGS, INCOMPAT_FLAGS, SUPER_FLAGS, put_printable};
use super::text::{HexBytes, Put};
use super::{Name, Object};

/// Fields of an object.
type Values = Vec<(&'static str, Value)>;

/// All fields of a superblock.
pub fn superblock_fields(superblock: &Superblock) -> Values {
    let s = superblock;
    let mut fields = checksum(s);
    fields.extend([
        ("bytenr", json!(s.bytenr.get())),
        ("flags", flags(s.flags.get(), &SUPER_FLAGS)),
        ("magic", json!(text(|out| put_printable(out, s.magic.as_bytes())))),
        ("magic_matches", json!(s.magic.get() == MAGIC)),
        ("fsid", uuid(s.fsid)),
        ("metadata_uuid", json!(s.metadata_uuid().to_string())),
        ("label", json!(Name::of_bytes(s.label()))),
        ("generation", json!(s.generation.get())),
        ("root", json!(s.root.get())),
        ("sys_array_size", json!(s.sys_chunk_array_size.get())),
        ("chunk_root_generation", json!(s.chunk_root_generation.get())),
        ("root_level", json!(s.root_level)),
        ("chunk_root", json!(s.chunk_root.get())),
        ("chunk_root_level", json!(s.chunk_root_level)),
        ("log_root", json!(s.log_root.get())),
        ("log_root_transid", json!(s.log_root_transid.get())),
        ("log_root_level", json!(s.log_root_level)),
        ("total_bytes", json!(s.total_bytes.get())),
        ("bytes_used", json!(s.bytes_used.get())),
        ("sectorsize", json!(s.sectorsize.get())),
        ("nodesize", json!(s.nodesize.get())),
        ("leafsize", json!(s.leafsize.get())),
        ("stripesize", json!(s.stripesize.get())),
        ("root_dir", json!(s.root_dir_objectid.get())),
        ("num_devices", json!(s.num_devices.get())),
        ("compat_flags", flags(s.compat_flags.get(), &[])),
        ("compat_ro_flags", flags(s.compat_ro_flags.get(), &COMPAT_RO_FLAGS)),
        ("incompat_flags", flags(s.incompat_flags.get(), &INCOMPAT_FLAGS)),
        ("cache_generation", json!(s.cache_generation.get())),
        ("uuid_tree_generation", json!(s.uuid_tree_generation.get())),
        ("dev_item", device(s)),
        ("sys_chunk_array", system_chunks(s)),
        ("backup_roots", s.super_roots.iter().map(backup_root).collect()),
    ]);
    fields
}

fn checksum(superblock: &Superblock) -> Values {
    let kind = ChecksumType::from_disk(superblock.csum_type.get());
    let stored = kind.map(|kind| &superblock.csum[..kind.size()]);
    let matches = kind.map(|kind| kind.compute_block(superblock.as_bytes()));
    vec![
        ("csum_type", json!(kind.map(ChecksumType::name))),
        ("csum_size", json!(kind.map(ChecksumType::size))),
        ("csum", json!(stored.map(|stored| text(|out| HexBytes(stored).put(out))))),
        ("csum_matches", json!(matches.map(|computed| Some(computed.as_bytes()) == stored))),
    ]
}

fn device(superblock: &Superblock) -> Value {
    let dev = &superblock.dev_item;
    object(&[
        ("uuid", uuid(dev.uuid)),
        ("fsid", uuid(dev.fsid)),
        ("fsid_matches", json!(dev.fsid == superblock.metadata_uuid().into_bytes())),
        ("type", json!(dev.kind.get())),
        ("total_bytes", json!(dev.total_bytes.get())),
        ("bytes_used", json!(dev.bytes_used.get())),
        ("io_align", json!(dev.io_align.get())),
        ("io_width", json!(dev.io_width.get())),
        ("sector_size", json!(dev.sector_size.get())),
        ("devid", json!(dev.devid.get())),
        ("dev_group", json!(dev.dev_group.get())),
        ("seek_speed", json!(dev.seek_speed)),
        ("bandwidth", json!(dev.bandwidth)),
        ("generation", json!(dev.generation.get())),
    ])
}

/// The system chunks, up to the first one that is damaged.
fn system_chunks(superblock: &Superblock) -> Value {
    let chunk = |(key, chunk): (Key, larder_format::item::Chunk<'_>)| {
        let stripe = |stripe: &larder_format::item::Stripe| {
            object(&[
                ("devid", json!(stripe.devid.get())),
                ("offset", json!(stripe.offset.get())),
                ("dev_uuid", uuid(stripe.dev_uuid)),
            ])
        };
        let header = chunk.header;
        object(&[
            ("logical", json!(key.offset)),
            ("length", json!(header.length.get())),
            ("owner", json!(header.owner.get())),
            ("stripe_len", json!(header.stripe_len.get())),
            ("type", json!(text(|out| chunk.flags().put(out)))),
            ("io_align", json!(header.io_align.get())),
            ("io_width", json!(header.io_width.get())),
            ("sector_size", json!(header.sector_size.get())),
            ("num_stripes", json!(header.num_stripes.get())),
            ("sub_stripes", json!(header.sub_stripes.get())),
            ("stripes", chunk.stripes.iter().map(stripe).collect()),
        ])
    };
    superblock.system_chunks().map_while(Result::ok).map(chunk).collect()
}

fn backup_root(backup: &BackupRoot) -> Value {
    let root = |bytenr: u64, generation: u64, level: u8| json!({ "bytenr": bytenr, "gen": generation, "level": level });
    let b = backup;
    object(&[
        ("tree_root", root(b.tree_root.get(), b.tree_root_gen.get(), b.tree_root_level)),
        ("chunk_root", root(b.chunk_root.get(), b.chunk_root_gen.get(), b.chunk_root_level)),
        ("extent_root", root(b.extent_root.get(), b.extent_root_gen.get(), b.extent_root_level)),
        ("fs_root", root(b.fs_root.get(), b.fs_root_gen.get(), b.fs_root_level)),
        ("dev_root", root(b.dev_root.get(), b.dev_root_gen.get(), b.dev_root_level)),
        ("csum_root", root(b.csum_root.get(), b.csum_root_gen.get(), b.csum_root_level)),
        ("total_bytes", json!(b.total_bytes.get())),
        ("bytes_used", json!(b.bytes_used.get())),
        ("num_devices", json!(b.num_devices.get())),
    ])
}

/// Bits: as a number, and the names of those that have one.
#[derive(Serialize)]
struct Flags {
    value: u64,
    names: Vec<&'static str>,
}

fn flags(bits: u64, names: &[(u64, &'static str)]) -> Value {
    let set = names.iter().filter(|(bit, _)| bits & bit != 0);
    json!(Flags { value: bits, names: set.map(|(_, name)| *name).collect() })
}

fn object(fields: &[(&'static str, Value)]) -> Value {
    json!(Object(fields))
}

fn uuid(bytes: [u8; 16]) -> Value {
    json!(Uuid::from_bytes(bytes).to_string())
}

/// What `put` appends, which is ASCII.
fn text(put: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    put(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}
