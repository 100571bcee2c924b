//! Every copy is verified, of every profile that has some.

use larder_device::Device;
use larder_format::{Logical, Profile};
use larder_volume::{BlockExpectation, Chunk, CopyProblem, FailedCopy, Volume};

use super::writes::{START, chunk, memory, volume};

const SECTOR: u64 = 4096;
const SECTORS: u64 = 48;

/// What is found: the copy and the sector.
fn places(bad: &[FailedCopy]) -> Vec<(usize, u64)> {
    let place = |bad: &FailedCopy| {
        assert_eq!(bad.len_bytes, SECTOR);
        (bad.copy, (bad.logical.0 - START) / SECTOR)
    };
    let mut places: Vec<_> = bad.iter().map(place).collect();
    places.sort_unstable();
    places
}

fn checksums(volume: &Volume, bytes: &[u8]) -> Vec<u8> {
    let sums = bytes.chunks(SECTOR as usize).map(|sector| volume.checksum_type().compute(sector));
    sums.flat_map(|sum| sum.as_bytes().to_vec()).collect()
}

/// The stripe and the physical address of a sector's mirror.
fn physical(chunk: &Chunk, sector: u64, mirror: usize) -> (u64, u64) {
    let segment = chunk.segment(Logical(START + sector * SECTOR), SECTOR);
    let address = chunk.addresses(&segment).nth(mirror).expect("there are so many mirrors");
    (address.devid, address.physical.0)
}

fn find_in(profile: Profile, stripes: usize) {
    let chunk = chunk(profile, stripes);
    let devices = memory(if profile == Profile::Dup { 1 } else { stripes });
    let volume = volume(&chunk, &devices);
    let bytes: Vec<u8> = (0..SECTORS * SECTOR).map(|at| (at / 7 % 251) as u8).collect();
    volume.write(Logical(START), &bytes).unwrap();
    let sums = checksums(&volume, &bytes);
    let verify =
        |sums: Option<&[u8]>| volume.verify_data(Logical(START), bytes.len() as u64, sums).unwrap();
    assert!(verify(Some(&sums)).is_empty() && verify(None).is_empty(), "{profile:?}");

    // Each mirror has bad sectors of its own, in several stripes.
    let mirrors = chunk.copies();
    let mut expected = Vec::new();
    for mirror in 0..mirrors {
        for sector in [mirror as u64, 20 + mirror as u64, 40 + mirror as u64] {
            let (devid, physical) = physical(&chunk, sector, mirror);
            let device = devices[devid as usize - 1].as_ref().expect("it is there");
            device.write_at(&[0xa5; 100], physical + 1000).unwrap();
            expected.push((mirror, sector));
        }
    }
    expected.sort_unstable();
    let bad = verify(Some(&sums));
    assert_eq!(places(&bad), expected, "{profile:?}");
    assert!(bad.iter().all(|bad| matches!(bad.problem, CopyProblem::Checksum { .. })));
    for bad in &bad {
        let sector = (bad.logical.0 - START) / SECTOR;
        let address = bad.address.expect("it is a mirror");
        assert_eq!((address.devid, address.physical.0), physical(&chunk, sector, bad.copy));
    }
    // Without checksums those are told that are not like the first.
    let differ = verify(None);
    let is_named = |bad: &FailedCopy| matches!(bad.problem, CopyProblem::Differs { from: 0 });
    assert!(differ.iter().all(is_named), "{differ:?}");
    let mut sectors: Vec<u64> = places(&differ).into_iter().map(|(_, sector)| sector).collect();
    sectors.sort_unstable();
    sectors.dedup();
    let mut all: Vec<u64> = expected.iter().map(|(_, sector)| *sector).collect();
    all.sort_unstable();
    assert_eq!(sectors, all, "{profile:?}");
    // Nothing was repaired.
    assert_eq!(places(&verify(Some(&sums))), expected, "{profile:?}");
}

#[test]
fn each_bad_copy_is_found() {
    for (profile, stripes) in [
        (Profile::Dup, 2),
        (Profile::Raid1, 2),
        (Profile::Raid1c3, 3),
        (Profile::Raid1c4, 4),
        (Profile::Raid10, 6),
    ] {
        find_in(profile, stripes);
    }
}

/// A good column does not hide that parity is wrong.
#[test]
fn wrong_parity_is_found() {
    for (profile, stripes) in [(Profile::Raid5, 4), (Profile::Raid6, 5)] {
        let chunk = chunk(profile, stripes);
        let devices = memory(stripes);
        let volume = volume(&chunk, &devices);
        let bytes: Vec<u8> = (0..chunk.row_bytes()).map(|at| (at / 5 % 241) as u8).collect();
        volume.write(Logical(START), &bytes).unwrap();
        let sums = checksums(&volume, &bytes);
        let verify =
            || volume.verify_data(Logical(START), bytes.len() as u64, Some(&sums)).unwrap();
        assert!(verify().is_empty(), "{profile:?}");
        let parity = chunk.column_address(0, chunk.data_stripes(), 2 * SECTOR);
        let device = devices[parity.devid as usize - 1].as_ref().unwrap();
        device.write_at(&[0x5a; 64], parity.physical.0).unwrap();
        let bad = verify();
        assert!(bad.iter().any(|bad| bad.address.is_none()), "{profile:?}: {bad:?}");
        assert!(bad.iter().all(|bad| bad.copy > 0), "{profile:?}: {bad:?}");
    }
}

#[test]
fn missing_devices_and_bad_blocks_are_told() {
    let chunk = chunk(Profile::Raid1, 2);
    let mut devices = memory(2);
    devices[1] = None;
    let volume = volume(&chunk, &devices);
    let bad = volume.verify_data(Logical(START), SECTOR, None).unwrap();
    assert!(matches!(&bad[..], [FailedCopy { copy: 1, problem: CopyProblem::Missing, .. }]));
    let bad = volume.verify_tree_block(Logical(START), &BlockExpectation::default()).unwrap();
    assert_eq!(bad.iter().map(|bad| bad.copy).collect::<Vec<_>>(), [0, 1], "it is no block");
    assert!(volume.verify_data(Logical(START), SECTOR + 1, None).is_err());
    assert!(volume.verify_data(Logical(0), SECTOR, None).is_err());
}
