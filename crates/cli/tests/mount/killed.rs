//! The server is killed while real programs work: the file system is sound, the promises to
//! programs hold, and it can be used again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::support::{Mounted, larder, loop_devices, succeed, wait_until};

/// A line in a shell that is at work on a mount, in a PID namespace of its own: all of its
/// processes end with the shell, also those that have left its session, as the jobs of fio do.
/// Otherwise they would keep the mount.
struct Work(Child);

impl Work {
    fn start(mounted: &Mounted, line: &str) -> Self {
        let log = mounted.folder().join("said");
        let log = File::create(log).unwrap();
        let mut command = Self::command(mounted, line);
        command.stderr(log.try_clone().unwrap()).stdout(log);
        Self(command.spawn().unwrap())
    }

    fn command(mounted: &Mounted, line: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--", "bash", "-c", line]);
        command.current_dir(mounted.path()).stdin(Stdio::null());
        command
    }

    /// The shell, if it has begun.
    fn shell(&self) -> Option<Pid> {
        let id = self.0.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        Pid::from_raw(children.trim().parse().ok()?)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        match self.shell() {
            Some(shell) => _ = kill_process(shell, Signal::KILL),
            None => _ = self.0.kill(),
        }
        let _ = self.0.wait();
    }
}

/// Kills the server some time after the line in a shell has created `begun`, and returns the image,
/// mounted again.
fn killed_during(line: &str, begun: &str) -> Mounted {
    let mut mounted = Mounted::in_foreground();
    let mut work = Work::start(&mounted, line);
    wait_until(begun, || {
        let ended = work.0.try_wait().unwrap();
        let said = || fs::read_to_string(mounted.folder().join("said")).unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", said());
        mounted.join(begun).exists()
    });
    thread::sleep(Duration::from_millis(300));
    assert!(work.0.try_wait().unwrap().is_none(), "it was still at work");
    mounted.kill();
    drop(work);
    let image = mounted.image();
    wait_until("nobody keeps the mount", || loop_devices(&image).is_empty());
    mounted.check();
    mounted.mount(&[]);
    mounted
}

/// It can be used as before.
fn goes_on(mounted: Mounted) {
    mounted.shell(
        "mkdir -p after/a; seq 1000 > after/a/b; sync -f .; mv after/a after/c; rm -r after",
    );
    mounted.finish();
}

/// A server that does not answer loses its mount, and keeps earlier changes.
#[test]
fn programs_that_wait_for_a_stopped_server_can_be_freed() {
    let mut mounted = Mounted::in_foreground();
    fs::write(mounted.join("kept"), "kept").unwrap();
    let folder = File::open(mounted.path()).unwrap();
    let server = mounted.server_pid();
    kill_process(server, Signal::STOP).unwrap();
    // All of its threads have stopped then.
    let (_, status) = waitpid(Some(server), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    let waiting = thread::spawn({
        let nothing = mounted.join("nothing");
        move || fs::metadata(nothing).unwrap_err().raw_os_error()
    });
    let is_busy = larder().args(["umount", "--force"]).arg(mounted.path()).output().unwrap();
    assert!(!is_busy.status.success(), "a folder is open");
    let error = waiting.join().unwrap();
    let expected = [Errno::CONNABORTED, Errno::NOTCONN].map(|error| Some(error.raw_os_error()));
    assert!(expected.contains(&error), "{error:?}");
    drop(folder);
    kill_process(server, Signal::CONT).unwrap();
    mounted.unmount();
    mounted.check();
    mounted.mount(&[]);
    assert_eq!(fs::read(mounted.join("kept")).unwrap(), b"kept");
    goes_on(mounted);
}

#[test]
pub(crate) fn during_fs_mark() {
    goes_on(killed_during(
        "mkdir d1 d2; fs_mark -S 1 -L 100 -n 3000 -s 3000 -t 2 -k -d d1 -d d2 -l /dev/null",
        "d2",
    ));
}

#[test]
pub(crate) fn during_dbench() {
    goes_on(killed_during("dbench -t 60 -D . 8", "clients"));
}

#[test]
pub(crate) fn during_fio() {
    goes_on(killed_during(
        "fio --output=/dev/null --name=job --rw=randrw --verify=crc32c --size=24m --bsrange=1k-64k \
         --numjobs=2 --fallocate=none --fsync=16 --loops=1000",
        "job.0.0",
    ));
}

/// The data of a finished transaction is there: the folder, too, is synced when its journal is
/// deleted.
#[test]
pub(crate) fn during_sqlite() {
    for journal in ["wal", "delete"] {
        let mut mounted = Mounted::in_foreground();
        let file = mounted.join("data.db");
        let open = format!(
            "PRAGMA journal_mode={journal}; PRAGMA synchronous=EXTRA; \
             CREATE TABLE t(i INTEGER PRIMARY KEY, v TEXT);"
        );
        succeed(Command::new("sqlite3").arg(&file).arg(open));
        let line = "for i in $(seq 100000); do echo 'INSERT INTO t(v) SELECT hex(randomblob(2000)); \
                    SELECT max(i) FROM t;'; done | sqlite3 -cmd 'PRAGMA synchronous=EXTRA' data.db";
        let mut command = Work::command(&mounted, line);
        let mut work =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map(Work).unwrap();
        let mut said = BufReader::new(work.0.stdout.take().unwrap()).lines();
        let promised = said.by_ref().take(200).last().unwrap().unwrap();
        assert_eq!(promised, "200");
        mounted.kill();
        let promised: u64 = said.last().map_or(200, |last| last.unwrap().parse().unwrap());
        drop(work);
        mounted.check();
        mounted.mount(&[]);
        let look = "PRAGMA integrity_check; SELECT max(i) FROM t;";
        let found = succeed(Command::new("sqlite3").arg(&file).arg(look));
        let rows = found.strip_prefix("ok\n").unwrap_or_else(|| panic!("{journal}: {found}"));
        let rows: u64 = rows.trim().parse().unwrap();
        assert!(rows >= promised, "{journal}: {rows} rows of {promised}");
        goes_on(mounted);
    }
}

#[test]
pub(crate) fn during_git() {
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    goes_on(killed_during(
        &format!("for n in $(seq 1000); do git clone -q --no-local -- '{project}' clone-$n; done"),
        "clone-1/.git/HEAD",
    ));
}

#[test]
pub(crate) fn during_rsync() {
    goes_on(killed_during(
        "for n in $(seq 1000); do rsync -aHAX /usr/share/ copied-$n/; done",
        "copied-1",
    ));
}

#[test]
pub(crate) fn during_tar() {
    goes_on(killed_during(
        "for n in $(seq 1000); do mkdir $n; tar -C /usr/share -cf - . | tar -C $n -xf -; done",
        "1",
    ));
}

#[test]
pub(crate) fn during_cargo() {
    goes_on(killed_during(
        "mkdir -p hello/src; cd hello;
         printf '[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2024\"\n' > Cargo.toml;
         echo 'fn main() {}' > src/main.rs; unset CARGO_TARGET_DIR;
         for n in $(seq 1000); do cargo build --offline -q; rm -rf target; done",
        "hello/target",
    ));
}

#[test]
pub(crate) fn during_stress_ng() {
    goes_on(killed_during(
        "touch begun; stress-ng --temp-path . --timeout 60s --hdd-bytes 16m --dentry 1 --dir 1 --rename 1 \
         --link 1 --symlink 1 --xattr 1 --fallocate 1 --fpunch 1 --hdd 1 --seek 1 --mmap 1 --utime 1",
        "begun",
    ));
}
