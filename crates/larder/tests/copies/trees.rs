//! Trees of this system and of subvolumes.

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;

use larder::copy::{Copied, CopyOptions, Event, IdMap, IdRange, Keep, OwnerMap};
use larder_testkit::Scratch;
use larder_testkit::manifest::assert_copied;

use super::{kernel_view, new_image, open, original};

#[test]
fn a_tree_stays_the_same_on_its_way_in_and_within_and_out() {
    let original = original();
    let expected = original.manifest();
    let scratch = Scratch::new();
    let image = new_image(&scratch);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let mut last = None;
    {
        let mount = original.mount("ro,noatime");
        let observe = |event: Event<'_>| {
            if let Event::Progress(copied) = event {
                last = Some(copied);
            }
            ControlFlow::Continue(())
        };
        let copied =
            CopyOptions::new().observe(observe).copy_in(mount.path(), &root, "in").unwrap();
        assert!(copied.bytes > 0 && copied.inodes as usize >= expected.entries.len());
    }
    assert!(last.is_some_and(|last: Copied| last.bytes > 0), "progress was told");
    fs.sync().unwrap();
    let used = || fs.capacity().unwrap().free_bytes;
    let before = used();
    CopyOptions::new().copy_within(&root, "in", &root, "within").unwrap();
    fs.sync().unwrap();
    assert!(before - used() < 64 << 20, "data is shared");
    let out = scratch.path().join("out");
    CopyOptions::new().copy_out(&root, "within", &out).unwrap();
    drop(root);
    fs.close().unwrap();
    let mount = kernel_view(&image);
    for copy in [mount.path().join("in"), mount.path().join("within"), out] {
        assert_copied(expected.clone(), &copy);
    }
}

#[test]
fn copies_get_mapped_owners() {
    let scratch = Scratch::new();
    let (image, file) = (new_image(&scratch), scratch.path().join("file"));
    std::fs::write(&file, "bread").unwrap();
    std::os::unix::fs::chown(&file, Some(100_007), Some(100_008)).unwrap();
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let range = IdRange { outer: 100_000, inner: 0, count: 65536 };
    let ids = IdMap::new(vec![range], None).unwrap();
    let owners = OwnerMap { users: ids.clone(), groups: ids };
    CopyOptions::new().owners(owners.clone()).copy_in(&file, &root, "in").unwrap();
    let metadata = root.lookup("in").unwrap().metadata();
    assert_eq!((metadata.uid, metadata.gid), (7, 8));
    let out = scratch.path().join("out");
    CopyOptions::new().owners(owners).copy_out(&root, "in", &out).unwrap();
    let metadata = out.metadata().unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (100_007, 100_008));
    fs.close().unwrap();
}

#[test]
fn a_plain_copy_keeps_permissions_without_the_umask() {
    let scratch = Scratch::new();
    let image = new_image(&scratch);
    let tree = scratch.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("one"), "bread").unwrap();
    std::fs::hard_link(tree.join("one"), tree.join("two")).unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o4777);
    std::fs::set_permissions(tree.join("one"), all).unwrap();
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let keep = Keep::Permissions { umask: 0o027 };
    CopyOptions::new().keep(keep).copy_in(&tree, &root, "in").unwrap();
    let out = scratch.path().join("out");
    CopyOptions::new().keep(keep).copy_out(&root, "in", &out).unwrap();
    for name in ["one", "two"] {
        let metadata = root.lookup(format!("in/{name}")).unwrap().metadata();
        assert_eq!((metadata.mode & 0o7777, metadata.nlink), (0o750, 1), "{name}");
        let metadata = out.join(name).metadata().unwrap();
        assert_eq!((metadata.mode() & 0o7777 & !0o027, metadata.nlink()), (0o750, 1), "{name}");
    }
    fs.close().unwrap();
}
