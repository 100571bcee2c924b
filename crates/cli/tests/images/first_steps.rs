//! What a person meets first: time zones, health without a mount, words of other programs, and
//! commands that go on after an error.

use std::process::Command;

use larder_testkit::Scratch;

use crate::support::{fail, larder, succeed};

/// A new file system, and its path.
fn image(scratch: &Scratch) -> String {
    let image = scratch.path().join("disk.img").display().to_string();
    succeed(&format!("mkfs -q -b 512M {image}"));
    image
}

#[test]
fn times_are_those_of_the_time_zone() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let touch = |zone: &str, name: &str| {
        let mut larder = Command::new(env!("CARGO_BIN_EXE_larder"));
        larder.env("TZ", zone).args(["touch", "-d", "2026-01-02 03:04:05"]);
        larder.arg(format!("{image}:/{name}")).output().unwrap()
    };
    let stat = || {
        let mut larder = Command::new(env!("CARGO_BIN_EXE_larder"));
        larder.env("TZ", "UTC").args(["--format", "json", "stat"]).arg(format!("{image}:/f"));
        String::from_utf8(larder.output().unwrap().stdout).unwrap()
    };
    for (zone, stored) in [
        ("UTC", "2026-01-02 03:04:05"),
        ("Asia/Tokyo", "2026-01-01 18:04:05"),
        ("JST-9", "2026-01-01 18:04:05"),
        ("", "2026-01-02 03:04:05"),
    ] {
        let done = touch(zone, "f");
        assert!(done.status.success(), "{zone}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(stat().contains(&format!("\"mtime\": \"{stored}.")), "{zone}: {}", stat());
    }
    // A time that would be wrong is not stored.
    let refused = touch("Nowhere/Land", "g");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("TZ=Nowhere/Land"), "{said}");
    fail(&format!("stat {image}:/g"));
}

#[test]
fn health_and_errors_of_devices_are_told_of_images() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let said = succeed(&format!("health {image}"));
    assert!(said.contains("Last commit:     generation") && said.contains("no errors"), "{said}");
    assert!(succeed(&format!("--format json health {image}")).contains("write_io_errs"));
    let said = succeed(&format!("device stats {image}"));
    assert!(said.contains(&format!("[{image}].write_io_errs    0")), "{said}");
    assert_eq!(succeed(&format!("device stats --check {image}")), said);
    assert_eq!(succeed(&format!("device stats -z {image}")), said);
    let said = fail("health /nowhere");
    assert!(said.contains("/nowhere"), "{said}");
}

#[test]
fn subvolumes_are_made_also_after_an_error() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let line = format!("subvolume create {image}:/a {image}:/a {image}:/none/b {image}:/c");
    let output = larder(line.split(' '));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.lines().count() == 2, "{said}");
    assert!(said.contains(&format!("{image}:/none/b")), "{said}");
    assert_eq!(succeed(&format!("ls {image}:/")), "a\nc\n");
}

#[test]
fn a_series_of_snapshots_keeps_what_its_words_say() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    succeed(&format!("subvolume create {image}:/home {image}:/snaps"));
    let dates = ["20240101T000000", "20240102T000000", "20240102T120000"];
    for name in
        dates.map(|date| format!("home-{date}")).iter().chain([&"other-20240101T000000".into()])
    {
        succeed(&format!("subvolume snapshot -r {image}:/home {image}:/snaps/{name}"));
    }
    let take = |words: &str| {
        let mut arguments = vec!["subvolume", "snapshot", "-r", "--keep", words];
        let (from, to) = (format!("{image}:/home"), format!("{image}:/snaps"));
        arguments.extend([&*from, &*to]);
        let output = larder(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = take("daily=3");
    assert!(said.starts_with("Create a readonly snapshot of "), "{said}");
    assert!(
        said.contains(&format!(
            "Delete subvolume (no-commit): '{image}:/snaps/home-20240102T000000'"
        ))
    );
    assert_eq!(said.lines().count(), 2, "{said}");
    let left = succeed(&format!("ls {image}:/snaps"));
    assert!(
        left.contains("home-20240101T000000\nhome-20240102T120000\n") && left.contains("other-")
    );
    assert_eq!(left.lines().count(), 4, "{left}");
    let said = fail(&format!("subvolume snapshot --keep often=3 {image}:/home {image}:/snaps"));
    assert!(said.contains("often=3"), "{said}");
    fail(&format!("subvolume snapshot --prefix x {image}:/home {image}:/snaps"));
}

#[test]
fn words_of_other_programs_are_understood() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    assert_eq!(succeed(&format!("df {image}")), succeed(&format!("filesystem df {image}")));
    assert_eq!(succeed(&format!("usage {image}")), succeed(&format!("filesystem usage {image}")));
    succeed(&format!("fsck {image}"));
    let said = succeed(&format!("resize 1G {image}"));
    assert!(said.starts_with("Resize device id 1 "), "{said}");
    let said = fail(&format!("qgroup show {image}"));
    assert!(said.contains("cannot do this yet; "), "{said}");
    let said = fail("qgruop show x");
    assert!(!said.contains("similar"), "{said}");
}

#[test]
fn the_example_of_the_library_needs_nothing_else() {
    let readme = include_str!("../../../../README.md");
    let example = readme.split("```rust").nth(1).and_then(|it| it.split("```").next()).unwrap();
    let uses = example.lines().filter_map(|line| line.trim().strip_prefix("use "));
    let crates: Vec<&str> = uses.filter_map(|path| path.split("::").next()).collect();
    assert!(!crates.is_empty() && crates.iter().all(|it| ["larder", "std"].contains(it)));
    assert!(!example.contains("larder_"), "a crate that a reader does not have");
}
