//! The end of the daemon, or of the server, in the middle of the work of real programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use larder_testkit::{Scratch, effort, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::server::Bucket;
use super::{FAR_AWAY, mounted};
use crate::support::{Mounted, larder, python, shell, succeed, wait_until};

/// Adds rows, one a transaction, and tells each that is committed.
const ADD_ROWS: &str = "
import sqlite3, sys
told = open(sys.argv[1], 'a', buffering=1)
db = sqlite3.connect('rows.db')
db.execute('pragma synchronous=extra')
db.execute('create table if not exists rows (number integer primary key, text)')
db.commit()
while True:
    number = db.execute('insert into rows (text) values (hex(randomblob(2000)))').lastrowid
    db.commit()
    told.write(f'{number}\\n')
";

/// The committed rows, which must be without a gap.
const COUNT_ROWS: &str = "
import sqlite3
db = sqlite3.connect('rows.db')
assert db.execute('pragma integrity_check').fetchone() == ('ok',)
db.execute('create table if not exists rows (number integer primary key, text)')
count, most = db.execute('select count(*), coalesce(max(number), 0) from rows').fetchone()
assert count == most, (count, most)
print(most)
";

/// Commits to a repository, and tells each commit that is there.
const COMMIT: &str = "
while :; do
    seq $RANDOM >file.$((RANDOM % 50))
    git add . && git commit -qm more && git rev-parse HEAD >>\"$1\"
done
";

const FIO: [&str; 11] = [
    // Ends with the process that the test knows.
    "--thread",
    "--name=random",
    "--rw=randwrite",
    "--bsrange=4k-128k",
    "--size=48m",
    "--verify=crc32c",
    "--verify_backlog=64",
    "--verify_fatal=1",
    "--fsync=16",
    "--time_based",
    "--runtime=600",
];

/// Programs at work on a mount, and what they say is durable.
struct Programs {
    told: Scratch,
    running: Vec<Child>,
}

impl Programs {
    fn new() -> Self {
        let told = Scratch::new();
        fs::write(told.path().join("rows"), "").unwrap();
        fs::write(told.path().join("commits"), "").unwrap();
        Self { told, running: Vec::new() }
    }

    /// Makes what they work on. Git syncs no directory, so that the first commits are durable only
    /// with the repository.
    fn prepare(folder: &Path) {
        shell(
            folder,
            "git init -q git && git -C git config core.fsync all
             git -C git config user.name Ann && git -C git config user.email ann@example.org
             mkdir fio",
        );
        succeed(larder().args(["filesystem", "sync"]).arg(folder));
    }

    fn told(&self, name: &str) -> PathBuf {
        self.told.path().join(name)
    }

    fn start(&mut self, folder: &Path) {
        // The next commits follow those that are there.
        fs::write(self.told("commits"), "").unwrap();
        let mut rows = Command::new("/usr/bin/python3");
        rows.args(["-c", ADD_ROWS]).arg(self.told("rows")).current_dir(folder);
        let mut commits = Command::new("bash");
        commits.args(["-euc", COMMIT, "bash"]).arg(self.told("commits"));
        commits.current_dir(folder.join("git"));
        let mut fio = Command::new("fio");
        fio.args(FIO).current_dir(folder.join("fio"));
        for mut program in [rows, commits, fio] {
            program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.running.push(program.spawn().unwrap());
        }
    }

    /// Whether all of them are at work.
    fn are_running(&mut self) -> bool {
        self.running.iter_mut().all(|program| program.try_wait().unwrap().is_none())
    }

    fn end(&mut self) {
        for mut program in self.running.drain(..) {
            let _ = program.kill();
            let _ = program.wait();
        }
    }

    /// What they said is durable is there.
    fn assert_kept(&self, folder: &Path) {
        let told = |name| fs::read_to_string(self.told(name)).unwrap();
        // A killed program may have left half of a line.
        let rows = told("rows");
        let last = rows.split_terminator('\n').next_back().map_or(0, |it| it.parse().unwrap());
        if folder.join("rows.db").exists() {
            let there: u64 = python(folder, COUNT_ROWS, &[]).trim().parse().unwrap();
            assert!(there >= last, "row {last} of {there} is missing");
        } else {
            assert_eq!(last, 0);
        }
        let repository = folder.join("git");
        shell(&repository, "rm -f .git/*.lock .git/refs/heads/*.lock && git fsck --full --strict");
        // Git syncs a branch before it renames it, so that the last commit alone may be lost.
        if let Some(commit) = told("commits").lines().nth_back(1) {
            shell(&repository, &format!("git merge-base --is-ancestor {commit} HEAD"));
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.end();
    }
}

/// How long programs work before something ends.
fn moment(rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(200..3000))
}

fn end_and_check(bucket: &Bucket, mut mounted: Mounted) {
    mounted.unmount();
    let url = bucket.url("pantry");
    succeed(bucket.larder().args(["check", "--check-data-csum", &url]));
    succeed(bucket.larder().args(["objects", "verify", &url]));
}

#[test]
fn what_programs_synced_outlives_the_daemon() {
    let (bucket, mut rng) = (Bucket::in_memory(), StdRng::seed_from_u64(seed(7)));
    let mut mounted = mounted(&bucket, "pantry");
    let mut programs = Programs::new();
    Programs::prepare(&mounted.path());
    for round in 0..3 * effort() {
        bucket.set(if round % 3 == 2 { FAR_AWAY } else { super::Weather::default() });
        programs.start(&mounted.path());
        thread::sleep(moment(&mut rng));
        mounted.kill();
        programs.end();
        succeed(bucket.larder().args(["check", "--check-data-csum", &bucket.url("pantry")]));
        mounted.serve(&[]);
        programs.assert_kept(&mounted.path());
    }
    end_and_check(&bucket, mounted);
}

/// What is in the journal alone follows when it is mounted again, and only with the journal.
#[test]
fn what_fsync_put_into_a_journal_outlives_the_daemon_and_an_outage() {
    let bucket = Bucket::in_memory();
    let mut mounted = mounted(&bucket, "pantry");
    mounted.unmount();
    let journal = mounted.folder().join("journal");
    let option = format!("journal={},journal-size=64M", journal.display());
    let (url, options) = (bucket.url("pantry"), ["-o", option.as_str()]);
    mounted.serve(&options);
    let content = |file: u64| file.to_le_bytes().repeat(1 + (file * 977 % 9000) as usize);
    let mut files = 0;
    for _ in 0..3 * effort() {
        bucket.set(super::Weather { is_down: true, ..super::Weather::default() });
        for file in files..files + 30 {
            super::write_and_sync(&mounted.join(file.to_string()), &content(file)).unwrap();
        }
        files += 30;
        let health = succeed(bucket.larder().arg("health").arg(mounted.path()));
        assert!(health.contains("bytes that the store lacks"), "{health}");
        mounted.kill();
        bucket.set(super::Weather::default());
        let output = bucket.larder().args(["objects", "rollback", &format!("{url}@0")]).output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(said.contains("mount it with -o journal=/"), "{said}");
        // Readers are told what they do not see.
        let output = bucket.larder().arg("ls").arg(format!("{url}:/")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("may be in the journal /"), "{said}");
        mounted.serve(&options);
        for file in 0..files {
            let found = fs::read(mounted.join(file.to_string())).unwrap();
            assert!(found == content(file), "file {file}");
        }
    }
    end_and_check(&bucket, mounted);
}

#[test]
fn what_programs_synced_outlives_the_daemon_with_a_journal() {
    let (bucket, mut rng) = (Bucket::in_memory(), StdRng::seed_from_u64(seed(7)));
    let mut mounted = mounted(&bucket, "pantry");
    mounted.unmount();
    let option = format!("journal={}", mounted.folder().join("journal").display());
    let options = ["-o", option.as_str()];
    mounted.serve(&options);
    let mut programs = Programs::new();
    Programs::prepare(&mounted.path());
    for round in 0..2 * effort() {
        bucket.set(if round % 2 == 1 { FAR_AWAY } else { super::Weather::default() });
        programs.start(&mounted.path());
        thread::sleep(moment(&mut rng));
        mounted.kill();
        programs.end();
        mounted.serve(&options);
        programs.assert_kept(&mounted.path());
    }
    bucket.set(super::Weather::default());
    end_and_check(&bucket, mounted);
}

#[test]
#[ignore = "needs versitygw, a download"]
fn programs_go_on_when_the_server_was_killed() {
    let (mut bucket, mut rng) = (Bucket::in_directory(), StdRng::seed_from_u64(seed(7)));
    let mounted = mounted(&bucket, "pantry");
    let mut programs = Programs::new();
    Programs::prepare(&mounted.path());
    programs.start(&mounted.path());
    for _ in 0..3 * effort() {
        thread::sleep(moment(&mut rng));
        bucket.be_killed_and_start();
        let commits = || fs::read(programs.told("commits")).unwrap().len();
        let before = commits();
        wait_until("git goes on", || commits() > before);
        assert!(programs.are_running(), "a program has seen an error");
    }
    programs.end();
    programs.assert_kept(&mounted.path());
    end_and_check(&bucket, mounted);
}

/// Files that were synced, one after the other, while a fifth of all requests or replies is lost or
/// refused: nothing but the end of the daemon ends the mount, and nothing is lost.
fn assert_synced_files_outlive_faults(bucket: &Bucket) {
    const FILES: u64 = 300;
    let mut rng = StdRng::seed_from_u64(seed(7));
    let mut mounted = mounted(bucket, "pantry");
    let content = |file: u64| file.to_le_bytes().repeat(1 + (file * 977 % 9000) as usize);
    bucket.set(super::Weather { errors_percent: 20, ..super::Weather::default() });
    let all = FILES * effort();
    let mut next_end = rng.random_range(0..FILES / 4);
    for file in 0..all {
        super::write_and_sync(&mounted.join(file.to_string()), &content(file)).unwrap();
        if file == next_end {
            next_end += rng.random_range(1..FILES / 2);
            mounted.kill();
            mounted.serve(&[]);
            let found = fs::read(mounted.join(file.to_string())).unwrap();
            assert!(found == content(file), "file {file}");
        }
    }
    mounted.kill();
    mounted.serve(&[]);
    for file in 0..all {
        let found = fs::read(mounted.join(file.to_string())).unwrap();
        assert!(found == content(file), "file {file}");
    }
    bucket.set(super::Weather::default());
    end_and_check(bucket, mounted);
}

#[test]
fn synced_files_outlive_faults_and_the_daemon() {
    assert_synced_files_outlive_faults(&Bucket::in_memory());
}

#[test]
#[ignore = "needs versitygw, a download"]
fn synced_files_on_versitygw_outlive_faults_and_the_daemon() {
    assert_synced_files_outlive_faults(&Bucket::in_directory());
}
