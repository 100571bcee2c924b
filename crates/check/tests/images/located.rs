//! Findings name files as the kernel does, and bytes of devices.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use larder_check::{Finding, Kind, Report};
use larder_format::item::{FileExtent, InodeItem, RootItem};
use larder_format::objectid::{FS_TREE, ROOT_TREE, is_subvolume};
use larder_format::{ItemType, Key};
use larder_testkit::{Content, ImageSpec, KernelImage, Profile};

use crate::patient::{Found, Patient};

/// The findings of a kind.
fn findings(report: &Report, kind: Kind) -> &[Finding] {
    let group = report.kinds.iter().find(|group| group.kind == kind);
    &group.unwrap_or_else(|| panic!("no {kind}:\n{report}")).findings
}

/// Asserts that each path in the findings leads to the file on a kernel mount. Returns the number
/// of paths.
fn assert_named(mount: &Path, findings: &[Finding]) -> usize {
    let files: Vec<_> = findings.iter().flat_map(|finding| &finding.files).collect();
    for file in &files {
        let path = file.path.as_ref().expect("a path");
        let found = mount.join(path.trim_start_matches('/')).symlink_metadata();
        let found = found.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(Some(found.ino()), file.inode, "{path}");
    }
    files.len()
}

/// The first written extent of a file in the top subvolume, and the address of its data.
fn data_of(patient: &Patient) -> (Found, u64) {
    let mut items = patient.items(FS_TREE).into_iter();
    let found = items.find_map(|found| match FileExtent::parse(&found.data) {
        Ok(FileExtent::Regular { header, extent, preallocated: false })
            if found.key.item_type == ItemType::EXTENT_DATA && header.compression == 0 =>
        {
            let disk = extent.disk_bytenr()?.0 + extent.offset.get();
            Some((found, disk))
        }
        _ => None,
    });
    found.expect("a file with data")
}

#[test]
fn files_are_named_by_their_paths() {
    let image = KernelImage::build(&ImageSpec::new("located"), &Content::new(5));
    let sound = Patient::load(image.devices());
    let mount = image.mount("ro");
    let subvolumes = sound.items(ROOT_TREE).into_iter().filter(|item| {
        let is_alive = |root: &[u8]| RootItem::parse(root).is_ok_and(|root| root.refs.get() > 0);
        item.key.item_type == ItemType::ROOT_ITEM
            && is_subvolume(item.key.objectid)
            && is_alive(&item.data)
    });
    let mut of_inodes = 0;
    for tree in subvolumes.map(|item| item.key.objectid) {
        let patient = sound.copy();
        let mut inodes = patient.items(tree).into_iter().filter(|found| {
            found.key.item_type == ItemType::INODE_ITEM && found.key.objectid > 256
        });
        let Some(inode) = inodes.next_back() else { continue };
        patient.edit_as::<InodeItem>(&inode, |item| item.nlink += 1);
        let report = patient.check().expect("opens");
        of_inodes += assert_named(mount.path(), findings(&report, Kind::LinkCount));
    }
    assert!(of_inodes > 2, "{of_inodes} files were named");

    let patient = sound.copy();
    let (found, logical) = data_of(&patient);
    patient.invert(logical, 0, false);
    let report = patient.check().expect("opens");
    let damaged = findings(&report, Kind::DataChecksum);
    assert_named(mount.path(), damaged);
    let wanted = (FS_TREE, Some(found.key.objectid));
    let is_named = damaged[0].files.iter().any(|file| (file.subvolume, file.inode) == wanted);
    assert!(is_named, "{report}");
    let path = damaged[0].files[0].path.as_deref().expect("a path");
    assert!(report.to_string().contains(&format!("    in {path} (subvolume ")), "{report}");
}

#[test]
fn subvolumes_are_named_and_files_without_a_path_are_not() {
    let image = KernelImage::build(&ImageSpec::new("nameless").power_cut(), &Content::new(5));
    let patient = Patient::load(image.devices());
    let orphan = patient.find(FS_TREE, |key, data| {
        let inode = larder_format::read_exact_item::<InodeItem>(data);
        key.item_type == ItemType::INODE_ITEM && inode.is_ok_and(|inode| inode.nlink.get() == 0)
    });
    patient.edit_as::<InodeItem>(&orphan, |item| item.mode |= 0o170_000);
    let top = patient.find(FS_TREE, |key, _| *key == Key::new(256, ItemType::INODE_ITEM, 0));
    patient.edit_as::<InodeItem>(&top, |item| item.flags |= 1 << 40);
    let report = patient.check().expect("opens");
    let found = findings(&report, Kind::InodeItem);
    let mut paths: Vec<_> = found.iter().map(|finding| finding.files[0].path.as_deref()).collect();
    paths.sort_unstable();
    assert_eq!(paths, [None, Some("/")], "{report}");
}

#[test]
fn every_copy_is_placed_on_its_device() {
    let spec = ImageSpec::new("placed").devices(&[256 << 20; 2]);
    let spec = spec.profiles(Profile::Raid1, Profile::Raid1);
    let image = KernelImage::build(&spec, &Content::new(5));
    let patient = Patient::load(image.devices());
    let (_, logical) = data_of(&patient);
    patient.invert(logical, 1, false);
    let one_is_bad = patient.check().expect("opens");
    let bad = &findings(&one_is_bad, Kind::DataCopyBad)[0];
    assert_eq!(bad.devices.len(), 1, "{one_is_bad}");
    assert_eq!(Some(bad.devices[0].devid), bad.location.device);
    assert_eq!(bad.devices[0].offset, bad.location.physical);
    patient.invert(logical, 0, false);
    let both_are_bad = patient.check().expect("opens");
    let bad = &findings(&both_are_bad, Kind::DataChecksum)[0];
    let mut names: Vec<&str> = bad.devices.iter().map(|place| place.device.as_str()).collect();
    names.sort_unstable();
    let wanted: Vec<String> =
        image.devices().iter().map(|device| device.display().to_string()).collect();
    assert_eq!(names, wanted, "{both_are_bad}");
}
