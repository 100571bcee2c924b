//! `larder scrub` on images and on the kernel's mounts, beside `btrfs scrub`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::{KernelMount, Scratch, damage, sparse_file::sparse_copy};
use serde_json::Value;

use crate::support::larder;

/// Begins each of the sectors of the file.
const MARK: &[u8] = b"a sector that has a good copy";
const SECTOR: usize = 4096;

/// The exit code, standard output and standard error.
type Said = (i32, String, String);

fn said(program: &str, words: &str) -> Said {
    let output = Command::new(program).args(words.split(' ')).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn ours(words: &str) -> Said {
    said(env!("CARGO_BIN_EXE_larder"), words)
}

/// Without what is never the same twice: times, and what mounting changes of the trees.
fn comparable(text: &str) -> String {
    let varies =
        ["Scrub started", "Scrub resumed", "Total to scrub", "Rate", "Duration", "\ttree_"];
    let lines = text.lines().filter(|line| !varies.iter().any(|start| line.starts_with(start)));
    lines.filter(|line| !line.contains("last_physical")).collect::<Vec<_>>().join("\n")
}

/// Two images of a RAID1.
struct Images {
    scratch: Scratch,
    files: Vec<PathBuf>,
}

impl Images {
    fn new() -> Self {
        let scratch = Scratch::new();
        let source = scratch.path().join("source");
        fs::create_dir(&source).unwrap();
        let mut sector = MARK.to_vec();
        sector.resize(SECTOR, b'.');
        let sectors = (0..256_u32).flat_map(|number| {
            let mut sector = sector.clone();
            sector[SECTOR - 4..].copy_from_slice(&number.to_le_bytes());
            sector
        });
        fs::write(source.join("file"), sectors.collect::<Vec<u8>>()).unwrap();
        let files = ["one", "two"].map(|name| scratch.sparse_file(name, 256 << 20)).to_vec();
        let [one, two] = [&files[0], &files[1]].map(|file| file.to_str().unwrap());
        let source = source.to_str().unwrap();
        let made = larder(["mkfs", "-q", "-d", "raid1", "-m", "raid1", "-r", source, one, two]);
        assert!(made.status.success(), "{made:?}");
        Self { scratch, files }
    }

    /// An independent copy.
    fn copied(&self, name: &str) -> Self {
        let scratch = Scratch::new();
        let copy = |file: &PathBuf| {
            let to = scratch.path().join(format!("{name}-{}", file.file_name().unwrap().display()));
            sparse_copy(file, &to).unwrap();
            to
        };
        let files = self.files.iter().map(copy).collect();
        Self { scratch, files }
    }

    /// Damages the sector of the file with this number on a device.
    fn spoil(&self, device: usize, number: usize) {
        let bytes = fs::read(&self.files[device]).unwrap();
        let is_ours = |sector: &[u8]| sector.starts_with(MARK);
        let mut sectors = bytes.chunks(SECTOR).enumerate().filter(|(_, it)| is_ours(it));
        let at = (sectors.nth(number).unwrap().0 * SECTOR) as u64;
        damage::invert(&self.files[device], at..at + 16).unwrap();
    }

    fn word(&self) -> &str {
        self.files[0].to_str().unwrap()
    }

    fn uuid(&self) -> String {
        let shown = ours(&format!("filesystem show {}", self.word())).1;
        shown.split("uuid: ").nth(1).unwrap().lines().next().unwrap().trim().to_owned()
    }

    fn record(&self) -> PathBuf {
        Path::new("/var/lib/btrfs").join(format!("scrub.status.{}", self.uuid()))
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        let _ = (fs::remove_file(self.record()), self.scratch.path());
    }
}

#[test]
fn an_image_is_scrubbed_as_the_kernels_mount_is() {
    let made = Images::new();
    made.spoil(0, 3);
    made.spoil(0, 4);
    made.spoil(1, 100);
    let (image, other, kernel) =
        (made.copied("image"), made.copied("other"), made.copied("kernel"));
    let (code, result, warnings) = ours(&format!("scrub start -B {}", image.word()));
    assert_eq!(code, 0, "{warnings}");
    for expected in ["file at 12288", "file at 409600", "of data", "repaired from a good copy"] {
        assert!(warnings.contains(expected), "{warnings}");
    }
    assert!(warnings.contains("WARNING: errors detected during scrubbing, corrected\n"));
    // The same by the kernel, asked by btrfs and by larder.
    let mount = KernelMount::open(&kernel.files, "");
    let point = mount.path().display().to_string();
    let by_btrfs = said("btrfs", &format!("scrub start -B {point}"));
    assert_eq!(comparable(&result), comparable(&by_btrfs.1));
    assert!(result.contains("csum=3\n  Corrected:      3\n  Uncorrectable:  0\n"), "{result}");
    for options in ["", "-R ", "-d ", "-R -d "] {
        let words = format!("scrub status {options}{point}");
        assert_eq!(comparable(&ours(&words).1), comparable(&said("btrfs", &words).1), "{words}");
    }
    drop(mount);
    let mount = KernelMount::open(&other.files, "");
    let point = mount.path().display().to_string();
    fs::remove_file(made.record()).unwrap();
    let by_larder = ours(&format!("scrub start -B {point}"));
    assert_eq!((by_larder.0, comparable(&by_larder.1)), (0, comparable(&by_btrfs.1)));
    // What larder has recorded, btrfs reads.
    let status = said("btrfs", &format!("scrub status {point}")).1;
    assert!(
        status.contains("Status:           finished\n") && status.contains("csum=3"),
        "{status}"
    );
    assert_eq!(ours(&format!("scrub cancel {point}")).0, 2);
    assert_eq!(ours(&format!("scrub resume -B {point}")).0, 2);
    drop(mount);
    let again = ours(&format!("scrub start -B {}", image.word()));
    assert!(again.0 == 0 && again.1.contains("no errors found"), "{again:?}");
}

#[test]
fn what_is_beyond_repair_fails_and_names_its_files() {
    let image = Images::new();
    image.spoil(0, 7);
    image.spoil(1, 7);
    let words = format!("--format json scrub start -B {}", image.word());
    let (code, json, warnings) = ours(&words);
    assert_eq!(code, 3, "{warnings}");
    assert!(warnings.contains("ERROR: there are uncorrectable errors\n"), "{warnings}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let devices = json["scrub"]["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    for device in devices {
        assert_eq!(device["uncorrectable-errors"], 1);
        assert_eq!(device["status"], "finished");
    }
    let findings = json["scrub"]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 2);
    assert_eq!(findings[0]["files"][0]["path"], "file");
    assert_eq!(findings[0]["files"][0]["offset"], 7 * 4096);
    let status = ours(&format!("--format json scrub status {}", image.word()));
    let status: Value = serde_json::from_str(&status.1).unwrap();
    assert_eq!(status["scrub-status"]["devices"][0]["csum-errors"], 1);
    // -r repairs nothing.
    let image = Images::new();
    image.spoil(1, 9);
    let before = fs::read(&image.files[1]).unwrap();
    let (code, _, warnings) = ours(&format!("scrub start -B -r {}", image.word()));
    assert!(code == 0 && warnings.contains("left as it is; there is a good copy"), "{warnings}");
    assert!(fs::read(&image.files[1]).unwrap() == before);
}

#[test]
fn a_scrub_in_the_background_is_cancelled_and_resumed() {
    let image = Images::new();
    let word = image.word();
    let (code, text, error) = ours(&format!("scrub start --limit 64K {word}"));
    assert_eq!(code, 0, "{error}");
    let begins = format!("scrub started on {word}, fsid {} (pid=", image.uuid());
    assert!(text.starts_with(&begins), "{text}");
    let (code, _, refused) = ours(&format!("scrub start -B {word}"));
    assert_eq!(code, 1);
    assert!(refused.contains("ERROR: Scrub is already running.\n"), "{refused}");
    assert!(ours(&format!("scrub status {word}")).1.contains("Status:           running\n"));
    assert_eq!(ours(&format!("scrub cancel {word}")).1, "scrub cancelled\n");
    let aborted = ours(&format!("scrub status {word}")).1;
    assert!(aborted.contains("Status:           aborted\n"), "{aborted}");
    assert_eq!(ours(&format!("scrub cancel {word}")).0, 2);
    let (code, text, error) = ours(&format!("--format json scrub resume -B {word}"));
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["scrub"]["devices"][1]["status"]), (0, &"finished".into()), "{error}");
    let raw = ours(&format!("scrub status -R {word}")).1;
    assert!(
        raw.contains("Scrub resumed:") && raw.contains("Status:           finished\n"),
        "{raw}"
    );
    let whole = ours(&format!("scrub start -B -R {word}")).1;
    let bytes = |text: &str| text.lines().find(|it| it.contains("data_bytes")).unwrap().to_owned();
    assert_eq!(bytes(&raw), bytes(&whole));
    let nothing = ours(&format!("scrub resume {word}"));
    assert_eq!(nothing.0, 2);
    assert!(nothing.1.starts_with("scrub: nothing to resume for "), "{nothing:?}");
    let nothing = ours(&format!("--format json scrub resume {word}"));
    let json: Value = serde_json::from_str(&nothing.1).unwrap();
    assert_eq!((nothing.0, &json["scrub"]["devices"]), (2, &Value::Array(Vec::new())));
}
