//! Extended attributes.

use larder_filesystem::{ErrorKind, XattrMode};

use super::{Disk, lookup, make_file, refused, top};

#[test]
fn attributes_are_made_replaced_and_removed() {
    let disk = Disk::new();
    let fs = disk.open();
    let file = make_file(&top(&fs), "file");
    let set = |value: &[u8], mode| file.set_xattr("user.taste", value, mode);
    assert_eq!(refused(set(b"salty", XattrMode::Replace)), ErrorKind::NoSuchAttribute);
    set(b"salty", XattrMode::Create).unwrap();
    assert_eq!(refused(set(b"sour", XattrMode::Create)), ErrorKind::AlreadyExists);
    set(b"sweet", XattrMode::Any).unwrap();
    file.set_xattr("user.colour", &[9; 3000], XattrMode::Any).unwrap();
    fs.sync().unwrap();
    drop((file, fs));
    disk.check();
    let fs = disk.open();
    let file = lookup(&top(&fs), "file").unwrap();
    assert_eq!(file.xattr("user.taste").unwrap(), b"sweet");
    file.remove_xattr("user.taste").unwrap();
    assert_eq!(refused(file.remove_xattr("user.taste")), ErrorKind::NoSuchAttribute);
    let names: Vec<_> = file.xattrs().map(|xattr| xattr.unwrap().name).collect();
    assert_eq!(names, ["user.colour"]);
    fs.sync().unwrap();
    disk.check();
}
