//! Full file systems: ENOSPC comes before anything changes, deleting always works, and freed space
//! can be used again.

use larder_testkit::KernelMount;
use larder_transaction::space::{Priority, SpaceKind};
use larder_transaction::{Error, Result, TransactionManager};

use crate::support::{Blank, Directory, Random, open, write_data};

fn create(manager: &TransactionManager, directory: &Directory, name: &str) -> Result<()> {
    let handle = manager.start(8, Priority::Normal)?;
    let inode = directory.create(&handle, name)?;
    directory.set_xattr(inode, &[7; 3000])?;
    handle.end()
}

fn remove(manager: &TransactionManager, directory: &Directory, name: &str) -> Result<()> {
    let handle = manager.start(8, Priority::Deleting)?;
    directory.remove(&handle, name)?;
    handle.end()
}

/// Fills the space for metadata, deletes half at random, and so on.
fn fill_metadata(image: &Blank, seed: u64, rounds: u64) {
    let mut random = Random(larder_testkit::seed(seed));
    let mut names: Vec<String> = Vec::new();
    let mut next = 0;
    for round in 0..rounds {
        let manager = open(&image.devices);
        let directory = Directory::open(&manager, 5);
        loop {
            let name = format!("file-{next}");
            match create(&manager, &directory, &name) {
                Ok(()) => names.push(name),
                Err(Error::NoSpace { kind: SpaceKind::Metadata, .. }) => break,
                Err(error) => panic!("round {round}, file {next}: {error}"),
            }
            next += 1;
        }
        println!("round {round}: {} files", names.len());
        for _ in 0..names.len() / 2 {
            let name = names.swap_remove(random.below(names.len() as u64) as usize);
            remove(&manager, &directory, &name).unwrap();
        }
        manager.commit().unwrap();
        drop(manager);
        image.check(&format!("round {round}"));
    }
    assert!(next > 2000, "{next} files");
}

#[test]
fn metadata() {
    fill_metadata(&Blank::new("", &[128 << 20]), 31, 4);
}

#[test]
fn mixed_groups_with_small_nodes() {
    fill_metadata(&Blank::new("--mixed -n 4096", &[64 << 20]), 32, 4);
}

/// Fills the space for data, deletes half at random, and so on; in the end all.
fn fill_data(image: &Blank, seed: u64, rounds: u64) {
    let mut random = Random(larder_testkit::seed(seed));
    let mut names: Vec<String> = Vec::new();
    let mut next = 0;
    let mut most_groups = 0;
    for round in 0..rounds {
        let manager = open(&image.devices);
        let directory = Directory::open(&manager, 5);
        loop {
            let name = format!("file-{next}");
            let len_bytes = (1 + random.below(400)) * 4096;
            let data = match manager.reserve(SpaceKind::Data, len_bytes, Priority::Normal) {
                Ok(data) => data,
                Err(Error::NoSpace { kind: SpaceKind::Data, .. }) => break,
                Err(error) => panic!("round {round}, file {next}: {error}"),
            };
            // In the worst case every sector becomes an extent of its own; here few do.
            let handle = manager.start(16, Priority::Normal).unwrap();
            let inode = directory.create(&handle, &name).unwrap();
            write_data(&manager, &handle, inode, len_bytes).unwrap();
            handle.end().unwrap();
            drop(data);
            names.push(name);
            next += 1;
        }
        most_groups = most_groups.max(manager.space().groups().len());
        println!("round {round}: {} files", names.len());
        let keep = if round == rounds - 1 { 0 } else { names.len() / 2 };
        while names.len() > keep {
            let name = names.swap_remove(random.below(names.len() as u64) as usize);
            remove(&manager, &directory, &name).unwrap();
        }
        manager.commit().unwrap();
        drop(manager);
        image.check(&format!("round {round}"));
    }
    assert!(next > 200, "{next} files");
    // The groups are empty once nothing of theirs is pinned: the commit after that removes them.
    let manager = open(&image.devices);
    let directory = Directory::open(&manager, 5);
    create(&manager, &directory, "last").unwrap();
    manager.commit().unwrap();
    let groups = manager.space().groups().len();
    assert!(groups < most_groups, "{groups} block groups left of {most_groups}");
    drop(manager);
    image.check("removing block groups");
    assert!(KernelMount::open(&image.devices, "").path().join("last").exists());
}

#[test]
fn data() {
    fill_data(&Blank::new("", &[256 << 20]), 33, 4);
}

#[test]
fn data_over_several_devices() {
    let blank = |profile: &str, devices| {
        Blank::new(&format!("-d {profile} -m {profile}"), &vec![256 << 20; devices])
    };
    fill_data(&blank("raid0", 3), 34, 2);
    fill_data(&blank("raid1", 3), 35, 2);
    fill_data(&blank("raid10", 4), 36, 2);
    fill_data(&blank("raid1c3", 4), 37, 2);
}
