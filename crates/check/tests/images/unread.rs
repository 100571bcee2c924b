//! Data that cannot be read is told apart from data that is wrong.

use std::sync::Arc;

use larder_check::evidence::{ChecksumEvidence, Evidence};
use larder_check::{Kind, Options, Report, check};
use larder_device::{Access, Device, FileDevice, Operation};
use larder_format::item::FileExtent;
use larder_format::objectid::FS_TREE;
use larder_format::{ItemType, Logical};
use larder_test_devices::{Fault, FaultDevice};
use larder_testkit::{Content, ImageSpec, KernelImage, Profile};
use larder_volume::{OpenOptions, Volume};

use crate::patient::Patient;

const SECTOR: u64 = 4096;

#[track_caller]
fn found(report: &Report, kind: Kind) -> (String, Evidence) {
    let group = report.kinds.iter().find(|group| group.kind == kind);
    let group = group.unwrap_or_else(|| panic!("no {kind}:\n{report}"));
    let [finding] = &group.findings[..] else { panic!("one sector is bad:\n{report}") };
    (finding.message(), finding.evidence.clone())
}

#[test]
fn the_error_of_a_device_is_told() {
    let spec = ImageSpec::new("unread").devices(&[256 << 20; 2]);
    let spec = spec.profiles(Profile::Raid1, Profile::Raid1);
    let image = KernelImage::build(&spec, &Content::new(5));
    let written = Patient::load(image.devices()).items(FS_TREE).into_iter().find_map(|item| {
        match FileExtent::parse(&item.data) {
            Ok(FileExtent::Regular { extent, preallocated: false, .. })
                if item.key.item_type == ItemType::EXTENT_DATA =>
            {
                extent.disk_bytenr()
            }
            _ => None,
        }
    });
    let address = written.expect("a file with data").0;
    let devices = image.devices().iter().map(|path| {
        let device = FileDevice::open(path, Access::ReadOnly).expect("it opens");
        Arc::new(FaultDevice::new(Arc::new(device)))
    });
    let devices: Vec<Arc<FaultDevice>> = devices.collect();
    let opened = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    let volume = Volume::open(opened, &OpenOptions::default()).expect("it opens");
    let mirrors = volume.map(Logical(address), SECTOR).expect("it is mapped").remove(0).mirrors;
    let fail = |copy: usize| {
        let (devid, at) = (mirrors[copy].devid, mirrors[copy].physical.0);
        devices[devid as usize - 1].inject(Fault::fail(Operation::Read).within(at..at + SECTOR));
    };
    let checked = || {
        let options = Options { check_data_csum: true, ..Options::default() };
        check(&volume, &options).expect("nobody stops it")
    };
    assert!(checked().is_clean());

    fail(1);
    let report = checked();
    let (said, evidence) = found(&report, Kind::DataCopyBad);
    let is_of_copy = |evidence| {
        matches!(evidence, Evidence::Checksum(ChecksumEvidence::CopyUnreadable { copy: 1, .. }))
    };
    assert!(is_of_copy(evidence), "{said}");
    assert!(said.starts_with("copy 1 cannot be read: "), "{said}");
    assert!(said.contains("Input/output error"), "{said}");

    fail(0);
    let report = checked();
    let (said, _) = found(&report, Kind::DataChecksum);
    assert!(said.starts_with("no copy matches: copy 0 cannot be read: "), "{said}");
}
