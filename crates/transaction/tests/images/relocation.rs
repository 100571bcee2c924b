//! Block groups that are emptied: every file has the content that it had, what was shared stays
//! shared, both checkers find nothing, and the kernel goes on from there.

use larder_format::BlockGroupFlags;
use larder_power_cuts::load;
use larder_testkit::{Content, ImageSpec, KernelImage, Manifest, oracle};
use larder_transaction::TransactionManager;
use larder_transaction::space::SpaceKind;

use crate::support::open;

/// Empties every group that there is now. Returns how many were removed.
fn empty_all(manager: &TransactionManager) -> usize {
    let groups = manager.space().groups();
    let emptied = groups.iter().filter(|group| {
        let emptied = manager.empty_group(group.start(), &mut |_| Ok(())).unwrap();
        emptied.is_some_and(|emptied| emptied.is_removed)
    });
    emptied.count()
}

/// Bytes that extents use, by kind of block group.
fn used(manager: &TransactionManager) -> [u64; 2] {
    [SpaceKind::Data, SpaceKind::Metadata].map(|kind| manager.space().usage(kind).used)
}

fn everything_moves(spec: &ImageSpec) {
    let image = KernelImage::build(spec, &Content::new(larder_testkit::seed(7)));
    let before = Manifest::of_tree(image.mount("subvolid=5,noatime").path());
    let manager = open(image.devices());
    let starts: Vec<_> = manager.space().groups().iter().map(|group| group.start()).collect();
    let used_before = used(&manager);
    assert_eq!(empty_all(&manager), starts.len());
    manager.commit().unwrap();
    let left = manager.space().groups();
    assert!(left.iter().all(|group| !starts.contains(&group.start())), "{left:?}");
    assert_eq!(used(&manager)[0], used_before[0]);
    let tolerance = 64 * u64::from(manager.volume().nodesize());
    assert!(used(&manager)[1] <= used_before[1] + tolerance, "nothing is shared no more");
    drop(manager);
    oracle::check(image.devices(), true).unwrap();
    let mount = image.mount("subvolid=5,noatime");
    assert_eq!(Manifest::of_tree(mount.path()), before);
    oracle::scrub(&mount).unwrap();
}

#[test]
fn everything_moves_elsewhere() {
    everything_moves(&ImageSpec::new("default").devices(&[3000 << 20]));
}
