//! Commands for many files do what the system's do: each option that both have
//! (`docs/bulk-options.md`), with the same results.

use std::path::Path;
use std::process::Command;

use crate::support::{Mounted, shell};

/// Files to work on, in the present directory.
const FILES: &str = "
    mkdir -p d/e/deep to empty; echo 1 > d/f; head -c 100000 /dev/zero > d/e/g; echo 3 > d/e/deep/h
    ln -s f d/link; ln -s nowhere d/dangling; ln d/f d/second; echo old > to/f; mkfifo d/pipe
    truncate -s 1M d/hole; echo x > 'd/a b'; echo hidden > d/.hidden; chmod 640 d/f; sync";

/// What is below the present directory, and in which mode.
const LISTING: &str = "find . | LC_ALL=C sort | xargs -d '\\n' stat -c '%n %A %u:%g %h %F %s'";

/// Commands, without the program before them. Output that is compared is sorted.
const LINES: &[&str] = &[
    "rm d/f",
    "rm d/link d/dangling",
    "rm -f d/none d/f",
    "rm d/none",
    "rm d",
    "rm -r d to",
    "rm --recursive --force d none",
    "rm -rf d/e d/pipe",
    "mv d/f to",
    "mv d/f d/link to",
    "mv d to",
    "mv d new",
    "mv d/f d/second",
    "mv d to/f",
    "mv none to",
    "mv d/f d/e d/pipe empty",
    "chmod 600 d/f",
    "chmod -R go-rwx d",
    "chmod --recursive u=rwX,g=rX,o= d to",
    "chmod a+t d",
    "chmod 600 none d/f",
    "chown 7:8 d/f",
    "chown -R 7 d",
    "chown -R :9 d to",
    "chown -h 7:8 d/link",
    "chown 7:8 d/link",
    "chown --recursive --no-dereference 5:6 d",
    "cp d/f to",
    "cp d/f new",
    "cp -r d to",
    "cp -R d new",
    "cp -a d to",
    "cp -a d/. to",
    "cp d to",
    "cp d/f d/e/g to",
    "cp d/link new",
    "cp -a d/link d/pipe to",
    "cp d/f to/none/f",
    "cp d/f none d/e/g to",
    "cp none to",
    "cp none new",
    "cp none d/f new",
    "cp d d/f to",
    "cp -a none d/f to",
    "cp d/e/g d/f to/f",
    "du d",
    "du -a d",
    "du -s d to",
    "du -c d to",
    "du -d 1 d",
    "du --max-depth 1 --apparent-size -b d",
    "du -b -a d",
    "du -h -s d",
    "du -k d",
    "du -m d",
    "ls d",
    "ls -d d",
    "ls -R d",
    "ls -i d",
    "ls -a d",
    "ls -aR d",
    "ls -a d/f",
    "ls -ad d",
    "ls -aR empty d/e",
];

#[test]
fn results_are_those_of_the_system() {
    let mounted = Mounted::new();
    let larder = env!("CARGO_BIN_EXE_larder");
    let mut different = Vec::new();
    for line in LINES {
        let run = |program: &str| {
            mounted.shell(&format!("rm -rf work; mkdir work; cd work; {FILES}"));
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("{program} {line} < /dev/null 2> /dev/null")]);
            let output = shell.current_dir(mounted.join("work")).env("LC_ALL", "C").output();
            let output = output.unwrap();
            let mut said: Vec<_> =
                String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
            said.sort();
            let listed = mounted.shell(&format!("cd work; {LISTING}"));
            // Sizes of inode numbers differ from run to run.
            let said = if line.starts_with("ls -i") { vec![said.len().to_string()] } else { said };
            (output.status.success(), said.join("\n"), listed)
        };
        let (system, ours) = (run(""), run(larder));
        if ours != system {
            different.push(format!("{line}\n{ours:#?}\n{system:#?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    mounted.finish();
}

/// One of each kind of file, with modes and owners that lists show in their own ways.
const KINDS: &str = "
    mkdir -p d/sub/deep d/empty; echo 1 > d/f; ln d/f d/second; ln -s f d/link; mkfifo d/pipe
    mknod d/null c 1 3; mknod d/loop b 7 200; truncate -s 1M d/hole; echo x > 'd/a b'
    echo hidden > d/.hidden; chmod 4751 d/f; chmod 1777 d/sub; chmod 2070 d/empty
    chown 1:70000 'd/a b'; touch -d '2001-02-03 04:05:06.789' d/hole; cp d/f d/sub/deep
    head -c 200000 /dev/urandom > d/sub/big; ln -s $(printf 'x%.0s' {1..200}) d/sub/long; sync -f .";

/// Lists have the same columns, whose widths differ, and no number of blocks.
fn words(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| !line.starts_with("total "));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn lists_and_archives_are_those_of_the_system() {
    let mut mounted = Mounted::new();
    let larder = env!("CARGO_BIN_EXE_larder");
    mounted.shell(KINDS);
    let said = |place: &Path, line: &str| shell(place, &format!("export LC_ALL=C TZ=UTC; {line}"));
    let style = "--time-style='+%Y-%m-%d %H:%M:%S'";
    let mut of_system = Vec::new();
    for options in ["", "-a", "-R", "-aR", "-d", "-l", "-la", "-lR", "-laR", "-ld", "-lid", "-i"] {
        let numeric = if options.contains('l') { "-n" } else { "" };
        let system = words(&said(&mounted.path(), &format!("ls {numeric} {style} {options} d")));
        let ours = words(&said(&mounted.path(), &format!("{larder} ls {options} d")));
        assert_eq!(ours, system, "{options}");
        of_system.push((options, system));
    }
    let list = "tar -tvf - --numeric-owner --full-time --quoting-style=escape";
    let list = format!("{list} | sort");
    let archive = said(&mounted.path(), &format!("tar -c --format=pax -C d . | {list}"));
    let ours = said(&mounted.path(), &format!("{larder} tar d | {list}"));
    assert_eq!(words(&ours), words(&archive));
    mounted.unmount();
    for (options, system) in of_system {
        let line = format!("{larder} ls {options} disk.img:/d | sed 's|disk.img:/||'");
        assert_eq!(words(&said(mounted.folder(), &line)), system, "{options}");
    }
    let ours = said(mounted.folder(), &format!("{larder} tar disk.img:/d | {list}"));
    assert_eq!(words(&ours), words(&archive));
    mounted.check();
}
