//! `mount.fuse.larder` and `umount.fuse.larder`: the names under which mount(8) and umount(8) look
//! for this program when the type of a file system is `fuse.larder`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The names.
pub const HELPER_NAMES: [&str; 2] = [MOUNT, UMOUNT];

const MOUNT: &str = "mount.fuse.larder";
const UMOUNT: &str = "umount.fuse.larder";

/// The command line of `larder` that means what this one means, if the program was called as a
/// helper: `mount.fuse.larder DEVICE DIRECTORY [-sfnv] [-t TYPE] [-o OPTIONS]`, `umount.fuse.larder
/// DIRECTORY [-nlfvr] [-t TYPE]`.
pub fn run_as_helper(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let name = Path::new(arguments.first()?).file_name()?;
    let command = match name.to_str()? {
        MOUNT => "mount",
        UMOUNT => "umount",
        _ => return None,
    };
    let mut translated: Vec<OsString> = vec!["larder".into(), command.into()];
    let (mut paths, mut arguments) = (Vec::new(), arguments[1..].iter());
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("-o") => {
                translated.push("-o".into());
                translated.extend(arguments.next().cloned());
            }
            Some("-t" | "-N") => drop(arguments.next()),
            Some("-l") => translated.push("--lazy".into()),
            // To mount(8) it means not to mount, which this is never called for.
            Some("-f") if command == "umount" => translated.push("--force".into()),
            // How much to report, and tables that no system has any more.
            Some(flag) if flag.starts_with('-') => {}
            _ => paths.push(OsStr::to_owned(argument)),
        }
    }
    translated.extend((command == "umount").then(|| "--quiet".into()));
    translated.push("--".into());
    translated.extend(paths);
    Some(translated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_mount_are_understood() {
        let call = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            run_as_helper(&words).map(|words| words.join(OsStr::new(" ")))
        };
        assert_eq!(
            call(&["/sbin/mount.fuse.larder", "/disk.img", "/mnt", "-n", "-o", "rw,noatime"]),
            Some("larder mount -o rw,noatime -- /disk.img /mnt".into())
        );
        assert_eq!(
            call(&["umount.fuse.larder", "/mnt", "-l", "-t", "fuse.larder"]),
            Some("larder umount --lazy --quiet -- /mnt".into())
        );
        assert_eq!(
            call(&["umount.fuse.larder", "/mnt", "-f"]),
            Some("larder umount --force --quiet -- /mnt".into())
        );
        assert_eq!(call(&["larder", "ls"]), None);
    }
}
