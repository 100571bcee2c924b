//! Attributes that commands set.

use larder_filesystem::SetAttributes;

use crate::wire::{Command, Timestamp};

/// The path of a command, and the attributes that it sets, if it does nothing else.
pub(super) fn attributes_of<'a>(command: &Command<'a>) -> Option<(&'a [u8], SetAttributes)> {
    let none = SetAttributes::default();
    match *command {
        Command::Chmod { path, mode } => {
            let permissions = Some(mode as u32 & 0o7777);
            Some((path, SetAttributes { permissions, ..none }))
        }
        Command::Chown { path, uid, gid } => {
            // The kernel sends 32 bits of each.
            let (uid, gid) = (Some(uid as u32), Some(gid as u32));
            Some((path, SetAttributes { uid, gid, ..none }))
        }
        Command::Utimes { path, atime, mtime, otime, .. } => {
            // The ctime is the time of receiving.
            let (atime, mtime) = (Some(timestamp(atime)), Some(timestamp(mtime)));
            let otime = otime.map(timestamp);
            Some((path, SetAttributes { atime, mtime, otime, ..none }))
        }
        _ => None,
    }
}

fn timestamp(time: Timestamp) -> larder_filesystem::Timestamp {
    larder_filesystem::Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// The attributes that two commands set, the later one winning. `None` if setting them at once has
/// another result: a new owner removes some of the permissions.
pub(super) fn merged(earlier: &SetAttributes, later: &SetAttributes) -> Option<SetAttributes> {
    if later.uid.is_some() && earlier.permissions.is_some() {
        return None;
    }
    Some(SetAttributes {
        permissions: later.permissions.or(earlier.permissions),
        uid: later.uid.or(earlier.uid),
        gid: later.gid.or(earlier.gid),
        atime: later.atime.or(earlier.atime),
        mtime: later.mtime.or(earlier.mtime),
        ctime: later.ctime.or(earlier.ctime),
        otime: later.otime.or(earlier.otime),
        flags: later.flags.or(earlier.flags),
    })
}
