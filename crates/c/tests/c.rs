//! The library as programs in C see it.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use cbindgen::{Builder, Config};
use larder_testkit::{KernelMount, Scratch};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
/// In the order of the header.
const SOURCES: [&str; 13] = [
    "outcome",
    "filesystem",
    "names",
    "attributes",
    "xattrs",
    "file",
    "directory",
    "subvolumes",
    "streams",
    "jobs",
    "devices",
    "mkfs",
    "check",
];

fn in_crate(path: &str) -> PathBuf {
    Path::new(CRATE).join(path)
}

#[test]
fn the_header_is_current() {
    let config = Config::from_file(in_crate("cbindgen.toml")).expect("it can be read");
    let mut builder = Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(in_crate(&format!("src/{source}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().expect("cbindgen understands the sources").write(&mut header);
    let path = in_crate("include/larder.h");
    if env::var_os("LARDER_REWRITE").is_some() {
        fs::write(&path, &header).expect("it is written");
    }
    let committed = fs::read(&path).expect("it is there");
    assert!(committed == header, "LARDER_REWRITE=1 cargo test -p larder-c writes it anew");
}

/// A folder with the library, as `scripts/package` lays it out.
fn installed() -> Scratch {
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::create_dir_all(folder.join("lib/pkgconfig")).expect("it is new");
    let program = env::current_exe().expect("it has a path");
    let library = program.with_file_name("liblarder_c.so");
    for name in ["lib/liblarder.so.0", "lib/liblarder.so"] {
        symlink(&library, folder.join(name)).expect("it is new");
    }
    symlink(in_crate("include"), folder.join("include")).expect("it is new");
    let description = fs::read_to_string(in_crate("larder.pc.in")).expect("it is there");
    let description = description.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::write(folder.join("lib/pkgconfig/larder.pc"), description).expect("it is written");
    scratch
}

/// Compiles a program with the library in `folder`, and with ASan, which finds leaks too.
fn compile(folder: &Path, source: &str) -> PathBuf {
    let mut finder = Command::new("pkg-config");
    finder.args(["--cflags", "--libs", "larder"]);
    finder.env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig"));
    let found = finder.output().expect("pkg-config starts").stdout;
    let found = String::from_utf8(found).expect("it is text");
    let program = folder.join("program");
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compiler.args(["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread"]);
    compiler.arg("-o").arg(&program).arg(in_crate(source)).args(found.split_whitespace());
    assert!(compiler.status().expect("gcc starts").success(), "{source}");
    program
}

/// Runs a program on a new image. Returns what it prints.
fn run(folder: &Path, program: &Path, image: &Path) -> String {
    let mut command = Command::new(program);
    command.arg(image).arg(folder.join("backup.img"));
    let output = command.env("LD_LIBRARY_PATH", folder.join("lib")).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_example_works_and_the_kernel_agrees() {
    let scratch = installed();
    let folder = scratch.path();
    let program = compile(folder, "examples/pantry.c");
    let image = folder.join("disk.img");
    let printed = run(folder, &program, &image);
    let expected = "/notes/today.txt: jam\n/monday/notes/today.txt: bread, butter\n\
                    notes/\nmonday/\n0 findings\n";
    assert_eq!(printed, expected);
    let backup = KernelMount::open(&[folder.join("backup.img")], "ro");
    let copy = backup.path().join("monday/notes/today.txt");
    assert_eq!(fs::read_to_string(&copy).expect("it is there"), "bread, butter");
    let mut shop = [0; 8];
    let len = rustix::fs::getxattr(&copy, "user.shop", &mut shop).expect("it is there");
    assert_eq!(&shop[..len], b"corner");
    let mount = KernelMount::open(&[image], "ro");
    let read = |path| fs::read_to_string(mount.path().join(path)).expect("it is there");
    assert_eq!(read("notes/today.txt"), "jam");
    assert_eq!(read("monday/notes/today.txt"), "bread, butter");
}

#[test]
fn every_function_does_what_it_says() {
    let scratch = installed();
    let folder = scratch.path();
    let program = compile(folder, "tests/calls.c");
    assert_eq!(run(folder, &program, &folder.join("disk.img")), "");
}

#[test]
fn the_header_is_good_cxx() {
    let mut compiler = Command::new("gcc");
    compiler.args(["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
    assert!(compiler.arg(in_crate("include/larder.h")).status().expect("gcc starts").success());
}
