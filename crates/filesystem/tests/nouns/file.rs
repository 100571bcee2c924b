//! Data of files: written, shared, cut.

use larder_filesystem::{AllocateMode, ErrorKind, ExtentKind, File};

use super::{Disk, SECTOR, make_file, open_file, read, refused, top, write};

/// The kinds of the extents of a file, in order.
fn kinds(file: &File) -> Vec<&'static str> {
    let extents = file.extents_from(0).unwrap();
    let kind = |kind| match kind {
        ExtentKind::Hole => "hole",
        ExtentKind::Delayed => "delayed",
        ExtentKind::Inline => "inline",
        ExtentKind::Preallocated => "preallocated",
        ExtentKind::Data => "data",
    };
    extents.map(|extent| kind(extent.unwrap().kind)).collect()
}

#[test]
fn data_gets_a_place_when_it_is_committed() {
    let disk = Disk::new();
    let fs = disk.open();
    let file = make_file(&top(&fs), "file");
    write(&file, &vec![1; 3 * SECTOR as usize], SECTOR);
    assert_eq!(kinds(&file), ["hole", "delayed"]);
    fs.sync().unwrap();
    assert_eq!(kinds(&file), ["hole", "data"]);
    drop((file, fs));
    disk.check();
    let fs = disk.open();
    let file = open_file(&top(&fs), "file");
    assert_eq!(read(&file), [vec![0; SECTOR as usize], vec![1; 3 * SECTOR as usize]].concat());
}

#[test]
fn a_short_file_lies_in_the_tree_until_it_grows() {
    let disk = Disk::new();
    let fs = disk.open();
    let file = make_file(&top(&fs), "file");
    write(&file, b"bread", 0);
    fs.sync().unwrap();
    assert_eq!(kinds(&file), ["inline"]);
    write(&file, b"butter", SECTOR);
    fs.sync().unwrap();
    assert_eq!(kinds(&file), ["data"]);
    let mut expected = vec![0; SECTOR as usize];
    expected[..5].copy_from_slice(b"bread");
    assert_eq!(read(&file), [expected, b"butter".to_vec()].concat());
    disk.check();
}

#[test]
fn truncated_data_does_not_come_back() {
    let disk = Disk::new();
    let fs = disk.open();
    let file = make_file(&top(&fs), "file");
    write(&file, &vec![7; 20_000], 0);
    fs.sync().unwrap();
    file.set_len(5000).unwrap();
    file.set_len(20_000).unwrap();
    let expected = [vec![7; 5000], vec![0; 15_000]].concat();
    assert_eq!(read(&file), expected);
    fs.sync().unwrap();
    assert_eq!(read(&file), expected);
    disk.check();
}

#[test]
fn a_hole_reads_as_zeros_and_takes_no_space() {
    let disk = Disk::new();
    let fs = disk.open();
    let file = make_file(&top(&fs), "file");
    write(&file, &vec![7; 10 * SECTOR as usize], 0);
    fs.sync().unwrap();
    let before = file.metadata().allocated_bytes;
    file.punch_hole(2 * SECTOR + 100, 4 * SECTOR).unwrap();
    fs.sync().unwrap();
    assert_eq!(before - file.metadata().allocated_bytes, 3 * SECTOR);
    let hole = 2 * SECTOR as usize + 100..6 * SECTOR as usize + 100;
    let mut expected = vec![7; 10 * SECTOR as usize];
    expected[hole].fill(0);
    assert_eq!(read(&file), expected);
    disk.check();
}

#[test]
fn preallocated_space_reads_as_zeros_until_it_is_written() {
    let disk = Disk::new();
    let fs = disk.open();
    let file = make_file(&top(&fs), "file");
    file.allocate(0, 8 * SECTOR, AllocateMode::Grow).unwrap();
    assert_eq!(kinds(&file), ["preallocated"]);
    write(&file, &vec![5; SECTOR as usize], 3 * SECTOR);
    fs.sync().unwrap();
    assert_eq!(kinds(&file), ["preallocated", "data", "preallocated"]);
    let mut expected = vec![0; 8 * SECTOR as usize];
    expected[3 * SECTOR as usize..4 * SECTOR as usize].fill(5);
    assert_eq!(read(&file), expected);
    disk.check();
}

#[test]
fn clones_share_until_one_is_written() {
    let disk = Disk::new();
    let fs = disk.open();
    let (source, clone) = (make_file(&top(&fs), "source"), make_file(&top(&fs), "clone"));
    write(&source, &vec![3; 8 * SECTOR as usize], 0);
    let share = |len| clone.clone_range(&source, 0, len, SECTOR);
    assert_eq!(refused(share(100)), ErrorKind::InvalidInput);
    share(8 * SECTOR).unwrap();
    assert!(source.is_shared(0).unwrap());
    write(&clone, &vec![4; 8 * SECTOR as usize], SECTOR);
    fs.sync().unwrap();
    assert!(!source.is_shared(0).unwrap());
    assert_eq!(read(&source), vec![3; 8 * SECTOR as usize]);
    assert_eq!(read(&clone), [vec![0; SECTOR as usize], vec![4; 8 * SECTOR as usize]].concat());
    disk.check();
}

#[test]
fn a_cursor_reads_writes_and_seeks() {
    use std::io::{Read, Seek, SeekFrom, Write};
    let disk = Disk::new();
    let fs = disk.open();
    let mut cursor = make_file(&top(&fs), "bread").cursor();
    cursor.write_all(b"bread and butter").unwrap();
    assert_eq!(cursor.seek(SeekFrom::Current(-6)).unwrap(), 10);
    let mut rest = String::new();
    cursor.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "butter");
    // Past the end there is a hole.
    cursor.seek(SeekFrom::End(4)).unwrap();
    cursor.write_all(b"!").unwrap();
    cursor.rewind().unwrap();
    let mut all = Vec::new();
    cursor.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"bread and butter\0\0\0\0!");
    assert!(cursor.seek(SeekFrom::Start(3)).is_ok() && cursor.seek(SeekFrom::Current(-4)).is_err());
    assert_eq!(cursor.file().len_bytes(), 21);
}
