//! The command prints about images of the kernel what btrfs-progs prints, to the byte.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::matrix::{Case, matrix};
use larder_testkit::{Checkable, KernelImage};

/// Standard output of a program that must succeed.
fn output<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}: {errors}", output.status);
    output.stdout
}

/// Runs `btrfs inspect-internal` and `larder inspect` with the same arguments and compares.
fn same_dump(case: &str, arguments: &[&str], devices: &[impl AsRef<Path>]) {
    let with = |group| {
        let devices = devices.iter().map(|path| path.as_ref().as_os_str());
        [group].into_iter().chain(arguments.iter().copied()).map(OsStr::new).chain(devices)
    };
    let theirs = output("btrfs", with("inspect-internal"));
    let ours = output(env!("CARGO_BIN_EXE_larder"), with("inspect"));
    assert!(ours == theirs, "{case}: {arguments:?}: {}", first_difference(&ours, &theirs));
}

/// The generation in the first superblock of a device.
fn generation(device: &Path) -> u64 {
    let mut field = [0; 8];
    let file = File::open(device).expect("the device is there");
    file.read_exact_at(&mut field, 64 * 1024 + 72).expect("it is longer than that");
    u64::from_le_bytes(field)
}

fn first_difference(ours: &[u8], theirs: &[u8]) -> String {
    let mut lines = ours.split(|b| *b == b'\n').zip(theirs.split(|b| *b == b'\n')).enumerate();
    match lines.find(|(_, (ours, theirs))| ours != theirs) {
        Some((number, (ours, theirs))) => format!(
            "line {}\n  ours:   {}\n  theirs: {}",
            number + 1,
            ours.escape_ascii(),
            theirs.escape_ascii()
        ),
        None => format!("{} bytes against {}", ours.len(), theirs.len()),
    }
}

#[test]
fn dumps_of_every_kind_of_image_are_those_of_btrfs_progs() {
    for Case { spec, content } in matrix() {
        // There is nothing to compare with if btrfs-progs does not know a feature.
        if spec.checkable() == Checkable::Nothing {
            continue;
        }
        let image = KernelImage::build(&spec, &content);
        // btrfs-progs uses the first device that it is given, Larder the newest: so that one comes
        // before a seed device and one that missed a transaction.
        let mut devices: Vec<_> = image.devices().iter().collect();
        devices.sort_by_key(|path| Reverse(generation(path)));
        same_dump(spec.name(), &["dump-tree", "--noscan"], &devices);
        for device in &devices {
            same_dump(spec.name(), &["dump-super", "-fa"], &[device]);
        }
        same_subvolumes(spec.name(), &image, &devices);
        all_data_has_a_place(spec.name(), &devices);
    }
}

/// The extents that a report finds in files are those that block groups have in use.
fn all_data_has_a_place(case: &str, devices: &[&PathBuf]) {
    let further = devices[1..].iter().map(|device| format!("--device={}", device.display()));
    let options = ["report", "--format=json", "--degraded"].map(str::to_owned);
    let arguments = options.into_iter().chain(further).chain([devices[0].display().to_string()]);
    let report = output(env!("CARGO_BIN_EXE_larder"), arguments);
    let report: serde_json::Value = serde_json::from_slice(&report).expect("it is json");
    let data = &report["data"]["disk_bytes"];
    assert_eq!(&report["places"][0]["disk_bytes"], data, "{case}");
    assert_eq!(&report["places"][0]["exclusive_bytes"], data, "{case}");
    let spaces = report["space"].as_array().expect("a list");
    let used: u64 = spaces
        .iter()
        .filter(|space| space["kind"] == "Data")
        .filter_map(|space| space["used_bytes"].as_u64())
        .sum();
    let is_mixed = spaces.iter().any(|space| space["kind"] == "Data+Metadata");
    assert!(is_mixed || *data == used, "{case}: {data} of {used}");
}

/// Compares `subvolume list` on a mount and on the image.
fn same_subvolumes(case: &str, image: &KernelImage, devices: &[&PathBuf]) {
    let mount = image.mount("ro,rescue=nologreplay,subvolid=5");
    for options in ["-g", "-a", "-apcguqR", "-s", "-r", "-t", "-d"] {
        let theirs = output(
            "btrfs",
            ["subvolume".as_ref(), "list".as_ref(), options.as_ref(), mount.path()],
        );
        let others = devices[1..].iter().flat_map(|path| [Path::new("--device"), path]);
        let start = ["subvolume", "list", options].map(Path::new);
        let ours = output(
            env!("CARGO_BIN_EXE_larder"),
            start.into_iter().chain(others).chain([devices[0].as_path()]),
        );
        let difference = || first_difference(&ours, &theirs);
        assert!(ours == theirs, "{case}: subvolume list {options}: {}", difference());
    }
}

#[test]
fn options_of_dump_tree_do_the_same_as_those_of_btrfs_progs() {
    let Case { spec, content } = matrix().into_iter().next().expect("the matrix is not empty");
    let image = KernelImage::build(&spec, &content);
    for options in [
        &["--dfs"][..],
        &["-r"],
        &["-R"],
        &["-d"],
        &["-e"],
        &["-u"],
        &["-t", "5"],
        &["-t", "root"],
        &["-t", "chunk"],
        &["-t", "csum"],
        &["--csum-headers"],
        &["--csum-items"],
        &["--hide-names"],
    ] {
        let arguments: Vec<&str> =
            ["dump-tree"].into_iter().chain(options.iter().copied()).collect();
        same_dump(spec.name(), &arguments, image.devices());
    }
}
