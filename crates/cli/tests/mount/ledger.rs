//! How many requests everyday programs cost: what `docs/requests.md` says, and no more.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::{Mounted, larder, shell, succeed};
use crate::trace::{Counts, Trace};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/requests.md");
/// Files that programs handle one by one.
const FILES: u64 = 200;
/// Directories that programs walk through, and files in each: far more than one reply lists.
const DIRECTORIES: u64 = 3;
const LISTED_FILES: u64 = 1000;
const FILE_BYTES: usize = 3000;

/// The measurements: requests by opcode, for each operation, with its number of files.
#[derive(Default)]
struct Ledger(Vec<(&'static str, Counts, u64)>);

impl Ledger {
    fn note(&mut self, operation: &'static str, files: u64, mut counts: Counts) {
        // Any program on this machine may sync all file systems, or ask each of them what it is.
        for opcode in ["SYNCFS", "IOCTL"] {
            counts.remove(opcode);
        }
        self.0.push((operation, counts, files));
    }

    /// Compares all with the table in the document.
    fn compare(&self) {
        let document = fs::read_to_string(DOCUMENT).expect("it is there");
        let is_as_said = |row: &Row| {
            let said = document.lines().find_map(|line| Row::parse(line, &row.operation));
            said.is_some_and(|said| row.is_within(&said))
        };
        let rows: Vec<Row> =
            self.0.iter().map(|(name, counts, files)| Row::new(name, counts, *files)).collect();
        let table: Vec<_> = rows.iter().map(Row::to_string).collect();
        let table = table.join("\n");
        assert!(rows.iter().all(is_as_said), "docs/requests.md has another table than:\n{table}");
    }
}

/// A row of the table: hundredths of requests for each file, by opcode.
struct Row {
    operation: String,
    hundredths: BTreeMap<String, u64>,
}

impl Row {
    /// By how much the document may exceed a measurement: a mount's first request of a kind, and
    /// requests that depend on timing.
    const SLACK: u64 = 5;

    fn new(operation: &str, counts: &Counts, files: u64) -> Self {
        let hundredths = |count: &u64| (count * 100).div_ceil(files);
        let hundredths = counts.iter().map(|(opcode, count)| (opcode.clone(), hundredths(count)));
        Self { operation: operation.to_owned(), hundredths: hundredths.collect() }
    }

    /// Reads a row about `operation`.
    fn parse(line: &str, operation: &str) -> Option<Self> {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        if cells.next() != Some(operation) {
            return None;
        }
        let (_all, each) = (cells.next()?, cells.next()?);
        let each = each.trim_end_matches('|').split(',').filter(|part| !part.trim().is_empty());
        let parse = |part: &str| {
            let (opcode, number) = part.trim().split_once(' ')?;
            Some((opcode.to_owned(), number.replace('.', "").parse().ok()?))
        };
        let hundredths = each.map(parse).collect::<Option<_>>()?;
        Some(Self { operation: operation.to_owned(), hundredths })
    }

    /// Whether no measurement exceeds the document, and the document hardly exceeds any.
    fn is_within(&self, said: &Self) -> bool {
        let of = |row: &Self, opcode| row.hundredths.get(opcode).copied().unwrap_or(0);
        let opcodes = self.hundredths.keys().chain(said.hundredths.keys());
        opcodes.into_iter().all(|opcode| {
            let (is, said) = (of(self, opcode), of(said, opcode));
            is <= said && said <= is + Self::SLACK
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |hundredths: u64| format!("{}.{:02}", hundredths / 100, hundredths % 100);
        write!(f, "| {} | {} |", self.operation, number(self.hundredths.values().sum()))?;
        let each = self.hundredths.iter();
        let each: Vec<_> = each.map(|(opcode, it)| format!(" {opcode} {}", number(*it))).collect();
        write!(f, "{} |", each.join(","))
    }
}

fn paths(folder: &Path, count: u64) -> Vec<PathBuf> {
    (0..count).map(|number| folder.join(number.to_string())).collect()
}

fn create(path: &Path) -> File {
    OpenOptions::new().write(true).create_new(true).open(path).unwrap()
}

fn sync(mounted: &Mounted) {
    succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
}

/// Mounts again, so that the kernel knows nothing.
fn forget(mounted: &mut Mounted) {
    mounted.unmount();
    mounted.mount(&[]);
}

/// One process handles one file after another.
fn single_calls(mounted: &Mounted, ledger: &mut Ledger) {
    let trace = Trace::of(&mounted.path());
    let folder = mounted.join("calls");
    fs::create_dir(&folder).unwrap();
    let mut note = |operation, work: &dyn Fn(&Path)| {
        let counts = trace.count(|| paths(&folder, FILES).iter().for_each(|path| work(path)));
        ledger.note(operation, FILES, counts);
    };
    let renamed = |path: &Path| path.with_extension("renamed");
    note("create, close", &|path| drop(create(path)));
    note("stat of new files", &|path| stat(path));
    note("unlink", &|path| fs::remove_file(path).unwrap());
    note("create, write, close", &|path| create(path).write_all(&[b'x'; FILE_BYTES]).unwrap());
    note("stat after write", &|path| stat(path));
    note("open, read, close", &|path| drop(fs::read(path).unwrap()));
    note("chmod", &|path| fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap());
    note("stat after chmod", &|path| stat(path));
    note("rename", &|path| fs::rename(path, renamed(path)).unwrap());
    note("stat after rename", &|path| stat(&renamed(path)));
}

/// As most programs ask: not for the time of birth, which only one kind of request has.
fn stat(path: &Path) {
    rustix::fs::lstat(path).unwrap();
}

/// Operations of programs on new files.
fn programs(mounted: &Mounted, ledger: &mut Ledger) {
    let archive = mounted.folder().join("archive.tar");
    let source = mounted.folder().join("source");
    fs::create_dir(&source).unwrap();
    for path in paths(&source, FILES) {
        fs::write(&path, [b'x'; FILE_BYTES]).unwrap();
        // git reads files again that are hardly older than its index.
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
    }
    let tar = ["-C", source.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."];
    succeed(Command::new("tar").args(tar));
    fs::create_dir(mounted.join("tar")).unwrap();
    let trace = Trace::of(&mounted.path());
    let mut note = |operation, line: &str| {
        let counts = trace.count(|| drop(mounted.shell(line)));
        ledger.note(operation, FILES, counts);
    };
    note("`tar -x`", &format!("tar -C tar -xf {}", archive.display()));
    sync(mounted);
    note("`cp -a`", "cp -a tar copy");
    sync(mounted);
    mounted.shell("rsync -a tar/ copy/");
    note("`rsync -a`, nothing to do", "rsync -a tar/ copy/");
    mounted.shell("ls -l tar");
    note("`ls -l`, again", "ls -l tar");
    mounted.shell(
        "cd tar && git init -q && git add . && git -c user.name=n -c user.email=e commit -qm m",
    );
    sync(mounted);
    mounted.shell("cd tar && git status");
    note("`git status`", "cd tar && git status");
    mounted.shell("rm -rf tar/.git");
}

/// Operations of programs on files that the kernel does not know.
fn walks(mounted: &mut Mounted, ledger: &mut Ledger) {
    for directory in 0..DIRECTORIES {
        let folder = mounted.join("walk").join(directory.to_string());
        fs::create_dir_all(&folder).unwrap();
        for path in paths(&folder, LISTED_FILES) {
            create(&path);
        }
    }
    for (operation, line) in [
        ("`find -printf %s`, cold", "find walk -printf '%s\\n'"),
        ("`find -name`, cold", "find walk -name nothing"),
        ("`ls -lR`, cold", "ls -lR walk"),
        ("`du -s`, cold", "du -s walk"),
        ("`rm -r`, cold", "rm -r walk"),
    ] {
        forget(mounted);
        let trace = Trace::of(&mounted.path());
        let path = mounted.path();
        let counts = trace.count(|| drop(shell(&path, line)));
        ledger.note(operation, LISTED_FILES * DIRECTORIES, counts);
    }
}

#[test]
pub(crate) fn everyday_programs_send_as_many_requests_as_documented() {
    let mut mounted = Mounted::new();
    let mut ledger = Ledger::default();
    single_calls(&mounted, &mut ledger);
    programs(&mounted, &mut ledger);
    walks(&mut mounted, &mut ledger);
    ledger.compare();
    mounted.finish();
}
