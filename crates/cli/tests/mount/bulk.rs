//! Commands for many files do what the system's do: each option that both have
//! (`docs/bulk-options.md`), with the same results.

use std::process::Command;

use crate::support::Mounted;

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
