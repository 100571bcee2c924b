//! Files without a name: as long as one is open, it keeps its changes, synced or not, and can get a
//! name.

use larder::device::MemoryDevice;
use larder::{AllocateMode, File, Filesystem};
use larder_power_cuts::assert_sound;

use super::faults;
use super::on_memory::{assert_has, file_system};

/// More than one file may have in memory before it is written back.
const MUCH_BYTES: usize = 20 << 20;

/// After a power cut now, `path` would have this content.
#[track_caller]
fn assert_survives(memory: &MemoryDevice, path: &str, expected: &[u8]) {
    let image = memory.snapshot();
    assert_sound([&image], path);
    let fs = faults::open(image).unwrap();
    assert_has(&fs.subvolume("/").unwrap().open_file(path).unwrap(), expected);
}

#[test]
fn a_file_that_gets_its_name_after_a_sync_has_its_data() {
    let (fs, root, memory) = file_system("linked-later");
    for (name, len) in [("short", 100), ("long", 300_000)] {
        let file = root.create_unnamed("", 0o600).unwrap();
        let data: Vec<u8> = (0..len).map(|at: u32| (at % 251) as u8).collect();
        file.write_at(&data, 0).unwrap();
        file.sync().unwrap();
        assert_has(&file, &data);
        root.link(&file, name).unwrap();
        file.sync().unwrap();
        assert_survives(&memory, name, &data);
        fs.sync().unwrap();
        assert_survives(&memory, name, &data);
    }
}

#[test]
fn a_file_that_lost_its_name_keeps_its_data_while_it_is_open() {
    let (fs, root, _memory) = file_system("lost-name");
    let removed = root.create("removed", 0o600).unwrap();
    let replaced = root.create("replaced", 0o600).unwrap();
    root.create("other", 0o600).unwrap();
    root.remove_file("removed").unwrap();
    root.rename("other", "replaced").unwrap();
    for file in [&removed, &replaced] {
        for sync in
            [|file: &File, _: &Filesystem| file.sync(), |_: &File, fs: &Filesystem| fs.sync()]
        {
            file.write_at(&vec![7; 100_000], 0).unwrap();
            sync(file, &fs).unwrap();
            assert_has(file, &vec![7; 100_000]);
            let other_handle = file.clone();
            file.write_at(&vec![8; 50_000], 50_000).unwrap();
            sync(file, &fs).unwrap();
            assert_has(&other_handle, &[vec![7; 50_000], vec![8; 50_000]].concat());
        }
    }
}

#[test]
fn background_writeback_keeps_the_data_of_a_file_without_a_name() {
    let (_fs, root, _memory) = file_system("written-back");
    let large = root.create_unnamed("", 0o600).unwrap();
    large.write_at(&vec![1; MUCH_BYTES], 0).unwrap();
    assert_has(&large, &vec![1; MUCH_BYTES]);
    let allocated = root.create_unnamed("", 0o600).unwrap();
    allocated.write_at(&[2; 10_000], 0).unwrap();
    allocated.allocate(100_000, 100_000, AllocateMode::KeepSize).unwrap();
    assert_has(&allocated, &[2; 10_000]);
    let copied = root.create_unnamed("", 0o600).unwrap();
    copied.copy_range(&allocated, 0, 10_000, 0).unwrap();
    copied.write_at(&[3; 10_000], 10_000).unwrap();
    copied.punch_hole(15_000, 5_000).unwrap();
    copied.seek_data(0).unwrap();
    assert_has(&copied, &[[2; 10_000].as_slice(), &[3; 5_000], &[0; 5_000]].concat());
}

#[test]
fn a_file_without_a_name_goes_with_its_last_handle_written_back_or_not() {
    let (fs, root, memory) = file_system("last-handle");
    fs.sync().unwrap();
    let used_before = fs.used_bytes();
    let files = [(); 3].map(|()| root.create_unnamed("", 0o600).unwrap());
    for file in &files {
        file.write_at(&vec![4; 1 << 20], 0).unwrap();
    }
    fs.sync().unwrap();
    for file in &files {
        file.write_at(&vec![5; 1 << 20], 1 << 20).unwrap();
    }
    let handles = files.clone();
    drop(files);
    fs.sync().unwrap();
    assert_has(&handles[0], &[vec![4; 1 << 20], vec![5; 1 << 20]].concat());
    drop(handles);
    fs.sync().unwrap();
    fs.sync().unwrap();
    assert!(fs.used_bytes() < used_before + (1 << 20));
    assert_sound([&memory.snapshot()], "all handles are gone");
}
