//! Images that lie.

use std::ops::ControlFlow;
use std::path::Path;

use larder_device::Access;
use larder_format::checksum::CHECKSUM_SIZE;
use larder_format::node::{HEADER_SIZE, Header, KEY_POINTER_SIZE, KeyPointer, max_key_pointers};
use larder_format::objectid::ROOT_TREE;
use larder_format::{BlockGroupFlags, Key, Logical};
use larder_image::Place;
use larder_rescue::{Found, FoundStates, Origin, find_states, salvage};
use larder_testkit::{ImageSpec, KernelImage, damage};
use larder_volume::{OpenOptions, Rescue, Volume};
use zerocopy::{FromZeros, IntoBytes};

/// A generation after the last one.
const FALSE_GENERATION: u64 = 999;

fn states(image: &Path) -> FoundStates {
    let device = larder_image::open(image, Access::ReadOnly, Place::WHOLE).unwrap();
    find_states(vec![device], &|_| ControlFlow::Continue(())).unwrap()
}

/// Writes a node, on all mirrors, every pointer of which leads to the block at `child`.
fn plant(volume: &Volume, image: &Path, logical: Logical, level: u8, child: Logical) {
    let superblock = volume.superblock();
    let nodesize = volume.nodesize() as usize;
    let pointers = max_key_pointers(nodesize);
    let mut block = vec![0; nodesize];
    let header = Header {
        fsid: superblock.metadata_uuid().into_bytes(),
        bytenr: logical.0.into(),
        generation: FALSE_GENERATION.into(),
        owner: ROOT_TREE.into(),
        nritems: (pointers as u32).into(),
        level,
        ..Header::new_zeroed()
    };
    block[..HEADER_SIZE].copy_from_slice(header.as_bytes());
    for slot in 0..pointers {
        let pointer = KeyPointer {
            key: Key { objectid: slot as u64, ..Key::MIN }.into(),
            blockptr: child.0.into(),
            generation: FALSE_GENERATION.into(),
        };
        let at = HEADER_SIZE + slot * KEY_POINTER_SIZE;
        block[at..at + KEY_POINTER_SIZE].copy_from_slice(pointer.as_bytes());
    }
    let checksum = volume.checksum_type().compute_block(&block);
    let stored = checksum.as_bytes();
    block[..CHECKSUM_SIZE][..stored.len()].copy_from_slice(stored);
    for range in volume.map(logical, nodesize as u64).unwrap() {
        for mirror in range.mirrors {
            damage::overwrite(image, mirror.physical.0, &block).unwrap();
        }
    }
}

/// Without a memory of what was counted, the leaf below would be looked at 480^7 times.
#[test]
fn a_tree_that_shares_all_its_blocks_is_walked_once() {
    let image = KernelImage::empty(&ImageSpec::new("hostile"));
    let file = &image.devices()[0];
    let before = states(file).states;
    let device = larder_image::open(file, Access::ReadOnly, Place::WHOLE).unwrap();
    let volume = Volume::open(vec![device], &OpenOptions::default()).unwrap();
    let chunks = volume.chunks();
    let chunk = chunks.iter().find(|it| it.flags().contains(BlockGroupFlags::METADATA)).unwrap();
    let place =
        |level: u8| Logical(chunk.end().0 - (u64::from(level) + 1) * u64::from(volume.nodesize()));
    // Nothing lies at the place of level 0.
    for level in 1..=7 {
        plant(&volume, file, place(level), level, place(level - 1));
    }
    let after = states(file).states;
    let (first, others) = after.split_first().unwrap();
    assert_eq!((first.generation, first.level), (FALSE_GENERATION, 7));
    assert_eq!(first.origin, Origin::Device);
    assert!(!first.is_complete() && !first.has_all_files());
    let generations = |states: &[larder_rescue::State]| -> Vec<u64> {
        states.iter().map(|state| state.generation).collect()
    };
    assert_eq!(generations(others), generations(&before));

    // Below the last root nothing is lost. Without it, the false ones come first and lead nowhere.
    let salvaged = |device| salvage(&[device], Rescue::ALL, &|_| ControlFlow::Continue(()));
    let device = larder_image::open(file, Access::ReadOnly, Place::WHOLE).unwrap();
    assert!(matches!(salvaged(device).unwrap(), Found::Sound));
    let root = volume.superblock().root();
    for range in volume.map(root, u64::from(volume.nodesize())).unwrap() {
        for mirror in range.mirrors {
            damage::overwrite(file, mirror.physical.0, &[0; 4096]).unwrap();
        }
    }
    let device = larder_image::open(file, Access::ReadOnly, Place::WHOLE).unwrap();
    let Found::Salvaged(volume) = salvaged(device).unwrap() else { panic!("it is salvaged") };
    assert!(volume.has_root_tree());
}

#[test]
fn the_caller_can_end_the_search() {
    let image = KernelImage::empty(&ImageSpec::new("ended"));
    let open = || larder_image::open(&image.devices()[0], Access::ReadOnly, Place::WHOLE).unwrap();
    let error = find_states(vec![open()], &|_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, larder_rescue::RescueError::Stopped), "{error}");
}
