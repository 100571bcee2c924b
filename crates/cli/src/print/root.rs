//! Roots of trees, names of subvolumes, the uuid tree.

use larder_format::item::{ROOT_ITEM_V0_SIZE, ROOT_SUBVOL_RDONLY, RootItem, RootRef, uuid_items};
use larder_format::{FormatError, Key};

use super::key::put_key;
use super::text::{Flags, Hex, put};

const ROOT_FLAGS: [(u64, &str); 1] = [(ROOT_SUBVOL_RDONLY, "RDONLY")];

pub fn put_root_item(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let root = RootItem::parse(data)?;
    let bits = root.flags.get();
    put!(out, "\t\tgeneration ", root.generation, " root_dirid ", root.root_dirid);
    put!(out, " bytenr ", root.bytenr, " byte_limit ", root.byte_limit);
    put!(out, " bytes_used ", root.bytes_used, "\n");
    put!(out, "\t\tlast_snapshot ", root.last_snapshot, " flags 0x", Hex(bits), "(");
    put!(out, Flags { bits, names: &ROOT_FLAGS }, ") refs ", root.refs, "\n");
    put!(out, "\t\tdrop_progress ");
    put_key(out, Key { ..root.drop_progress.get() });
    put!(out, " drop_level ", root.drop_level, "\n\t\tlevel ", root.level);
    put!(out, " generation_v2 ", root.generation_v2, "\n");
    if data.len() > ROOT_ITEM_V0_SIZE && root.generation == root.generation_v2 {
        put!(out, "\t\tuuid ", root.uuid, "\n\t\tparent_uuid ", root.parent_uuid);
        put!(out, "\n\t\treceived_uuid ", root.received_uuid, "\n");
        put!(out, "\t\tctransid ", root.ctransid, " otransid ", root.otransid);
        put!(out, " stransid ", root.stransid, " rtransid ", root.rtransid, "\n");
        put!(out, "\t\tctime ", root.ctime, "\n\t\totime ", root.otime);
        put!(out, "\n\t\tstime ", root.stime, "\n\t\trtime ", root.rtime, "\n");
    }
    Ok(())
}

pub fn put_root_ref(out: &mut Vec<u8>, direction: &str, data: &[u8]) -> Result<(), FormatError> {
    let item = RootRef::parse(data)?;
    put!(out, "\t\troot ", *direction, " key dirid ", item.dirid);
    put!(out, " sequence ", item.sequence, " name ", *item.name, "\n");
    Ok(())
}

pub fn put_uuid_item(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    for id in uuid_items(data)? {
        put!(out, "\t\tsubvol_id ", *id, "\n");
    }
    Ok(())
}
