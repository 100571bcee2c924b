//! Structures parse to what was written, and no input makes a parser panic.

use larder_format::item::{
    BackRef, Chunk, ChunkHeader, DirEntries, DirEntry, DirItemHeader, EXTENT_FLAG_DATA, Extent,
    ExtentItem, FileExtent, InodeExtref, InodeExtrefs, InodeRef, InodeRefs, ROOT_ITEM_V0_SIZE,
    RootItem, RootRef, Stripe, uuid_key,
};
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE, SYS_CHUNK_ARRAY_SIZE};
use larder_format::tree_check::{Context, check_node};
use larder_format::{DiskKey, ItemType, Key, Node, Superblock, Uuid};
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=255)
}

fn key() -> impl Strategy<Value = Key> {
    (any::<u64>(), any::<u8>(), any::<u64>())
        .prop_map(|(objectid, item_type, offset)| Key::new(objectid, ItemType(item_type), offset))
}

fn back_ref() -> impl Strategy<Value = BackRef> {
    let number = any::<u64>;
    prop_oneof![
        number().prop_map(|root| BackRef::TreeBlock { root }),
        number().prop_map(|parent| BackRef::SharedBlock { parent }),
        (number(), number(), number(), any::<u32>()).prop_map(|(root, objectid, offset, count)| {
            BackRef::Data { root, objectid, offset, count }
        }),
        (number(), any::<u32>()).prop_map(|(parent, count)| BackRef::SharedData { parent, count }),
        number().prop_map(|root| BackRef::Owner { root }),
    ]
}

/// The bytes of a chunk item of these (device, offset).
fn chunk(length: u64, stripes: &[(u64, u64)]) -> Vec<u8> {
    let mut header = ChunkHeader::new_zeroed();
    header.length = length.into();
    header.num_stripes = (stripes.len() as u16).into();
    let mut bytes = header.as_bytes().to_vec();
    for &(devid, offset) in stripes {
        let stripe = Stripe { devid: devid.into(), offset: offset.into(), dev_uuid: [7; 16] };
        bytes.extend(stripe.as_bytes());
    }
    bytes
}

proptest! {
    #[test]
    fn keys_round_trip_and_order_like_their_parts(a in key(), b in key()) {
        prop_assert_eq!(DiskKey::from(a).get(), a);
        let parts = |key: Key| (key.objectid, key.item_type.0, key.offset);
        prop_assert_eq!(a.cmp(&b), parts(a).cmp(&parts(b)));
        prop_assert!(a.successor().is_none_or(|next| next > a && next.predecessor() == Some(a)));
    }

    #[test]
    fn directory_entries_round_trip(entries in vec((key(), any::<u64>(), any::<u8>(), name(), name()), 0..5)) {
        let headers: Vec<_> = entries.iter().map(|(location, transid, file_type, name, value)| {
            DirItemHeader {
                location: (*location).into(),
                transid: (*transid).into(),
                data_len: (value.len() as u16).into(),
                name_len: (name.len() as u16).into(),
                file_type: *file_type,
            }
        }).collect();
        let written: Vec<_> = headers.iter().zip(&entries)
            .map(|(header, (.., name, data))| DirEntry { header, name, data })
            .collect();
        let mut bytes = Vec::new();
        for entry in &written {
            entry.write(&mut bytes);
        }
        let len: usize = written.iter().map(|e| DirEntry::len_bytes(e.name.len(), e.data.len())).sum();
        prop_assert_eq!(bytes.len(), len);
        let read: Result<Vec<_>, _> = DirEntries::new(&bytes).collect();
        prop_assert_eq!(read.unwrap(), written);
    }

    #[test]
    fn inode_references_round_trip(names in vec((any::<u64>(), any::<u64>(), name()), 0..5)) {
        let (mut refs, mut extrefs) = (Vec::new(), Vec::new());
        for (parent, index, name) in &names {
            InodeRef { index: *index, name }.write(&mut refs);
            InodeExtref { parent: *parent, index: *index, name }.write(&mut extrefs);
        }
        let refs: Vec<_> = InodeRefs::new(&refs).map(Result::unwrap).map(|r| (r.index, r.name.to_vec())).collect();
        let extrefs: Vec<_> = InodeExtrefs::new(&extrefs).map(Result::unwrap)
            .map(|r| (r.parent, r.index, r.name.to_vec())).collect();
        prop_assert_eq!(refs, names.iter().map(|(_, index, name)| (*index, name.clone())).collect::<Vec<_>>());
        prop_assert_eq!(extrefs, names);
    }

    #[test]
    fn root_references_round_trip(dirid: u64, sequence: u64, name in name()) {
        let written = RootRef { dirid, sequence, name: &name };
        let mut bytes = Vec::new();
        written.write(&mut bytes);
        prop_assert_eq!(RootRef::parse(&bytes).unwrap(), written);
        bytes.push(0);
        prop_assert!(RootRef::parse(&bytes).is_err());
    }

    #[test]
    fn back_references_round_trip(refs in vec(back_ref(), 0..6)) {
        let mut item = ExtentItem::new_zeroed();
        item.flags = EXTENT_FLAG_DATA.into();
        let mut bytes = item.as_bytes().to_vec();
        for back_ref in &refs {
            let before = bytes.len();
            back_ref.write_inline(&mut bytes);
            prop_assert_eq!(bytes.len() - before, back_ref.inline_len_bytes());
        }
        let extent = Extent::parse(Key::new(0, ItemType::EXTENT_ITEM, 4096), &bytes).unwrap();
        let read: Vec<_> = extent.back_refs().map(|inline| inline.unwrap().back_ref).collect();
        prop_assert_eq!(&read, &refs);
        for inline in extent.back_refs() {
            let inline = inline.unwrap();
            prop_assert_eq!(bytes[inline.item_offset], inline.back_ref.item_type().0);
        }
    }

    #[test]
    fn chunks_round_trip(length: u64, stripes in vec((any::<u64>(), any::<u64>()), 1..9)) {
        let bytes = chunk(length, &stripes);
        prop_assert_eq!(Chunk::len_bytes_of(&bytes).unwrap(), bytes.len());
        let read = Chunk::parse(&bytes).unwrap();
        prop_assert_eq!(read.header.length.get(), length);
        let places: Vec<_> = read.stripes.iter().map(|s| (s.devid.get(), s.offset.get())).collect();
        prop_assert_eq!(places, stripes);
        prop_assert!(Chunk::parse(&bytes[1..]).is_err());
    }

    #[test]
    fn system_chunks_round_trip(chunks in vec((any::<u64>(), vec((1_u64..9, any::<u64>()), 1..4)), 0..10)) {
        let mut superblock = Superblock::zeroed();
        let mut array = Vec::new();
        for (start, stripes) in &chunks {
            array.extend(DiskKey::from(Key::new(256, ItemType::CHUNK_ITEM, *start)).as_bytes());
            array.extend(chunk(1 << 22, stripes));
        }
        prop_assert!(array.len() <= SYS_CHUNK_ARRAY_SIZE);
        superblock.sys_chunk_array[..array.len()].copy_from_slice(&array);
        superblock.sys_chunk_array_size = (array.len() as u32).into();
        let read: Vec<_> = superblock.system_chunks()
            .map(|chunk| chunk.map(|(key, chunk)| (key.offset, chunk.stripes.len())).unwrap())
            .collect();
        let written: Vec<_> = chunks.iter().map(|(start, stripes)| (*start, stripes.len())).collect();
        prop_assert_eq!(read, written);
        // Cut anywhere, it ends with at most one error.
        superblock.sys_chunk_array_size = (array.len() as u32 / 2).into();
        prop_assert!(superblock.system_chunks().filter(Result::is_err).count() <= 1);
    }

    #[test]
    fn short_root_items_have_no_uuids(bytes in vec(any::<u8>(), size_of::<RootItem>())) {
        let whole = RootItem::read_from_bytes(&bytes).unwrap();
        let short = RootItem::parse(&bytes[..ROOT_ITEM_V0_SIZE]).unwrap();
        prop_assert_eq!(&short.as_bytes()[..ROOT_ITEM_V0_SIZE], &bytes[..ROOT_ITEM_V0_SIZE]);
        prop_assert!(short.uuid().is_nil() && short.received_uuid().is_nil());
        // The rest is valid only if the same kernel wrote it.
        let read = RootItem::parse(&bytes).unwrap();
        let is_current = whole.generation == whole.generation_v2;
        prop_assert_eq!(read, if is_current { whole } else { short });
        let mut current = whole;
        current.generation_v2 = current.generation;
        prop_assert_eq!(RootItem::parse(current.as_bytes()).unwrap(), current);
        prop_assert!(RootItem::parse(&bytes[..ROOT_ITEM_V0_SIZE - 1]).is_err());
    }

    #[test]
    fn uuids_are_the_two_numbers_of_their_keys(bytes: [u8; 16]) {
        let key = uuid_key(Uuid::from_bytes(bytes), ItemType::UUID_KEY_SUBVOL);
        let numbers = [key.objectid.to_le_bytes(), key.offset.to_le_bytes()].concat();
        prop_assert_eq!(&numbers[..], &bytes[..]);
    }

    #[test]
    fn arbitrary_bytes_are_parsed_or_refused(key in key(), bytes in vec(any::<u8>(), 0..600)) {
        // An iterator yields no more than can fit, and ends after an error.
        let ends = |results: Vec<bool>| results.iter().rev().skip(1).all(|ok| *ok);
        prop_assert!(ends(DirEntries::new(&bytes).map(|r| r.is_ok()).collect()));
        prop_assert!(ends(InodeRefs::new(&bytes).map(|r| r.is_ok()).collect()));
        prop_assert!(ends(InodeExtrefs::new(&bytes).map(|r| r.is_ok()).collect()));
        for item_type in [ItemType::EXTENT_ITEM, ItemType::METADATA_ITEM] {
            if let Ok(extent) = Extent::parse(Key { item_type, ..key }, &bytes) {
                prop_assert!(ends(extent.back_refs().map(|r| r.is_ok()).collect()));
            }
        }
        let _ = (FileExtent::parse(&bytes), Chunk::parse(&bytes), RootRef::parse(&bytes));
        let _ = (RootItem::parse(&bytes), BackRef::parse_keyed(key, &bytes));
    }

    #[test]
    fn arbitrary_superblocks_are_parsed_or_refused(mut bytes in vec(any::<u8>(), SUPERBLOCK_SIZE)) {
        let _ = Superblock::parse(&bytes, OFFSETS[0]);
        let superblock = Superblock::mut_from_bytes(&mut bytes).unwrap();
        let _ = (superblock.validate(OFFSETS[0]), superblock.label().len());
        superblock.system_chunks().for_each(drop);
    }

    /// With a valid number of items in the header, and any other bytes.
    #[test]
    fn arbitrary_tree_blocks_are_parsed_or_refused(
        mut bytes in vec(any::<u8>(), 4096),
        nritems in 0_u8..=5,
        level in 0_u8..3,
    ) {
        bytes[96..101].copy_from_slice(&[nritems, 0, 0, 0, level]);
        let mut superblock = Superblock::zeroed();
        superblock.sectorsize = 4096.into();
        superblock.nodesize = 4096.into();
        if let Ok(node) = Node::parse(&bytes) {
            let _ = check_node(node, &Context::new(&superblock));
            prop_assert_eq!(node.nritems(), usize::from(nritems));
        }
    }
}
