//! Inode references: from an inode to its names.

use larder_format::item::{InodeExtrefHeader, InodeRefHeader};
use larder_format::{ItemType, Key, name_hash};
use zerocopy::IntoBytes;

use super::{Context, Output};
use crate::{Features, MkfsError};

/// The item with the reference of a root directory to itself: its key and data.
pub(crate) fn root_reference(directory: u64) -> (Key, Vec<u8>) {
    let mut data = Vec::new();
    write_reference(&mut data, 0, b"..");
    (Key::new(directory, ItemType::INODE_REF, directory), data)
}

fn write_reference(data: &mut Vec<u8>, index: u64, name: &[u8]) {
    let header = InodeRefHeader { index: index.into(), name_len: (name.len() as u16).into() };
    data.extend_from_slice(header.as_bytes());
    data.extend_from_slice(name);
}

/// A name of an inode in a directory.
struct Name<'a> {
    parent: u64,
    index: u64,
    name: &'a [u8],
}

/// Adds the references of the inode whose first node is `at`: one item for each directory, and
/// extended references for names that do not fit.
pub(super) fn add_references(
    context: &Context<'_>,
    at: u32,
    output: &mut Output,
) -> Result<(), MkfsError> {
    let subvolume = context.subvolume;
    let inode = subvolume.node(at).inode;
    let names: Vec<Name<'_>> = subvolume
        .names_of(&at)
        .iter()
        .map(|&at| {
            let node = subvolume.node(at);
            let parent = subvolume.node(node.parent).inode;
            Name { parent, index: subvolume.directory_index(at), name: subvolume.name(node) }
        })
        .collect();
    let mut extended = Vec::new();
    let mut data = Vec::new();
    // Names are in the order of their directories.
    for in_directory in names.chunk_by(|one, other| one.parent == other.parent) {
        data.clear();
        for name in in_directory {
            let len = size_of::<InodeRefHeader>() + name.name.len();
            if data.len() + len <= context.settings.max_item_size() {
                write_reference(&mut data, name.index, name.name);
            } else {
                extended.push(name);
            }
        }
        output.item(Key::new(inode, ItemType::INODE_REF, in_directory[0].parent), &[&data]);
    }
    add_extended(context, at, inode, extended, output)
}

fn add_extended(
    context: &Context<'_>,
    at: u32,
    inode: u64,
    names: Vec<&Name<'_>>,
    output: &mut Output,
) -> Result<(), MkfsError> {
    let refused = |problem: &str| {
        let (path, problem) = (context.subvolume.path(at), problem.into());
        Err(MkfsError::Unsupported { path, problem })
    };
    if !names.is_empty() && !context.settings.has(Features::EXTENDED_REFS) {
        return refused("too many hard links in one directory without the feature extref");
    }
    let mut hashed: Vec<(u64, &Name<'_>)> = names
        .into_iter()
        .map(|name| (name_hash::extended_ref(name.parent, name.name), name))
        .collect();
    hashed.sort_by_key(|(hash, _)| *hash);
    let mut data = Vec::new();
    for same_hash in hashed.chunk_by(|one, other| one.0 == other.0) {
        data.clear();
        for (_, name) in same_hash {
            let header = InodeExtrefHeader {
                parent_objectid: name.parent.into(),
                index: name.index.into(),
                name_len: (name.name.len() as u16).into(),
            };
            data.extend_from_slice(header.as_bytes());
            data.extend_from_slice(name.name);
        }
        if data.len() > context.settings.max_item_size() {
            return refused("too many hard links with one hash");
        }
        output.item(Key::new(inode, ItemType::INODE_EXTREF, same_hash[0].0), &[&data]);
    }
    Ok(())
}
