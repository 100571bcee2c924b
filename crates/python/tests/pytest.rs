//! Runs the package's own tests, in Python, on the module that was built with this program.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::Scratch;
use larder_testkit::guard::require_kernel;

/// Debian's, which has the packages that the tests import.
const PYTHON: &str = "/usr/bin/python3";

/// Makes a folder what `pip install` would make of the wheel.
fn install(folder: &Path) {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = folder.join("larder");
    fs::create_dir_all(&package).expect("the folder is new");
    for entry in fs::read_dir(crate_folder.join("larder")).expect("it is there") {
        let source = entry.expect("it is listed").path();
        if source.is_file() {
            let name = source.file_name().expect("a file has a name");
            fs::copy(&source, package.join(name)).expect("it is copied");
        }
    }
    let program = env::current_exe().expect("it has a path");
    let module = program.with_file_name("lib_larder.so");
    fs::copy(&module, package.join("_larder.abi3.so")).expect("it was built with this program");

    let description = folder.join("larder-0.dist-info");
    fs::create_dir(&description).expect("the folder is new");
    let project = fs::read_to_string(crate_folder.join("pyproject.toml")).expect("it is there");
    let (_, entry_point) =
        project.split_once("[project.entry-points.\"fsspec.specs\"]\n").expect("it has one");
    let entry_point = entry_point.lines().next().expect("it has a line").replace('"', "");
    fs::write(description.join("METADATA"), "Name: larder\nVersion: 0\n").expect("it is written");
    fs::write(description.join("entry_points.txt"), format!("[fsspec.specs]\n{entry_point}\n"))
        .expect("it is written");
}

#[test]
fn the_package_passes_its_tests() {
    require_kernel();
    let scratch = Scratch::new();
    let folder = scratch.path();
    install(folder);
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    // Mounts that a failed test leaves end with the processes that see them.
    let status = Command::new("unshare")
        .args(["--mount", "env", "--default-signal=INT", PYTHON, "-X", "dev", "-m", "pytest"])
        .args([
            "--quiet",
            "-p",
            "no:cacheprovider",
            "-W",
            "error::pytest.PytestUnraisableExceptionWarning",
        ])
        .arg("--basetemp")
        .arg(folder.join("tests"))
        .arg(&tests)
        .current_dir(&tests)
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status()
        .expect("unshare starts");
    assert!(status.success(), "the tests in Python: {status}");
}
