//! Mounts by root: a superblock of the kernel, with any number of mounts.
//!
//! # Invariants
//! - The kernel makes the superblock when it is told of a connection for the first time. When it is
//!   told again, it makes another mount of that superblock, as long as there is one.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use larder_device::StandIn;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::param::page_size;
use rustix::process::{getegid, geteuid};

use super::tree::Tree;
use crate::options::{AccessTimes, MountOptions, ServerOptions};

/// The type of the file system, after the `fuse.` or `fuseblk.` that the kernel shows before it.
const SUBTYPE: &str = "larder";

/// The longest string that the kernel takes as an option.
const MOST_NAME_BYTES: usize = 255;

/// What the kernel is told of a superblock.
#[derive(Debug)]
pub(crate) struct Superblock {
    /// The open `/dev/fuse` of the connection.
    device: OwnedFd,
    source: Source,
    allow_other: bool,
    labels: Vec<(&'static str, String)>,
}

#[derive(Debug)]
enum Source {
    /// A name for the kernel to show, no more.
    Name(OsString),
    /// The same for a file whose path is too long for the kernel, which takes the path of a
    /// descriptor instead.
    File(OwnedFd),
    /// See [`block`](super::block). It stays attached as long as the server runs, so that no other
    /// device gets its name.
    Block(StandIn),
}

impl Superblock {
    /// A superblock that sync(2) does not reach.
    pub(super) fn named(options: &MountOptions) -> io::Result<Self> {
        let mut name = options.source.clone();
        if name.len() > MOST_NAME_BYTES {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            if let Ok(file) = open(&name, flags, Mode::empty()) {
                return Self::new(Source::File(file), options);
            }
            // A URL.
            let cut = name.as_bytes()[..MOST_NAME_BYTES].to_vec();
            name = OsString::from_vec(cut);
        }
        Self::new(Source::Name(name), options)
    }

    /// A superblock that sync(2) reaches.
    pub(super) fn block(options: &MountOptions) -> io::Result<Self> {
        Self::new(Source::Block(StandIn::attach(Path::new(&options.source))?), options)
    }

    fn new(source: Source, options: &MountOptions) -> io::Result<Self> {
        let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let (allow_other, labels) = (options.allow_other, options.labels.clone());
        Ok(Self { device, source, allow_other, labels })
    }

    /// The connection.
    pub(super) fn device(&self) -> io::Result<OwnedFd> {
        self.device.try_clone()
    }

    /// Another mount of it. `is_read_only` tells of the superblock; `attributes` are the mount's
    /// own.
    ///
    /// # Errors
    /// The system's, and others if the last mount has just ended, and the connection with it.
    pub(crate) fn tree(&self, is_read_only: bool, attributes: MountAttrFlags) -> io::Result<Tree> {
        match self.ask(is_read_only, attributes) {
            // A remount tells the kernel first and the server afterwards.
            Err(Errno::BUSY) => Ok(self.ask(!is_read_only, attributes)?),
            asked => Ok(asked?),
        }
    }

    fn ask(&self, is_read_only: bool, attributes: MountAttrFlags) -> rustix::io::Result<Tree> {
        let (kind, source) = match &self.source {
            Source::Name(name) => ("fuse", PathBuf::from(name)),
            Source::File(file) => {
                let (process, descriptor) = (std::process::id(), file.as_raw_fd());
                ("fuse", format!("/proc/{process}/fd/{descriptor}").into())
            }
            Source::Block(device) => ("fuseblk", device.path().to_owned()),
        };
        let asked = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&asked, "source", &source)?;
        for (name, value) in [
            ("subtype", SUBTYPE.to_owned()),
            ("fd", self.device.as_raw_fd().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", geteuid().as_raw().to_string()),
            ("group_id", getegid().as_raw().to_string()),
        ] {
            fsconfig_set_string(&asked, name, value)?;
        }
        if let Source::Block(_) = self.source {
            fsconfig_set_string(&asked, "blksize", page_size().to_string())?;
        }
        let flags = [
            ("default_permissions", true),
            ("allow_other", self.allow_other),
            ("ro", is_read_only),
        ];
        for (name, _) in flags.iter().filter(|(_, is_set)| *is_set) {
            fsconfig_set_flag(&asked, *name)?;
        }
        for (name, label) in &self.labels {
            fsconfig_set_string(&asked, *name, label)?;
        }
        fsconfig_create(&asked)?;
        fsmount(&asked, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map(Tree::received)
    }
}

/// The attributes of a mount, as opposed to those of its superblock.
pub(crate) fn attributes(options: &MountOptions, server: &ServerOptions) -> MountAttrFlags {
    let mut attributes = match server.access_times {
        AccessTimes::Never => MountAttrFlags::MOUNT_ATTR_NOATIME,
        AccessTimes::Relative => MountAttrFlags::MOUNT_ATTR_RELATIME,
        AccessTimes::Always => MountAttrFlags::MOUNT_ATTR_STRICTATIME,
    };
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, options.read_only);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSUID, options.nosuid);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, options.nodev);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, options.noexec);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODIRATIME, server.nodiratime);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, options.nosymfollow);
    attributes
}
