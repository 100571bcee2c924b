//! The words after `-o`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use larder::device::Place;
use larder::{Filesystem, OpenOptions, Rescue, WriteCompression, WritePolicy};
use larder_fuse::{AccessTimes, MountOptions, ServerOptions, Settings};

use super::follow::INTERVAL;
use crate::operand::parse_number;
use crate::owner::MapOptions;
use crate::place::parse_partition;
use crate::resync;
use larder_objects::parse_size;

/// The options in the words after `-o`.
#[derive(Debug, Default)]
pub struct Options {
    pub mount: MountOptions,
    pub server: ServerOptions,
    pub degraded: bool,
    /// What to do without if the file system is damaged.
    rescue: Rescue,
    /// The generation of the state to show, unless that is the last one.
    generation: Option<u64>,
    /// How often to commit, if given.
    pub commit_interval: Option<Duration>,
    /// The subvolume to show, by path or id.
    pub subvolume: Option<Subvolume>,
    /// How to compress new data, if given.
    pub compression: Option<WriteCompression>,
    /// Whether freed space is discarded on devices, if given.
    pub discard: Option<bool>,
    /// How new files are written.
    pub write_policy: WritePolicy,
    /// Whether `remount` was given.
    pub remounts: bool,
    /// Which users and groups are shown for others.
    owners: MapOptions,
    /// Further devices.
    pub devices: Vec<String>,
    /// Where on the devices.
    pub place: Place,
    /// The file with the key of what is encrypted on object storage.
    key_file: Option<OsString>,
    /// The journal of what is on object storage, and how long its file becomes.
    journal: Option<OsString>,
    journal_size: Option<OsString>,
}

/// The variables that say the same.
const KEY_FILE: &str = "LARDER_KEY_FILE";
const JOURNAL: &str = "LARDER_JOURNAL";
const JOURNAL_SIZE: &str = "LARDER_JOURNAL_SIZE";

/// Which subvolume to show.
#[derive(Debug, PartialEq, Eq)]
pub enum Subvolume {
    Path(String),
    Id(u64),
}

impl fmt::Display for Subvolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "subvol={path}"),
            Self::Id(id) => write!(f, "subvolid={id}"),
        }
    }
}

/// Words that change nothing, or that are for other programs that read the same table.
const OF_NO_EFFECT: [&str; 34] = [
    "_netdev",
    "acl",
    "async",
    "auto",
    "barrier",
    "default_permissions",
    "defaults",
    // A commit always has all data.
    "flushoncommit",
    // An image needs no loop device here.
    "loop",
    "loud",
    // The kernel has no such locks any more.
    "mand",
    "noauto",
    "noautodefrag",
    "noenospc_debug",
    "noflushoncommit",
    "nofail",
    "nogroup",
    "noinode_cache",
    "noiversion",
    "nolazytime",
    "nomand",
    "noowner",
    "norelatime",
    "nossd",
    "nossd_spread",
    "nostrictatime",
    "nouser",
    "nousers",
    // A balance that was interrupted waits until somebody resumes it.
    "skip_balance",
    "silent",
    "space_cache",
    "space_cache=v2",
    "ssd",
    "symfollow",
];

/// Words of btrfs that cannot be obeyed, and why.
const REFUSED: [(&str, &str); 25] = [
    ("alloc_start", "space is given out from the start of each device"),
    ("autodefrag", "nothing is defragmented in the background"),
    ("bind", "that is for mount(8): mount --bind"),
    ("check_int", "no checker compares what is written with what was there"),
    ("check_int_data", "no checker compares what is written with what was there"),
    ("check_int_print_mask", "no checker compares what is written with what was there"),
    ("clear_cache", "the free space tree is always in use"),
    ("dirsync", "only fsync and O_SYNC make names durable at once"),
    ("enospc_debug", "an error about space has no further report"),
    ("fatal_errors", "after an error in a commit a file system can only be read"),
    ("fragment", "space is not scattered on purpose"),
    ("inode_cache", "numbers of inodes only rise"),
    ("iversion", "the kernel does not ask a FUSE server for versions of inodes"),
    ("lazytime", "times are written with everything else"),
    ("metadata_ratio", "space is set aside as it is needed"),
    ("noacl", "ACLs always count"),
    ("nobarrier", "no commit is sound without flushes"),
    ("nospace_cache", "the free space tree is always in use"),
    ("ref_verify", "references are counted in one way only"),
    ("rescan_uuid_tree", "the uuid tree is kept up to date"),
    ("sizelimit", "the file system says where it ends"),
    ("space_cache=v1", "free space is kept in a tree"),
    ("ssd_spread", "space is given out in one way only"),
    ("sync", "only fsync and O_SYNC make writes durable at once"),
    ("thread_pool", "threads start as they are needed"),
];

/// Exists if the kernel runs SELinux.
const SELINUX: &str = "/sys/fs/selinux";

/// The option of SELinux with this name.
fn label(name: &str) -> Option<&'static str> {
    ["context", "fscontext", "defcontext", "rootcontext"].into_iter().find(|it| *it == name)
}

impl Options {
    /// Reads lists of words with commas between them.
    pub fn parse<'a>(lists: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let mut options = Self::default();
        for word in
            lists.into_iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty())
        {
            options.add(word)?;
        }
        options.server.owner_map = options.owners.map_of_mount()?;
        ensure!(
            !options.rescue.is_for_reading() || options.mount.read_only,
            "rescue= goes with ro, except for usebackuproot: what it does without is needed for \
             writing"
        );
        ensure!(
            options.server.follow.is_none() || options.mount.read_only,
            "follow goes with ro: a mount that writes shows its own changes, and others end it"
        );
        Ok(options)
    }

    /// The settings that can change on a mount of `devices` with the options `before`.
    pub fn settings(&self, before: &Self, devices: &[PathBuf]) -> anyhow::Result<Settings> {
        ensure!(
            self.server.access_times == before.server.access_times,
            "the times of last access to keep can only be set when mounting"
        );
        ensure!(
            self.mount.allow_other == before.mount.allow_other,
            "the users with access can only be set when mounting"
        );
        ensure!(
            self.server.owner_map == before.server.owner_map,
            "map-users, map-groups and squash can only be set when mounting: the kernel keeps the \
             owners that it was shown"
        );
        ensure!(
            self.server.follow == before.server.follow,
            "follow can only be set when mounting: the kernel is told then how long it may remember"
        );
        ensure!(
            self.place == before.place,
            "the partition and the offset can only be set when mounting"
        );
        ensure!(
            self.generation == before.generation,
            "the generation to show can only be set when mounting"
        );
        Ok(Settings {
            open: self.open_options(),
            read_only: self.mount.read_only,
            devices: devices.to_vec(),
            server: self.server.clone(),
        })
    }

    /// Whether a mount with these options has the same users as one with `other`, shows them the
    /// same owners, and keeps the same times of last access.
    pub fn shows_likewise(&self, other: &Self) -> bool {
        let shows =
            |it: &Self| (it.mount.allow_other, it.server.access_times, it.server.nodiratime);
        shows(self) == shows(other) && self.server.owner_map == other.server.owner_map
    }

    /// The subvolume to show.
    pub fn shown(&self, filesystem: &Filesystem) -> larder::Result<larder::Subvolume> {
        match &self.subvolume {
            Some(Subvolume::Path(path)) => filesystem.subvolume(path),
            Some(Subvolume::Id(id)) => filesystem.subvolume_by_id(*id),
            None => filesystem.default_subvolume(),
        }
    }

    /// Whether a server that obeys these options also obeys `other`, apart from the options that
    /// each mount has for itself.
    pub fn serves_likewise(&self, other: &Self) -> bool {
        let served = |it: &Self| {
            let Self { compression, write_policy, discard, .. } = *it;
            let shown = (it.degraded, it.generation, it.rescue);
            let tuned = (compression, write_policy, discard, it.commit_interval, shown);
            let ServerOptions { user_subvol_rm_allowed, notreelog, writeback_cache, .. } =
                it.server;
            (tuned, user_subvol_rm_allowed, notreelog, writeback_cache, it.mount.io_uring)
        };
        served(self) == served(other)
    }

    /// The variables of the environment that the options ask for, and that this process lacks.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let given = [
            (KEY_FILE, &self.key_file),
            (JOURNAL, &self.journal),
            (JOURNAL_SIZE, &self.journal_size),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        given.filter(|(name, value)| env::var_os(name).as_ref() != Some(value))
    }

    /// How to open the devices.
    pub fn open_options(&self) -> OpenOptions {
        let options = resync::shown(OpenOptions::new())
            .write(!self.mount.read_only)
            .degraded(self.degraded)
            .rescue(self.rescue)
            .generation(self.generation)
            .place(self.place)
            .compression(self.compression)
            .write_policy(self.write_policy);
        let options = match self.discard {
            Some(discard) => options.discard(discard),
            None => options,
        };
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
            ("remount", None) => self.remounts = true,
            // Options that the kernel shows of a mount, and mount(8) repeats.
            ("user_id" | "group_id" | "blksize", Some(_)) => {}
            ("allow_other", None) => self.mount.allow_other = true,
            ("nosuid", None) => self.mount.nosuid = true,
            ("nodev", None) => self.mount.nodev = true,
            ("noexec", None) => self.mount.noexec = true,
            ("suid", None) => self.mount.nosuid = false,
            ("dev", None) => self.mount.nodev = false,
            ("exec", None) => self.mount.noexec = false,
            ("nosymfollow", None) => self.mount.nosymfollow = true,
            ("symfollow", None) => self.mount.nosymfollow = false,
            _ if let (Some(name), Some(label)) = (label(name), value) => {
                // mount(8) leaves them out, too, where there is no SELinux.
                if Path::new(SELINUX).exists() {
                    self.mount.labels.push((name, label.trim_matches('"').to_owned()));
                }
            }
            ("follow", None) => self.server.follow = Some(INTERVAL),
            ("follow", Some(seconds)) => {
                let seconds = number(word, seconds)?;
                ensure!(seconds > 0, "mount option '{word}': it takes a second at least");
                self.server.follow = Some(Duration::from_secs(seconds));
            }
            ("io_uring", None) => self.mount.io_uring = true,
            ("no_io_uring", None) => self.mount.io_uring = false,
            ("awake", None) => self.mount.awake = true,
            ("noawake", None) => self.mount.awake = false,
            // A user may mount so much for other users to see, unless later words say otherwise.
            ("user" | "users" | "owner" | "group", None) => {
                (self.mount.nosuid, self.mount.nodev) = (true, true);
                self.mount.noexec |= name.starts_with("user");
            }
            ("compress" | "compress-force", value) => {
                self.compression = compression(name, value).with_context(|| format!("'{word}'"))?;
                if self.compression.is_some() {
                    (self.write_policy.datacow, self.write_policy.datasum) = (true, true);
                }
            }
            ("nodatacow", None) => {
                (self.write_policy.datacow, self.write_policy.datasum) = (false, false);
                self.compression = None;
            }
            ("datacow", None) => self.write_policy.datacow = true,
            ("nodatasum", None) => self.write_policy.datasum = false,
            ("datasum", None) => {
                (self.write_policy.datacow, self.write_policy.datasum) = (true, true);
            }
            ("max_inline", Some(bytes)) => {
                let bytes = parse_size(bytes).map_err(anyhow::Error::msg);
                self.write_policy.max_inline_bytes = bytes.with_context(|| format!("'{word}'"))?;
            }
            ("treelog", None) => self.server.notreelog = false,
            ("notreelog", None) => self.server.notreelog = true,
            ("writeback_cache", None) => self.server.writeback_cache = true,
            ("noatime", None) => self.server.access_times = AccessTimes::Never,
            ("atime" | "relatime", None) => self.server.access_times = AccessTimes::Relative,
            ("strictatime", None) => self.server.access_times = AccessTimes::Always,
            ("nodiratime", None) => self.server.nodiratime = true,
            ("diratime", None) => self.server.nodiratime = false,
            ("nologreplay" | "norecovery", None) => self.rescue.no_log_replay = true,
            ("usebackuproot" | "recovery", None) => self.rescue.use_backup_root = true,
            ("rescue", Some(words)) => {
                let rescue = words.parse().with_context(|| format!("mount option '{word}'"))?;
                self.rescue = self.rescue.or(rescue);
            }
            ("user_subvol_rm_allowed", None) => self.server.user_subvol_rm_allowed = true,
            ("discard", None | Some("sync" | "async")) => self.discard = Some(true),
            ("nodiscard", None) => self.discard = Some(false),
            ("degraded", None) => self.degraded = true,
            ("generation", Some(text)) => self.generation = Some(number(word, text)?),
            ("device", Some(path)) => self.devices.push(path.to_owned()),
            ("key-file", Some(path)) => self.key_file = Some(path.into()),
            ("journal", Some(path)) => {
                let path = std::path::absolute(path).with_context(|| format!("'{word}'"))?;
                self.journal = Some(path.into());
            }
            ("journal-size", Some(size)) => {
                let parsed = parse_size(size).map_err(anyhow::Error::msg);
                parsed.with_context(|| format!("'{word}'"))?;
                self.journal_size = Some(size.into());
            }
            ("partition", Some(number)) => {
                let number = parse_partition(number).map_err(anyhow::Error::msg);
                self.place = Place::Partition(number.with_context(|| format!("'{word}'"))?);
            }
            ("offset", Some(bytes)) => {
                let bytes = parse_size(bytes).map_err(anyhow::Error::msg);
                self.place = Place::Offset(bytes.with_context(|| format!("'{word}'"))?);
            }
            ("map-users" | "map-groups" | "squash", Some(value)) => {
                let set = self.owners.set_mount_option(name, value).map_err(anyhow::Error::msg);
                set.with_context(|| format!("'{word}'"))?;
            }
            ("subvol", Some(path)) => self.subvolume = Some(Subvolume::Path(path.to_owned())),
            ("subvolid", Some(id)) => {
                let id = number(word, id)?;
                // As for the kernel, 0 is the top level.
                self.subvolume = Some(Subvolume::Id(if id == 0 { 5 } else { id }));
            }
            ("commit", Some(seconds)) => {
                let seconds = number(word, seconds)?;
                if seconds > 0 {
                    self.commit_interval = Some(Duration::from_secs(seconds));
                }
            }
            _ if OF_NO_EFFECT.contains(&word) => {}
            ("comment" | "user" | "helper" | "uhelper", Some(_)) => {}
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            _ => return Err(refusal(name, word)),
        }
        Ok(())
    }
}

/// The number in a word.
fn number(word: &str, text: &str) -> anyhow::Result<u64> {
    parse_number(text).map_err(anyhow::Error::msg).with_context(|| format!("mount option '{word}'"))
}

/// Why a word cannot be obeyed.
fn refusal(name: &str, word: &str) -> anyhow::Error {
    match REFUSED.iter().find(|(refused, _)| *refused == name || *refused == word) {
        Some((_, reason)) => anyhow!("the mount option '{word}' cannot be obeyed: {reason}"),
        None => anyhow!("unknown mount option '{word}'"),
    }
}

/// `compress`, `compress=zstd`, `compress-force=zstd:9`, `compress=no`; zlib by default.
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
        assert_eq!(Options::parse(["partition=2"]).unwrap().place, Place::Partition(2));
        assert_eq!(Options::parse(["offset=1M"]).unwrap().place, Place::Offset(1 << 20));
        assert_eq!(options.commit_interval, Some(Duration::from_secs(5)));
        let error = |list| format!("{:#}", Options::parse([list]).unwrap_err());
        assert_eq!(error("rw,wibble=3"), "unknown mount option 'wibble=3'");
        assert_eq!(Options::parse(["ro,rescue=all"]).unwrap().rescue, Rescue::ALL);
        let rescue = Options::parse(["ro,rescue=ibadroots:idatacsums,norecovery"]).unwrap().rescue;
        assert!(rescue.ignore_bad_roots && rescue.ignore_data_checksums && rescue.no_log_replay);
        assert!(error("rescue=nologreplay").contains("goes with ro"));
        assert!(error("rescue=all").contains("goes with ro"));
        assert!(error("ro,rescue=wibble").contains("'wibble' is none of"));
        assert!(error("follow").contains("follow goes with ro"));
        assert!(error("ro,follow=0").contains("'follow=0'"));
        assert!(error("ro,follow=x").contains("'follow=x'"));
        let follow = |list| Options::parse([list]).unwrap().server.follow.map(|it| it.as_secs());
        assert_eq!((follow("ro,follow"), follow("follow=30,ro")), (Some(5), Some(30)));
        assert!(error("autodefrag").contains("in the background"));
        assert!(error("space_cache=v1").contains("in a tree"));
        assert!(error("thread_pool=4").contains("'thread_pool=4'"));
        assert!(error("partition=0").contains("'0' is not the number"));
        assert!(error("offset=x").contains("'x' is not a size"));
        assert!(error("max_inline=x").contains("max_inline=x"));
        assert!(error("compress=rar").contains("compress=rar"));
        assert!(error("subvolid=x").contains("subvolid=x"));
        assert!(error("map-users=1:2:3:4").contains("'1:2:3:4' is not a range"));
        assert!(error("map-users=1:5/2:5").contains("map-users: id 5 is mapped twice"));
        assert!(error("squash=7").contains("'7' is not a user and a group"));
    }

    /// The options in the section MOUNT OPTIONS of btrfs(5), and those that kernels before it had.
    const OF_BTRFS: &str = "acl noacl autodefrag noautodefrag barrier nobarrier check_int \
        check_int_data check_int_print_mask=1 clear_cache commit=30 compress compress=zstd \
        compress=zstd:3 compress=no compress-force compress-force=lzo datacow nodatacow datasum \
        nodatasum degraded device=/dev/null discard discard=sync discard=async nodiscard \
        enospc_debug noenospc_debug fatal_errors=bug flushoncommit noflushoncommit fragment=data \
        nologreplay max_inline=2048 metadata_ratio=1 norecovery rescan_uuid_tree \
        rescue=usebackuproot rescue=nologreplay rescue=ignorebadroots rescue=ibadroots \
        rescue=ignoredatacsums rescue=idatacsums rescue=ignoremetacsums rescue=imetacsums \
        rescue=ignoresuperflags rescue=all skip_balance space_cache space_cache=v1 space_cache=v2 \
        nospace_cache ssd ssd_spread nossd nossd_spread subvol=/a subvolid=5 thread_pool=4 treelog \
        notreelog usebackuproot user_subvol_rm_allowed recovery inode_cache noinode_cache \
        ref_verify alloc_start=1 noatime nodiratime relatime strictatime";

    /// The options of mount(8) that file systems get to see, without those of btrfs above.
    const GENERIC: &str = "async auto noauto context=a:b:c:s0 fscontext=a:b:c defcontext=a:b:c \
        rootcontext=a:b:c defaults dev nodev diratime dirsync exec noexec group iversion noiversion \
        mand nomand _netdev nofail relatime norelatime strictatime nostrictatime lazytime nolazytime \
        suid nosuid silent loud owner ro rw sync user nouser users nosymfollow x-systemd.automount \
        X-mount.mkdir comment=a user=ann loop sizelimit=1 bind";

    #[test]
    fn every_generic_option_is_obeyed_accepted_or_refused_with_a_reason() {
        for word in GENERIC.split_whitespace() {
            if let Err(error) = Options::parse(["ro", word]) {
                let said = error.to_string();
                assert!(said.contains(word) && said.contains("cannot be obeyed: "), "{said}");
            }
        }
        let mount = |list| Options::parse([list]).unwrap().mount;
        let may = |it: MountOptions| (it.nosuid, it.nodev, it.noexec);
        assert_eq!(may(mount("user")), (true, true, true));
        assert_eq!(may(mount("owner")), (true, true, false));
        assert_eq!(may(mount("users,exec,dev")), (true, false, false));
        assert_eq!(may(mount("dev,suid,nosuid")), (true, false, false));
        assert!(mount("nosymfollow").nosymfollow && !mount("nosymfollow,symfollow").nosymfollow);
    }

    #[test]
    fn every_option_of_btrfs_is_obeyed_accepted_or_refused_with_a_reason() {
        let help = crate::command_line::command(crate::program::Program::Larder);
        let mut help = help.find_subcommand("mount").expect("it is a command").clone();
        let help = help.render_long_help().to_string();
        let page = include_str!("../../../../../docs/mount.md");
        let names = |text: &str| -> Vec<String> {
            let ends = |letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter);
            text.split(ends).map(str::to_owned).collect()
        };
        let (help, page) = (names(&help), names(page));
        for word in OF_BTRFS.split_whitespace() {
            if let Err(error) = Options::parse(["ro", word]) {
                let said = error.to_string();
                assert!(said.contains(word) && said.contains("cannot be obeyed: "), "{said}");
            }
            let name = word.split('=').next().expect("there is a first part").to_owned();
            assert!(help.contains(&name), "{name} is not in the help");
            assert!(page.contains(&name), "{name} is not in docs/mount.md");
        }
        for word in OF_NO_EFFECT.iter().copied().chain(REFUSED.iter().map(|(word, _)| *word)) {
            let name = word.split('=').next().expect("there is a first part").to_owned();
            assert!(help.contains(&name), "{name} is not in the help");
            assert!(page.contains(&name), "{name} is not in docs/mount.md");
        }
        assert!(Options::parse(["rw", "norecovery"]).is_err());
    }

    #[test]
    fn compression_and_writing_in_place_exclude_each_other() {
        let parse = |list| Options::parse([list]).unwrap();
        let in_place = parse("compress=zstd,nodatacow");
        assert!(in_place.compression.is_none() && !in_place.write_policy.datasum);
        let compressed = parse("nodatacow,compress=zstd");
        assert!(compressed.compression.is_some() && compressed.write_policy.datacow);
        let summed = parse("nodatacow,datacow");
        assert!(summed.write_policy.datacow && !summed.write_policy.datasum);
        assert_eq!(parse("max_inline=1k").write_policy.max_inline_bytes, 1024);
    }

    #[test]
    fn access_times_are_kept_if_asked_for() {
        let kept = |list| Options::parse([list]).unwrap().server.access_times;
        assert_eq!(kept("rw"), AccessTimes::Never);
        assert_eq!(kept("noatime,relatime"), AccessTimes::Relative);
        assert_eq!(kept("strictatime"), AccessTimes::Always);
        assert!(Options::parse(["nodiratime"]).unwrap().server.nodiratime);
    }

    #[test]
    fn the_last_word_counts() {
        let compression =
            Options::parse(["compress=zstd:3,compress-force=lzo"]).unwrap().compression;
        assert!(compression.is_some_and(|compression| compression.force));
        assert_eq!(Options::parse(["compress,compress=no"]).unwrap().compression, None);
        assert!(!Options::parse(["ro,rw"]).unwrap().mount.read_only);
        let map = |list| Options::parse([list]).unwrap().server.owner_map;
        let shown = |list, id| map(list).turned().users.inner_if_any(id);
        assert_eq!(shown("map-users=1:2,map-users=1000:0/100000:1:65535", 7), Some(100_006));
        assert_eq!(shown("map-users=1:2,map-users=1000:0", 2), None);
        assert_eq!(map("squash=root:daemon").groups.inner_if_any(9), Some(1));
        assert_eq!(Options::parse(["subvolid=0"]).unwrap().subvolume, Some(Subvolume::Id(5)));
    }
}
