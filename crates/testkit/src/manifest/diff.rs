//! The differences between two manifests, field by field.

use std::fmt;

use super::{Body, Entry, Manifest, Timestamp};

/// The most differences that a failed comparison shows.
const SHOWN: usize = 20;

/// A field of an entry that differs, or a whole entry that only one side has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path of the entry.
    pub path: Vec<u8>,
    /// The name of the field, or `entry`.
    pub field: String,
    /// The expected value.
    pub expected: String,
    /// The actual value.
    pub actual: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, field, expected, actual } = self;
        let path = path.escape_ascii();
        write!(formatter, "/{path}: {field}: expected {expected}, found {actual}")
    }
}

impl Manifest {
    /// The differences of `actual`, in the order of paths.
    pub fn differences(&self, actual: &Self) -> Vec<Difference> {
        let mut differences = Vec::new();
        for (path, expected) in &self.entries {
            match actual.entries.get(path) {
                Some(found) if found == expected => {}
                Some(found) => differences.extend(entry_differences(path, expected, found)),
                None => differences.push(missing(path, kind(&expected.body), "nothing")),
            }
        }
        for (path, found) in &actual.entries {
            if !self.entries.contains_key(path) {
                differences.push(missing(path, "nothing", kind(&found.body)));
            }
        }
        differences.sort_by(|a, b| a.path.cmp(&b.path));
        differences
    }
}

/// Panics with the first differences unless `actual` is `expected`.
#[track_caller]
pub fn assert_same(expected: &Manifest, actual: &Manifest) {
    let differences = expected.differences(actual);
    if differences.is_empty() {
        return;
    }
    let shown: Vec<String> = differences.iter().take(SHOWN).map(ToString::to_string).collect();
    panic!(
        "{} differences among {} entries, the first are:\n  {}",
        differences.len(),
        expected.entries.len(),
        shown.join("\n  ")
    );
}

fn missing(path: &[u8], expected: &str, actual: &str) -> Difference {
    Difference {
        path: path.to_vec(),
        field: "entry".into(),
        expected: expected.into(),
        actual: actual.into(),
    }
}

fn entry_differences(path: &[u8], expected: &Entry, actual: &Entry) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut compare = |field: &str, expected: String, actual: String| {
        if expected != actual {
            found.push(Difference { path: path.to_vec(), field: field.into(), expected, actual });
        }
    };
    let pairs = scalars(expected).into_iter().zip(scalars(actual));
    for ((field, expected), (_, actual)) in pairs {
        compare(field, expected, actual);
    }
    let mut names: Vec<_> = expected.xattrs.keys().chain(actual.xattrs.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let value = |entry: &Entry| entry.xattrs.get(name).map_or("nothing".into(), |v| bytes(v));
        let field = format!("xattr {}", name.escape_ascii());
        compare(&field, value(expected), value(actual));
    }
    compare("type", kind(&expected.body).into(), kind(&actual.body).into());
    if kind(&expected.body) == kind(&actual.body) {
        for (field, expected, actual) in body_pairs(&expected.body, &actual.body) {
            compare(field, expected, actual);
        }
    }
    found
}

fn scalars(entry: &Entry) -> [(&'static str, String); 13] {
    [
        ("permissions", format!("{:04o}", entry.permissions)),
        ("uid", entry.uid.to_string()),
        ("gid", entry.gid.to_string()),
        ("nlink", entry.nlink.to_string()),
        ("size", entry.size_bytes.to_string()),
        ("allocated bytes", entry.allocated_bytes.to_string()),
        ("atime", time(entry.atime)),
        ("mtime", time(entry.mtime)),
        ("ctime", time(entry.ctime)),
        ("otime", time(entry.otime)),
        ("inode", entry.inode.to_string()),
        ("subvolume", entry.subvolume.to_string()),
        ("flags", entry.flags.map_or("none".into(), |flags| format!("{flags:#010x}"))),
    ]
}

/// The fields of two bodies of one type.
fn body_pairs(expected: &Body, actual: &Body) -> Vec<(&'static str, String, String)> {
    match (expected, actual) {
        (Body::File { hash, data }, Body::File { hash: other_hash, data: other_data }) => {
            let (ranges, other_ranges) = first_difference("ranges", data, other_data, |range| {
                format!("{}..{}", range.start, range.end)
            });
            vec![
                ("content hash", format!("{hash:016x}"), format!("{other_hash:016x}")),
                ("data ranges", ranges, other_ranges),
            ]
        }
        (Body::Folder { names }, Body::Folder { names: others }) => {
            let (names, others) = first_difference("names", names, others, |name| bytes(name));
            vec![("names", names, others)]
        }
        (Body::Symlink { target }, Body::Symlink { target: other }) => {
            vec![("target", bytes(target), bytes(other))]
        }
        (
            Body::CharacterDevice { number } | Body::BlockDevice { number },
            Body::CharacterDevice { number: other } | Body::BlockDevice { number: other },
        ) => vec![("device number", format!("{number:?}"), format!("{other:?}"))],
        _ => Vec::new(),
    }
}

/// Describes two lists by their lengths and their first difference. Equal lists give equal texts.
fn first_difference<T: PartialEq>(
    what: &str,
    expected: &[T],
    actual: &[T],
    show: impl Fn(&T) -> String,
) -> (String, String) {
    if expected == actual {
        return (String::new(), String::new());
    }
    let place = expected.iter().zip(actual).take_while(|(a, b)| a == b).count();
    let describe = |list: &[T]| {
        let item = list.get(place).map_or("nothing".into(), &show);
        format!("{} {what}, {item} at {place}", list.len())
    };
    (describe(expected), describe(actual))
}

fn kind(body: &Body) -> &'static str {
    match body {
        Body::File { .. } => "file",
        Body::Folder { .. } => "folder",
        Body::Symlink { .. } => "symbolic link",
        Body::CharacterDevice { .. } => "character device",
        Body::BlockDevice { .. } => "block device",
        Body::Fifo => "fifo",
        Body::Socket => "socket",
    }
}

fn time(time: Timestamp) -> String {
    format!("{}s+{}ns", time.seconds, time.nanoseconds)
}

/// Bytes as escaped text; for long values the start, the length and a hash.
fn bytes(value: &[u8]) -> String {
    const SHOWN_BYTES: usize = 60;
    if value.len() <= SHOWN_BYTES {
        return format!("\"{}\"", value.escape_ascii());
    }
    let hash = xxhash_rust::xxh64::xxh64(value, 0);
    let start = value[..SHOWN_BYTES].escape_ascii();
    format!("\"{start}\"... ({} bytes, hash {hash:016x})", value.len())
}
