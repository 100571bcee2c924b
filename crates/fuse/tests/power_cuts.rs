//! Power cuts under a mount: programs work on it, all writes to the device are recorded, and the
//! state after a cut at any point is checked against what fsync, O_SYNC and commits promised of
//! each file before.
//!
//! The kernel takes part: it caches data and times and writes them back when it likes, and the
//! promises rest on the requests that it sends when a program syncs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use larder::device::{Device, MemoryDevice};
use larder::{Directory, FileType, Filesystem};
use larder_fuse::{Mount, MountOptions, Server, ServerOptions, unmount};
use larder_mkfs::{MkfsOptions, mkfs_on};
use larder_power_cuts::{assert_sound, store, survival};
use larder_test_devices::{Event, Recording};
use larder_testkit::{KernelMount, Scratch, oracle};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SECTOR: usize = 4096;
const DEVICE_BYTES: u64 = 256 << 20;
const FOLDERS: [&str; 2] = ["d0", "d1"];
const DATABASE: &str = "database";

/// What a file should be: its names, and the version of each sector.
#[derive(Clone, Debug, Default)]
struct Tracked {
    names: BTreeSet<String>,
    sectors: Vec<u8>,
}

/// All files, by number, after a step.
type State = BTreeMap<u8, Tracked>;

/// What a call promised when it returned: the state then, or a newer one.
#[derive(Clone, Copy, Debug)]
enum Promised {
    File(u8),
    /// The names in a folder.
    Folder(&'static str),
    Everything,
    /// So many rows of the database.
    Rows(u64),
}

type History = larder_power_cuts::History<State, Promised>;

/// The state after a cut: the content of each file by its path.
type Found = BTreeMap<String, Vec<u8>>;

impl Promised {
    fn is_kept(self, since: &[State], found: &Found) -> Result<(), String> {
        match self {
            Self::Rows(_) => Ok(()),
            Self::File(id) => file_kept(id, since, found),
            Self::Folder(folder) => {
                let names = since[0].values().flat_map(|file| &file.names);
                let mut names = names.filter(|name| name.starts_with(folder));
                names.try_for_each(|name| name_kept(name, since, found))
            }
            Self::Everything => since[0].keys().try_for_each(|id| file_kept(*id, since, found)),
        }
    }
}

/// Rows that the database must have after a cut at `position`.
fn rows(history: &History, position: usize) -> u64 {
    history.promised(position).fold(0, |rows, promised| match promised {
        Promised::Rows(promised) => rows.max(*promised),
        _ => rows,
    })
}

fn judge(history: &History, found: &Found, position: usize, what: &str) {
    history.judge(position, what, |promised, since| promised.is_kept(since, found));
}

/// A name never leads to another file later, so one that stays must be there.
fn name_kept(name: &String, since: &[State], found: &Found) -> Result<(), String> {
    let stays = since.iter().all(|state| state.values().any(|file| file.names.contains(name)));
    if stays && !found.contains_key(name) { Err(format!("{name} is lost")) } else { Ok(()) }
}

fn file_kept(id: u8, since: &[State], found: &Found) -> Result<(), String> {
    since[0][&id].names.iter().try_for_each(|name| name_kept(name, since, found))?;
    for (name, content) in found.iter().filter(|(name, _)| id_of(name) == Some(id)) {
        if !since.iter().any(|state| state[&id].names.contains(name)) {
            return Err(format!("{name} came back"));
        }
        let lens: BTreeSet<usize> = since.iter().map(|state| state[&id].sectors.len()).collect();
        if content.len() % SECTOR != 0 || !lens.contains(&(content.len() / SECTOR)) {
            return Err(format!("{name} has {} bytes", content.len()));
        }
        for (at, sector) in content.chunks(SECTOR).enumerate() {
            let versions: BTreeSet<u8> =
                since.iter().filter_map(|state| state[&id].sectors.get(at).copied()).collect();
            let is_one = versions.iter().any(|version| sector == sector_of(id, *version));
            if !is_one {
                return Err(format!(
                    "{name}: sector {at} begins {:?}, of {versions:?}",
                    &sector[..2]
                ));
            }
        }
    }
    Ok(())
}

/// The file that a path leads to: a path has a folder, the number of the file, and a number of its
/// own.
fn id_of(path: &str) -> Option<u8> {
    path.split_once('/')?.1.split('-').next()?.parse().ok()
}

fn sector_of(id: u8, version: u8) -> Vec<u8> {
    [id, version].repeat(SECTOR / 2)
}

/// Works on a mount.
struct Player<'p> {
    root: &'p Path,
    recording: &'p Recording,
    random: StdRng,
    state: State,
    history: History,
    names_made: u32,
    version: u8,
    rows: u64,
}

impl Player<'_> {
    fn below(&mut self, limit: usize) -> usize {
        self.random.random_range(0..limit)
    }

    fn promise(&mut self, what: Promised) {
        self.history.promise(what, self.recording.position());
    }

    /// Notes the state after a step that began at `begun`.
    fn note(&mut self, begun: usize, step: &str) {
        self.history.note(begun, step, self.state.clone());
    }

    fn new_name(&mut self, id: u8) -> String {
        self.names_made += 1;
        format!("{}/{id}-{}", FOLDERS[self.below(2)], self.names_made)
    }

    /// A file that has a name, and that name.
    fn some_file(&mut self) -> Option<(u8, String)> {
        let named = self.state.iter().filter(|(_, file)| !file.names.is_empty());
        let all: Vec<(u8, String)> = named
            .flat_map(|(id, file)| file.names.iter().map(|name| (*id, name.clone())))
            .collect();
        if all.is_empty() { None } else { Some(all[self.below(all.len())].clone()) }
    }

    fn step(&mut self) {
        let begun = self.recording.position();
        let choice = self.below(20);
        let (id, name) = match self.some_file() {
            Some(file) if choice > 1 => file,
            _ => return self.create(begun),
        };
        let path = self.root.join(&name);
        match choice {
            2..8 => self.write(begun, id, &path, choice == 2),
            8..10 => {
                let new = self.new_name(id);
                fs::rename(path, self.root.join(&new)).unwrap();
                let names = &mut self.state.get_mut(&id).unwrap().names;
                names.remove(&name);
                names.insert(new.clone());
                self.note(begun, &format!("rename {name} to {new}"));
            }
            10 => {
                let new = self.new_name(id);
                fs::hard_link(path, self.root.join(&new)).unwrap();
                self.state.get_mut(&id).unwrap().names.insert(new.clone());
                self.note(begun, &format!("link {name} as {new}"));
            }
            11 => {
                fs::remove_file(path).unwrap();
                self.state.get_mut(&id).unwrap().names.remove(&name);
                self.note(begun, &format!("unlink {name}"));
            }
            12..17 => {
                let file = File::open(path).unwrap();
                if choice == 12 { file.sync_data() } else { file.sync_all() }.unwrap();
                self.promise(Promised::File(id));
            }
            17 => {
                let folder = FOLDERS[self.below(2)];
                File::open(self.root.join(folder)).unwrap().sync_all().unwrap();
                self.promise(Promised::Folder(folder));
            }
            18 if self.below(4) == 0 => {
                larder_ioctl::sync(File::open(self.root).unwrap()).unwrap();
                self.promise(Promised::Everything);
            }
            _ => self.insert_row(begun),
        }
    }

    fn create(&mut self, begun: usize) {
        let id = self.state.len() as u8;
        let name = self.new_name(id);
        self.version += 1;
        let sectors = vec![self.version; 1 + self.below(8)];
        let content = sector_of(id, self.version).repeat(sectors.len());
        fs::write(self.root.join(&name), content).unwrap();
        let names = BTreeSet::from([name.clone()]);
        // It exists before it has content.
        self.state.insert(id, Tracked { names, sectors: Vec::new() });
        self.note(begun, &format!("create {name}"));
        self.state.get_mut(&id).unwrap().sectors.clone_from(&sectors);
        self.note(begun, &format!("write {} sectors to it", sectors.len()));
    }

    /// Writes some sectors, in the file or after its end.
    fn write(&mut self, begun: usize, id: u8, path: &Path, at_once: bool) {
        self.version += 1;
        let (version, len) = (self.version, self.state[&id].sectors.len());
        let (at, count) = (self.below(len + 1), 1 + self.below(4));
        let flags = if at_once { rustix::fs::OFlags::SYNC.bits() as i32 } else { 0 };
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path).unwrap();
        let data = sector_of(id, version).repeat(count);
        file.write_all_at(&data, (at * SECTOR) as u64).unwrap();
        let sectors = &mut self.state.get_mut(&id).unwrap().sectors;
        sectors.resize(len.max(at + count), version);
        sectors[at..at + count].fill(version);
        self.note(begun, &format!("write {count} sectors of {id} at {at}, version {version}"));
        if at_once {
            self.promise(Promised::File(id));
        }
    }

    /// A program that knows what to sync and when.
    fn insert_row(&mut self, begun: usize) {
        let row = self.rows + 1;
        // With less, the journal that was removed to commit may come back.
        let script = format!(
            "pragma synchronous = extra;
             create table if not exists rows (number integer, filling text);
             insert into rows values ({row}, hex(randomblob(900)));"
        );
        sqlite(&self.root.join(DATABASE), &script);
        self.rows = row;
        self.note(begun, &format!("row {row}"));
        self.promise(Promised::Rows(row));
    }
}

fn sqlite(database: &Path, script: &str) -> String {
    let output =
        Command::new("sqlite3").arg(database).arg(script).output().expect("sqlite3 starts");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Unmounts also when a test fails, so that the server ends.
struct Unmounts<'p>(&'p Path);

impl Drop for Unmounts<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, true);
    }
}

/// Mounts a new file system on a device that is recorded, and runs `steps` on it.
fn work(seed: u64, steps: usize) -> (Recording, History) {
    let device = Arc::new(MemoryDevice::new("memory", DEVICE_BYTES));
    let shared: Arc<dyn Device> = device.clone();
    mkfs_on(std::slice::from_ref(&shared), &MkfsOptions::default()).unwrap();
    let recording = Recording::new();
    let filesystem = open(Arc::new(recording.attach(&device)));
    let top = filesystem.subvolume("/").unwrap();
    let point = Scratch::new();
    let server = Server::new(&filesystem, &top, ServerOptions::default()).unwrap();
    let mount = Mount::new(point.path(), server, &MountOptions::default()).unwrap();
    let history = thread::scope(|scope| {
        scope.spawn(|| mount.serve().unwrap());
        let _unmounts = Unmounts(point.path());
        for folder in FOLDERS {
            fs::create_dir(point.path().join(folder)).unwrap();
        }
        larder_ioctl::sync(File::open(point.path()).unwrap()).unwrap();
        let mut player = Player {
            root: point.path(),
            recording: &recording,
            random: StdRng::seed_from_u64(seed),
            state: State::new(),
            history: History::new(recording.position(), State::new()),
            names_made: 0,
            version: 0,
            rows: 0,
        };
        player.promise(Promised::Everything);
        (0..steps).for_each(|_| player.step());
        player.history
    });
    (recording, history)
}

fn open(device: Arc<dyn Device>) -> Filesystem {
    let options = larder::OpenOptions::new().write(true).commit_interval(None);
    options.open_devices(vec![device]).unwrap_or_else(|error| panic!("{error}"))
}

/// The state as the library sees it, which replays the log.
fn found_by_larder(filesystem: &Filesystem) -> Found {
    fn enter(folder: &Directory, path: &str, found: &mut Found) {
        for entry in folder.entries().unwrap() {
            let entry = entry.unwrap();
            let path = format!("{path}{}", entry.name().to_str().unwrap());
            let inode = entry.open().unwrap_or_else(|error| panic!("{path}: {error}"));
            if inode.file_type() == FileType::Directory {
                enter(&inode.into_directory().unwrap(), &format!("{path}/"), found);
            } else {
                let file = inode.into_file().unwrap();
                let mut content = vec![0; file.len_bytes() as usize];
                assert_eq!(file.read_at(&mut content, 0).unwrap(), content.len());
                found.insert(path, content);
            }
        }
    }
    let mut found = Found::new();
    enter(&filesystem.subvolume("/").unwrap().root().unwrap(), "", &mut found);
    found
}

/// The state as the kernel sees it on a copy, which replays the log too; its checker must accept
/// that.
fn found_by_kernel(device: &MemoryDevice) -> Found {
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    store(device, &image);
    let mut found = Found::new();
    let mount = KernelMount::open(std::slice::from_ref(&image), "");
    for folder in ["", "d0/", "d1/"] {
        for entry in fs::read_dir(mount.path().join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let path = format!("{folder}{}", entry.file_name().to_str().unwrap());
                found.insert(path, fs::read(entry.path()).unwrap());
            }
        }
    }
    drop(mount);
    oracle::check(&[image], true).unwrap_or_else(|error| panic!("{error}"));
    found
}

/// sqlite recovers its database, and finds the rows that it said were there.
fn judge_database(found: &Found, promised: u64, what: &str) {
    let scratch = Scratch::new();
    for (name, content) in found.iter().filter(|(name, _)| name.starts_with(DATABASE)) {
        File::create(scratch.path().join(name)).unwrap().write_all(content).unwrap();
    }
    if promised == 0 {
        return;
    }
    let script = "pragma integrity_check; select count(*) from rows;";
    let said = sqlite(&scratch.path().join(DATABASE), script);
    let (sound, rows) = said.split_once('\n').unwrap();
    assert_eq!(sound, "ok", "{what}");
    assert!(rows.parse::<u64>().unwrap() >= promised, "{what}: {rows} of {promised} rows");
}

#[test]
fn synced_files_survive_power_cuts() {
    let (mut cuts, mut kernels) = (0, 0);
    let first = larder_testkit::seed(1);
    for seed in first..first + 4 {
        let (recording, history) = work(seed, 150);
        let mut random = StdRng::seed_from_u64(seed);
        let mut replay = recording.replay();
        while let Some(entry) = replay.step() {
            let is_flush = entry.event == Event::Flush;
            let is_begun = replay.position() >= history.began();
            if !is_begun
                || random.random_range(0..16) > 0 && !(is_flush && random.random_range(0..3) == 0)
            {
                continue;
            }
            let device = replay.power_cut(survival(random.random()));
            let device = device.into_iter().next().unwrap();
            let position = replay.position();
            let what = format!("seed {seed}, cut at {position}");
            assert_sound([&device], &what);
            cuts += 1;
            if cuts % 40 == 0 {
                judge(&history, &found_by_kernel(&device), position, &what);
                kernels += 1;
            }
            let recovered = Arc::new(device.snapshot());
            let filesystem = open(recovered.clone());
            let found = found_by_larder(&filesystem);
            judge(&history, &found, position, &what);
            if cuts % 8 == 0 {
                judge_database(&found, rows(&history, position), &what);
                filesystem.sync().unwrap();
                drop(filesystem);
                assert_sound([&*recovered], &what);
            }
        }
        println!("seed {seed}: {cuts} cuts, {kernels} recovered by the kernel too");
    }
    assert!(cuts > 200 && kernels > 3, "{cuts} cuts, {kernels} of them for the kernel");
}
