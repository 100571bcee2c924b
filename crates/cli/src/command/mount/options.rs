//! The words behind `-o`.

use std::time::Duration;

use anyhow::{Context, bail};
use larder::{OpenOptions, WriteCompression};
use larder_fuse::{MountOptions, ServerOptions};

/// What the words behind `-o` say.
#[derive(Debug, Default)]
pub struct Options {
    pub mount: MountOptions,
    pub server: ServerOptions,
    pub degraded: bool,
    /// How often to commit, where it was said.
    pub commit_interval: Option<Duration>,
    /// The subvolume to show, by path or id.
    pub subvolume: Option<Subvolume>,
    /// How to compress what is written, where it was said.
    pub compression: Option<WriteCompression>,
    /// Devices are told what space is needed no more.
    pub discard: bool,
    /// Further devices.
    pub devices: Vec<String>,
}

/// Which subvolume to show.
#[derive(Debug, PartialEq, Eq)]
pub enum Subvolume {
    Path(String),
    Id(u64),
}

/// Words that say what is so anyway, or that are for others who read the same table.
const OF_NO_EFFECT: [&str; 23] = [
    "_netdev",
    "async",
    "auto",
    "datacow",
    "datasum",
    "default_permissions",
    "defaults",
    "dev",
    "exec",
    "noatime",
    "noauto",
    "noautodefrag",
    "nodiratime",
    "noflushoncommit",
    "nofail",
    "nossd",
    "nouser",
    "rw",
    "space_cache=v2",
    "ssd",
    "suid",
    "treelog",
    "acl",
];

/// Words of btrfs that mean something here too, one day.
const NOT_YET: [&str; 18] = [
    "autodefrag",
    "atime",
    "clear_cache",
    "dirsync",
    "fatal_errors",
    "flushoncommit",
    "max_inline",
    "metadata_ratio",
    "noacl",
    "nodatacow",
    "nodatasum",
    "notreelog",
    "nologreplay",
    "relatime",
    "rescue",
    "skip_balance",
    "strictatime",
    "sync",
];

impl Options {
    /// Reads lists of words with commas between them.
    pub fn parse<'a>(lists: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let mut options = Self::default();
        for word in
            lists.into_iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty())
        {
            options.add(word)?;
        }
        Ok(options)
    }

    /// How to open the devices.
    pub fn open_options(&self) -> OpenOptions {
        let options = OpenOptions::new()
            .write(!self.mount.read_only)
            .degraded(self.degraded)
            .compression(self.compression)
            .discard(self.discard);
        match self.commit_interval {
            Some(interval) => options.commit_interval(Some(interval)),
            None => options,
        }
    }

    fn add(&mut self, word: &str) -> anyhow::Result<()> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("ro", None) => self.mount.read_only = true,
            ("rw", None) => self.mount.read_only = false,
            ("allow_other", None) => self.mount.allow_other = true,
            ("nosuid", None) => self.mount.nosuid = true,
            ("nodev", None) => self.mount.nodev = true,
            ("noexec", None) => self.mount.noexec = true,
            ("io_uring", None) => self.mount.io_uring = true,
            ("no_io_uring", None) => self.mount.io_uring = false,
            // What a user may mount for others to see is this much.
            ("user" | "users" | "owner" | "group", None) => {
                (self.mount.nosuid, self.mount.nodev) = (true, true);
            }
            ("compress" | "compress-force", value) => {
                self.compression = compression(name, value).with_context(|| format!("'{word}'"))?;
            }
            ("user_subvol_rm_allowed", None) => self.server.user_subvol_rm_allowed = true,
            ("discard", None | Some("sync" | "async")) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("degraded", None) => self.degraded = true,
            ("device", Some(path)) => self.devices.push(path.to_owned()),
            ("subvol", Some(path)) => self.subvolume = Some(Subvolume::Path(path.to_owned())),
            ("subvolid", Some(id)) => {
                let id = id.parse().with_context(|| format!("'{word}': not an id"))?;
                // As for the kernel, 0 is the top level.
                self.subvolume = Some(Subvolume::Id(if id == 0 { 5 } else { id }));
            }
            ("commit", Some(seconds)) => {
                let seconds: u64 = seconds.parse().with_context(|| format!("'{word}'"))?;
                if seconds > 0 {
                    self.commit_interval = Some(Duration::from_secs(seconds));
                }
            }
            _ if OF_NO_EFFECT.contains(&word) => {}
            ("comment", Some(_)) => {}
            _ if name.starts_with("x-") => {}
            _ if NOT_YET.contains(&name) => bail!("the mount option '{word}' is not supported yet"),
            _ => bail!("unknown mount option '{word}'"),
        }
        Ok(())
    }
}

/// `compress`, `compress=zstd`, `compress-force=zstd:9`, `compress=no`; zlib unless it says otherwise.
fn compression(name: &str, value: Option<&str>) -> anyhow::Result<Option<WriteCompression>> {
    let compression = match value {
        Some("no" | "none") => return Ok(None),
        value => value.unwrap_or("zlib").parse()?,
    };
    Ok(Some(WriteCompression { compression, force: name == "compress-force" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_or_named() {
        let options = Options::parse(["ro,subvol=/home,commit=5", "nodev,x-gvfs-show"]).unwrap();
        assert!(options.mount.read_only && options.mount.nodev && !options.mount.nosuid);
        assert_eq!(options.subvolume, Some(Subvolume::Path("/home".into())));
        assert_eq!(options.commit_interval, Some(Duration::from_secs(5)));
        let error = |list| Options::parse([list]).unwrap_err().to_string();
        assert_eq!(error("rw,wibble=3"), "unknown mount option 'wibble=3'");
        assert!(error("rescue=all").contains("not supported yet"));
        assert!(error("compress=rar").contains("compress=rar"));
        assert!(error("subvolid=x").contains("subvolid=x"));
    }

    #[test]
    fn the_last_word_counts() {
        let compression =
            Options::parse(["compress=zstd:3,compress-force=lzo"]).unwrap().compression;
        assert!(compression.is_some_and(|compression| compression.force));
        assert_eq!(Options::parse(["compress,compress=no"]).unwrap().compression, None);
        assert!(!Options::parse(["ro,rw"]).unwrap().mount.read_only);
        assert_eq!(Options::parse(["subvolid=0"]).unwrap().subvolume, Some(Subvolume::Id(5)));
    }
}
