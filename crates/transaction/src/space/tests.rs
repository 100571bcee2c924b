//! Groups that are created while other threads look for changes.

use larder_device::MemoryDevice;
use larder_mkfs::{MkfsOptions, mkfs_on};
use larder_volume::OpenOptions;

use super::*;

/// The space of an empty file system, with its initial groups.
fn space() -> Space {
    let devices: Vec<Arc<dyn larder_device::Device>> =
        vec![Arc::new(MemoryDevice::new("memory", 1 << 30))];
    mkfs_on(&devices, &MkfsOptions::default()).unwrap();
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let volume = Arc::new(Volume::open(devices, &options).unwrap());
    let space = Space::new(volume.clone());
    let load = |chunk: &Arc<Chunk>| LoadedGroup {
        start: chunk.logical(),
        len_bytes: chunk.len_bytes(),
        flags: chunk.flags(),
        used: 0,
        free: std::iter::once(chunk.logical().0..chunk.end().0).collect(),
    };
    let loaded: Vec<LoadedGroup> = volume.chunks().iter().map(load).collect();
    space.load(&loaded).unwrap();
    space
}

fn create(space: &Space, kind: SpaceKind) {
    let seen = space.groups().len();
    space.create_chunk(kind, seen).unwrap().expect("the device has room");
}

/// A thread that finds a group uses it, and then its item must be updated.
#[test]
fn a_group_is_among_the_created_before_it_can_be_found() {
    let space = space();
    // A thread that adds a group waits for this.
    let groups = space.groups.read();
    std::thread::scope(|scope| {
        scope.spawn(|| create(&space, SpaceKind::Data));
        while space.groups.try_read().is_some() {
            std::thread::yield_now();
        }
        // Either it was added, or no thread can look before it is.
        let is_known = space.changes.try_lock().is_none_or(|changes| !changes.created.is_empty());
        drop(groups);
        assert!(is_known, "a group can be found that is not known to have no items");
    });
}

/// A changed group would be updated in the tree, where a new group is not yet.
#[test]
fn changed_groups_are_not_taken_while_one_has_no_items() {
    let space = space();
    assert_eq!(space.take_dirty(), Some(BTreeSet::new()));
    create(&space, SpaceKind::Data);
    create(&space, SpaceKind::Metadata);
    let mut starts = BTreeSet::new();
    for _ in 0..2 {
        assert_eq!(space.take_dirty(), None);
        starts.insert(space.next_created().expect("two were made").start().0);
    }
    assert!(space.next_created().is_none());
    assert_eq!(space.take_dirty(), Some(starts));
}

/// The profile of the newest group for `kind`.
fn newest(space: &Space, kind: SpaceKind) -> Profile {
    let groups = space.groups().into_iter().filter(|group| group.holds(kind));
    groups.last().expect("there is one").chunk().profile()
}

#[test]
fn new_chunks_get_the_target_profile_or_the_safest_that_exists() {
    let space = space();
    create(&space, SpaceKind::Data);
    assert_eq!(newest(&space, SpaceKind::Data), Profile::Single);
    space.set_target_profile(SpaceKind::Data, Some(Profile::Dup));
    create(&space, SpaceKind::Data);
    assert_eq!(newest(&space, SpaceKind::Data), Profile::Dup);
    space.set_target_profile(SpaceKind::Data, Some(Profile::Single));
    assert_eq!(space.profile(SpaceKind::Data), Profile::Single);
    space.set_target_profile(SpaceKind::Data, None);
    assert_eq!(space.profile(SpaceKind::Data), Profile::Dup);
    assert_eq!(space.profile(SpaceKind::Metadata), Profile::Dup);
}

#[test]
fn chunks_that_are_made_have_what_was_promised_from_them() {
    let space = space();
    let usable = |usage: Usage| usage.total - usage.unusable;
    let kind = SpaceKind::Metadata;
    let promised = usable(space.usage(kind)) + space.usage(kind).unallocated;
    while space.create_chunk(kind, space.groups().len()).unwrap().is_some() {}
    assert_eq!(usable(space.usage(kind)), promised);
    assert_eq!(space.usage(kind).unallocated, 0);
}
