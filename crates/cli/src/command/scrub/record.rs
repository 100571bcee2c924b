//! What is kept of scrubs after they end: the files of btrfs-progs, in its format.
//!
//! # Invariants
//! - A file is replaced as a whole: a crash leaves the one before.
//! - Where btrfs-progs scrubs, its socket has newer records than its file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use larder::Uuid;
use larder_ioctl::ScrubProgress;
use zerocopy::FromZeros;

const DIRECTORY: &str = "/var/lib/btrfs";
const MOMENT: Duration = Duration::from_millis(20);
const MOMENTS: u32 = 10;
const FIRST_LINE: &str = "scrub status:1";

/// The last scrub of a device.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub devid: u64,
    pub progress: ScrubProgress,
    /// Seconds since 1970.
    pub started: u64,
    /// Seconds since 1970; 0 if it never was.
    pub resumed: u64,
    /// Seconds.
    pub duration: u64,
    pub is_cancelled: bool,
    pub is_finished: bool,
}

/// A counter by its name in the file.
type Counter = (&'static str, fn(&mut ScrubProgress) -> &mut u64);

pub const COUNTERS: [Counter; 14] = [
    ("data_extents_scrubbed", |it| &mut it.data_extents_scrubbed),
    ("tree_extents_scrubbed", |it| &mut it.tree_extents_scrubbed),
    ("data_bytes_scrubbed", |it| &mut it.data_bytes_scrubbed),
    ("tree_bytes_scrubbed", |it| &mut it.tree_bytes_scrubbed),
    ("read_errors", |it| &mut it.read_errors),
    ("csum_errors", |it| &mut it.csum_errors),
    ("verify_errors", |it| &mut it.verify_errors),
    ("no_csum", |it| &mut it.no_csum),
    ("csum_discards", |it| &mut it.csum_discards),
    ("super_errors", |it| &mut it.super_errors),
    ("malloc_errors", |it| &mut it.malloc_errors),
    ("uncorrectable_errors", |it| &mut it.uncorrectable_errors),
    ("corrected_errors", |it| &mut it.corrected_errors),
    ("last_physical", |it| &mut it.last_physical),
];

impl Record {
    pub fn new(devid: u64) -> Self {
        Self {
            devid,
            progress: ScrubProgress::new_zeroed(),
            started: 0,
            resumed: 0,
            duration: 0,
            is_cancelled: false,
            is_finished: false,
        }
    }

    /// Whether there is something left to scrub.
    pub fn is_resumable(&self) -> bool {
        self.is_cancelled || !self.is_finished
    }

    fn line(mut self, uuid: Uuid) -> String {
        let mut fields = vec![format!("{uuid}:{}", self.devid)];
        let progress = &mut self.progress;
        fields.extend(COUNTERS.map(|(name, counter)| format!("{name}:{}", counter(progress))));
        let is = u64::from;
        let rest = [
            ("t_start", self.started),
            ("t_resumed", self.resumed),
            ("duration", self.duration),
            ("canceled", is(self.is_cancelled)),
            ("finished", is(self.is_finished)),
        ];
        fields.extend(rest.map(|(name, value)| format!("{name}:{value}")));
        fields.join("|") + "\n"
    }

    fn parse(line: &str, uuid: Uuid) -> Option<Self> {
        let mut fields = line.split('|');
        let (own, devid) = fields.next()?.split_once(':')?;
        let mut record = Self::new(devid.parse().ok()?);
        if own != uuid.to_string() {
            return None;
        }
        for field in fields {
            let (name, value) = field.split_once(':')?;
            let value: u64 = value.parse().ok()?;
            match name {
                "t_start" => record.started = value,
                "t_resumed" => record.resumed = value,
                "duration" => record.duration = value,
                "canceled" => record.is_cancelled = value != 0,
                "finished" => record.is_finished = value != 0,
                _ => {
                    let counter = COUNTERS.iter().find(|(known, _)| *known == name);
                    if let Some((_, counter)) = counter {
                        *counter(&mut record.progress) = value;
                    }
                }
            }
        }
        Some(record)
    }
}

/// The directory for records: that of btrfs-progs, or one of this user's own.
fn directory() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return DIRECTORY.into();
    }
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    state.unwrap_or_else(|| "/var/tmp".into()).join("btrfs")
}

/// Makes the directory. It has to be this user's: another one could have put links into it.
fn make_directory() -> io::Result<()> {
    fs::create_dir_all(directory())?;
    let owner = fs::metadata(directory())?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        let message = format!("{}: belongs to another user", directory().display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

fn path(kind: &str, uuid: Uuid) -> PathBuf {
    directory().join(format!("scrub.{kind}.{uuid}"))
}

/// The records of a file system.
pub fn read(uuid: Uuid) -> anyhow::Result<Vec<Record>> {
    let mut text = String::new();
    if let Ok(mut socket) = UnixStream::connect(path("progress", uuid)) {
        socket.read_to_string(&mut text).context("the running scrub of btrfs-progs")?;
    } else {
        match fs::read_to_string(path("status", uuid)) {
            Ok(read) => text = read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| path("status", uuid).display().to_string());
            }
        }
    }
    let corrupt = || {
        let path = path("status", uuid);
        anyhow!("{}: is no record of scrubs; 'scrub start -f' writes it anew", path.display())
    };
    let mut lines = text.lines();
    let (first, version) = (lines.next(), FIRST_LINE);
    if first != Some(version) {
        return Err(corrupt());
    }
    lines.map(|line| Record::parse(line, uuid).ok_or_else(corrupt)).collect()
}

/// Replaces the records of a file system.
pub fn write(uuid: Uuid, records: &[Record]) -> io::Result<()> {
    make_directory()?;
    let (path, half) = (path("status", uuid), directory().join(format!("scrub.status.{uuid}_tmp")));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&half)?;
    writeln!(file, "{FIRST_LINE}")?;
    for record in records {
        file.write_all(record.line(uuid).as_bytes())?;
    }
    file.sync_data()?;
    fs::rename(half, path)
}

/// The process that scrubs an image, as long as it lives.
pub struct Claim(File);

impl Claim {
    /// Takes the place of the process that scrubs the image of a file system; `None` if there is one.
    pub fn take(uuid: Uuid) -> io::Result<Option<Self>> {
        make_directory()?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.mode(0o600).open(path("running", uuid))?;
        // A process that asks for the holder locks the file for a moment.
        let has_it = |_| file.try_lock().is_ok() || (thread::sleep(MOMENT), false).1;
        if !(0..MOMENTS).any(has_it) {
            return Ok(None);
        }
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        Ok(Some(Self(file)))
    }

    /// The process that scrubs the image of a file system now.
    pub fn holder(uuid: Uuid) -> Option<i32> {
        let mut file = File::open(path("running", uuid)).ok()?;
        // The holder locks it for itself alone.
        if file.try_lock_shared().is_ok() {
            return None;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        text.parse().ok()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The next process writes its own number.
        let _ = self.0.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_btrfs_progs_survives() {
        let line = "32b1cb36-833d-4e12-a63d-637835fc7a9f:2|data_extents_scrubbed:112|\
                    tree_extents_scrubbed:20|data_bytes_scrubbed:7340032|tree_bytes_scrubbed:327680|\
                    read_errors:0|csum_errors:2|verify_errors:4|no_csum:512|csum_discards:0|\
                    super_errors:1|malloc_errors:0|uncorrectable_errors:0|corrected_errors:6|\
                    last_physical:74514432|t_start:1795962508|t_resumed:7|duration:3|canceled:1|\
                    finished:0\n";
        let uuid = Uuid::parse_str("32b1cb36-833d-4e12-a63d-637835fc7a9f").unwrap();
        let record = Record::parse(line.trim(), uuid).unwrap();
        assert_eq!((record.devid, record.progress.last_physical), (2, 74_514_432));
        assert!(record.is_resumable());
        assert_eq!(record.line(uuid), line);
        assert!(Record::parse("nonsense", uuid).is_none());
        assert!(Record::parse(line.trim(), Uuid::nil()).is_none());
    }
}
