//! Changes in bulk that follow a failed one concern nothing that is there instead.

use std::fs;
use std::path::Path;

use larder::MountedChanges;
use larder::commands::Command;
use rustix::thread::CapabilitySet;

use crate::support::Mounted;
use crate::trust::{change, with_capabilities};

const SET_UID: u64 = 0o4755;

/// Root of the machine, root of a container, and the same without `CAP_FOWNER`.
fn callers() -> [CapabilitySet; 3] {
    let without_fowner = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FSETID
        | CapabilitySet::SETFCAP;
    let of_container = without_fowner | CapabilitySet::FOWNER;
    let of_machine = of_container
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::LINUX_IMMUTABLE
        | CapabilitySet::MKNOD
        | CapabilitySet::SYS_ADMIN;
    [of_machine, of_container, without_fowner]
}

/// Makes `commands` in `directory`, and then those that make the file at `path` a program of root.
fn make_program(directory: &Path, commands: &[Command<'_>], path: &[u8]) -> Vec<String> {
    let data = vec![b's'; 200 << 10];
    let owner = Command::Chown { path, uid: 0, gid: 0 };
    let first = Command::Write { path, offset: 0, data: b"secret" };
    let second = Command::Write { path, offset: 6, data: &data };
    let third = Command::Write { path, offset: 6 + data.len() as u64, data: &data };
    let end = Command::Chmod { path, mode: SET_UID };
    let xattr = Command::SetXattr { path, name: b"user.a", data: b"of root" };
    let others = [first, second, third, xattr, owner, end];
    let make = |changes: &mut MountedChanges| {
        // Something else fails first.
        changes.make(&Command::Chmod { path: b"missing", mode: 0o600 })?;
        commands.iter().chain(&others).try_for_each(|command| changes.make(command))
    };
    change(directory, make).unwrap()
}

/// A user knows or guesses the names that root is about to make, and makes them first.
#[test]
fn a_file_in_the_way_of_a_new_one_stays_as_it_is() {
    let mounted = Mounted::new();
    mounted.shell("mkdir -m 777 open; mkdir -m 1777 sticky");
    let (new, to) = (&b"new"[..], &b"to"[..]);
    let make = Command::Mkfile { path: new, ino: 0 };
    let fifo = Command::Mkfifo { path: new, ino: 0, rdev: None, mode: None };
    let rename = Command::Rename { path: new, to };
    let make_below = Command::Mkfile { path: b"new/file", ino: 0 };
    let mkdir = Command::Mkdir { path: new, ino: 0 };
    let cases: [(&[Command<'_>], &[u8], &str); 6] = [
        (&[make], new, "echo theirs > new"),
        (&[make, rename], to, "echo theirs > new"),
        (&[make, rename], to, "echo theirs > new; echo theirs > to"),
        (&[fifo, rename], to, "echo theirs > new; echo theirs > to"),
        (&[mkdir, make_below], b"new/file", "mkdir new; echo theirs > new/file"),
        (&[mkdir, make_below], b"new/file", "mkdir new"),
    ];
    let theirs = "find . -uid 1001";
    let seen = || {
        mounted.shell(&format!(
            "{theirs} -printf '%p %i %m %s\\n' | sort; {theirs} -type f -exec cat {{}} +; \
             {theirs} -exec getfattr -d {{}} +"
        ))
    };
    for caller in callers() {
        for directory in ["open", "sticky"] {
            for (commands, path, made) in cases {
                let top = mounted.join(directory);
                mounted.shell(&format!("cd {directory}; {made}; chown -R 1001:1001 *; sync -f ."));
                let before = seen();
                let reports = with_capabilities(caller, || make_program(&top, commands, path));
                let what = format!("{caller:?} in {directory}: {commands:?} beside {made}");
                assert_eq!(seen(), before, "{what}: {reports:?}");
                mounted.shell(&format!("rm -r {directory}/*"));
            }
        }
    }
    mounted.finish();
}

/// Without `CAP_FOWNER` root replaces no file of others in a sticky directory.
#[test]
fn a_file_that_a_rename_does_not_replace_stays_as_it_is() {
    let mounted = Mounted::new();
    mounted.shell("mkdir -m 1777 c; cd c; echo theirs > to; chown 1001:1001 . to; sync -f .");
    let seen =
        || mounted.shell("find c/to -printf '%p %i %m %U %s\\n'; cat c/to; getfattr -d c/to");
    let before = seen();
    let commands =
        [Command::Mkfile { path: b"new", ino: 0 }, Command::Rename { path: b"new", to: b"to" }];
    let top = mounted.join("c");
    let reports = with_capabilities(callers()[2], || make_program(&top, &commands, b"to"));
    assert!(reports.iter().any(|reason| reason.contains("not permitted")), "{reports:?}");
    assert_eq!(seen(), before, "{reports:?}");
    // What is left of the first does not become another either.
    let commands = [
        Command::Symlink { path: b"new", ino: 0, target: b"target" },
        Command::Rename { path: b"new", to: b"other" },
    ];
    with_capabilities(callers()[2], || make_program(&top, &commands, b"other"));
    assert!(fs::symlink_metadata(mounted.join("c/other")).is_err());
    assert_eq!(seen(), before);
    mounted.finish();
}

/// As for chown(2): an owner gives a file to a group of its own. Others need `CAP_CHOWN`.
#[test]
fn only_an_owner_changes_a_group_without_the_capability() {
    let mounted = Mounted::new();
    mounted.shell("mkdir c; cd c; touch own theirs; chown 0:1002 own; chown 1001:1001 theirs");
    let group = |path: &'static [u8], uid, gid| {
        let top = mounted.join("c");
        let make = |changes: &mut MountedChanges| changes.make(&Command::Chown { path, uid, gid });
        with_capabilities(CapabilitySet::FOWNER | CapabilitySet::DAC_OVERRIDE, || {
            change(&top, make).unwrap().is_empty()
        })
    };
    let seen = || mounted.shell("stat -c '%n %u:%g' c/*");
    assert!(!group(b"theirs", 1001, 0));
    assert!(group(b"own", 0, 1002), "it stays in its group");
    assert!(!group(b"own", 0, 1003));
    assert_eq!(seen(), "c/own 0:1002\nc/theirs 1001:1001\n");
    assert!(group(b"own", 0, 0));
    assert_eq!(seen(), "c/own 0:0\nc/theirs 1001:1001\n");
    mounted.finish();
}
