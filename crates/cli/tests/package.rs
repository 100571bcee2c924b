//! What users install: man pages, completions, and the Debian package.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::{Content, ImageSpec, KernelImage, Scratch};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// What a program prints on standard output. It must succeed, and print nothing else.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{command:?}: {}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn larder(arguments: &[&str]) -> String {
    output(Command::new(LARDER).args(arguments))
}

/// The files that a page or a script is written to, by the name of the file.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it is listed").path()).collect();
    files.sort();
    files
}

/// The commands that `--help` names, those below them too: `larder`, `larder-ls` and so on.
fn commands(words: &[&str]) -> Vec<String> {
    let help = larder(&[words, &["--help"]].concat());
    let mut found = vec![[&["larder"], words].concat().join("-")];
    let below = help.split_once("\nCommands:\n").map_or("", |(_, list)| list);
    for line in below.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().expect("a line has words");
        if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
            found.extend(commands(&[words, &[name]].concat()));
        }
    }
    found
}

#[test]
fn every_command_has_a_man_page_without_warnings() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("man");
    larder(&["man-pages", folder.to_str().expect("it is text")]);
    let pages = files(&folder);
    let name = |page: &PathBuf| page.file_stem().unwrap_or_default().display().to_string();
    let mut commands = commands(&[]);
    commands.sort();
    assert!(commands.len() > 40 && commands.contains(&"larder-subvolume-list".to_owned()));
    let mut names: Vec<String> = pages.iter().map(name).collect();
    names.sort();
    assert_eq!(names, commands);
    for page in &pages {
        let mut man = Command::new("man");
        man.args(["--warnings", "--encoding=UTF-8", "--local-file"]).arg(page);
        let text = output(man.env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8"));
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS"] {
            assert!(text.contains(&format!("\n{section}\n")), "{}: {section}", page.display());
        }
        let is_group = text.contains("\nSUBCOMMANDS\n");
        assert!(is_group || text.contains("\nEXAMPLES\n       "), "{}", page.display());
    }
}

/// A folder with `my disk.img`, an image with the directory `etc`, and a `PATH` that starts with the
/// program.
struct Desk {
    scratch: Scratch,
    path: OsString,
}

impl Desk {
    fn new() -> Self {
        let scratch = Scratch::new();
        let source = scratch.path().join("source");
        fs::create_dir_all(source.join("etc")).unwrap();
        fs::write(source.join("etc/fstab"), "").unwrap();
        fs::write(source.join("etc/host names"), "").unwrap();
        let mut mkfs = Command::new(LARDER);
        mkfs.args(["mkfs", "--quiet", "-b", "200M", "--rootdir", "source", "my disk.img"]);
        output(mkfs.current_dir(scratch.path()));
        let folders = Path::new(LARDER).parent().expect("a program has a folder").as_os_str();
        let path = [folders, OsStr::new(":"), &env::var_os("PATH").unwrap_or_default()];
        Self { scratch, path: path.into_iter().collect() }
    }

    /// What `shell` prints for a script that is given the completions of `larder`. The image stays
    /// as it is.
    #[track_caller]
    fn run(&self, shell: &str, arguments: &[&str], script: &str) -> String {
        let folder = self.scratch.path();
        fs::write(folder.join("completions"), larder(&["completions", shell])).unwrap();
        let image = || fs::read(folder.join("my disk.img")).unwrap();
        let before = image();
        let mut command = Command::new(shell);
        command.args(arguments).arg("-c").arg(script).env("PATH", &self.path);
        let printed = output(command.current_dir(folder));
        assert!(image() == before, "completing changed the image");
        printed
    }
}

/// Command lines up to the cursor as bash splits them, and what it puts in place of the last piece.
const IN_BASH: [(&[&str], &str); 8] = [
    (&["larder", "subv"], "subvolume"),
    (&["larder", "sub", "li"], "list"),
    (&["larder", "mkfs", "--rootd"], "--rootdir"),
    (&["larder", "ls", "my"], r"my\ disk.img:/"),
    (&["larder", "ls", r"my\ disk.img", ":", "/e"], "/etc/"),
    (&["larder", "ls", r"my\ disk.img", ":"], "/"),
    (&["larder", "ls", r"my\ disk.img", ":", "/etc/h"], r"/etc/host\ names"),
    (&["larder", "cp", "x", r"my\ disk.img", ":", "/etc/f"], "/etc/fstab"),
];

#[test]
fn bash_completes_commands_options_and_paths_in_images() {
    let desk = Desk::new();
    for (pieces, expected) in IN_BASH {
        let quoted: Vec<String> = pieces.iter().map(|piece| format!("'{piece}'")).collect();
        let line = pieces.join(" ").replace(" : ", ":").replace(" :", ":");
        let last = pieces.last().filter(|last| **last != ":").unwrap_or(&"");
        let script = format!(
            "source ./completions; complete -p larder >/dev/null; COMP_LINE='{line}'; \
             COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=({}); COMP_CWORD={}; \
             _larder larder '{last}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            quoted.join(" "),
            pieces.len() - 1
        );
        assert_eq!(desk.run("bash", &["--norc"], &script).trim_end(), expected, "{line}");
    }
}

/// The beginning of a line's last word, the line before it, and the word that it becomes.
const WORDS: [(&str, &str, &str); 5] = [
    ("larder", "subv", "subvolume"),
    ("larder mkfs", "--rootd", "--rootdir"),
    ("larder ls", r"my\ d", "my disk.img:/"),
    ("larder ls", r"my\ disk.img:/e", "my disk.img:/etc/"),
    ("larder ls", r"my\ disk.img:/etc/h", "my disk.img:/etc/host names"),
];

#[test]
fn zsh_completes_commands_options_and_paths_in_images() {
    let desk = Desk::new();
    for (before, word, expected) in WORDS {
        let script = format!(
            "autoload -U compinit; compinit -u -D; source ./completions; [[ $_comps[larder] == _larder ]]; \
             compadd() {{ print -rl -- ${{(P)@[-1]}} }}; \
             words=({before} '{word}'); CURRENT=$#words; PREFIX='{word}'; _larder || true"
        );
        assert_eq!(desk.run("zsh", &["-f"], &script).trim_end(), expected, "{before} {word}");
    }
}

#[test]
fn fish_completes_commands_options_and_paths_in_images() {
    let desk = Desk::new();
    for (before, word, expected) in WORDS {
        let script = format!("source ./completions; complete --do-complete '{before} {word}'");
        let printed = desk.run("fish", &["--no-config"], &script);
        let word = printed.split(['\t', '\n']).next().unwrap_or_default();
        assert_eq!(word, expected, "{before}: {printed}");
    }
}

#[test]
fn the_debian_package_is_sound() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/package");
    output(Command::new(script).args(["--program", LARDER]).arg(folder));
    let is_package = |path: &PathBuf| path.extension() == Some(OsStr::new("deb"));
    let package = files(folder).into_iter().find(is_package).expect("it was made");
    let mut lintian = Command::new("lintian");
    let found = lintian.args(["--allow-root", "--fail-on=error", "--no-cfg"]).arg(&package);
    let found = found.output().expect("lintian starts");
    let said = String::from_utf8_lossy(&found.stdout);
    assert!(found.status.success() && !said.contains("E: "), "{said}");

    let content = output(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for path in [
        "./usr/bin/larder\n",
        "./usr/sbin/mount.fuse.larder -> ../bin/larder\n",
        "./usr/sbin/umount.fuse.larder -> ../bin/larder\n",
        "./usr/share/man/man1/larder-subvolume-list.1.gz\n",
        "./usr/share/doc/larder/copyright\n",
        "./usr/lib/systemd/user/larder-mount@.service\n",
        "./usr/libexec/larder/maintenance\n",
        "./etc/default/larder-maintenance\n",
    ] {
        assert!(content.contains(path), "{path}: {content}");
    }
    // These names belong to the package btrfs-progs, beside which it can be installed.
    assert!(!content.contains("btrfs"), "{content}");
    let installed = folder.join("installed");
    output(Command::new("dpkg-deb").arg("--extract").args([&package, &installed]));
    let version = output(Command::new(installed.join("usr/bin/larder")).arg("--version"));
    assert_eq!(version, larder(&["--version"]));
    verify_units(&installed, folder);
    verify_timers(&installed, folder);
}

/// systemd understands the timers and what they start, and the package enables none.
fn verify_timers(installed: &Path, folder: &Path) {
    let program = installed.join("usr/libexec/larder/maintenance");
    for work in ["scrub", "balance"] {
        for kind in ["service", "timer"] {
            let name = format!("larder-{work}.{kind}");
            let unit = fs::read_to_string(installed.join("usr/lib/systemd/system").join(&name));
            let unit = unit.expect("it was installed");
            let unit = unit.replace("/usr/libexec/larder/maintenance", program.to_str().unwrap());
            fs::write(folder.join(name), unit).unwrap();
        }
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["--system", "--man=no", "verify"]);
        analyze.arg(folder.join(format!("larder-{work}.timer")));
        assert_eq!(output(&mut analyze), "");
    }
    let settings = fs::read_to_string(installed.join("etc/default/larder-maintenance")).unwrap();
    assert_eq!(settings.matches("_PERIOD=\"none\"").count(), 2, "{settings}");
}

/// What the timers start works on each mount that the settings name, and says at the end if one
/// failed.
#[test]
fn maintenance_scrubs_and_balances_each_mount() {
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/maintenance/maintenance");
    let images =
        [1, 2].map(|seed| KernelImage::build(&ImageSpec::new("kept"), &Content::new(seed)));
    let mounts = images.each_ref().map(|image| image.mount("subvolid=5"));
    let [one, other] = mounts.each_ref().map(|mount| mount.path().display().to_string());
    let scratch = Scratch::new();
    let settings = scratch.path().join("settings");
    let maintain = |work: &str, places: &str| {
        let work_places = work.to_uppercase();
        fs::write(&settings, format!("BTRFS_{work_places}_MOUNTPOINTS=\"{places}\"\n")).unwrap();
        let path = [Path::new(LARDER).parent().unwrap().as_os_str(), &env::var_os("PATH").unwrap()];
        let mut command = Command::new(&program);
        command
            .arg(work)
            .env("LARDER_MAINTENANCE", &settings)
            .env("PATH", path.join(OsStr::new(":")));
        let output = command.output().expect("it starts");
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
        (output.status.code(), said.concat())
    };
    let (code, said) = maintain("scrub", &format!("{one}:{other}"));
    assert_eq!((code, said.matches("no errors found").count()), (Some(0), 2), "{said}");
    let (code, said) = maintain("balance", &format!("{one}:{other}"));
    assert_eq!((code, said.matches("Done, had to relocate").count()), (Some(0), 6), "{said}");
    let (code, said) = maintain("scrub", &format!("/nowhere:{other}"));
    assert_eq!((code, said.matches("no errors found").count()), (Some(1), 1), "{said}");
    let (code, said) = maintain("other", "");
    assert_eq!((code, said.contains("Usage: ")), (Some(2), true), "{said}");
}

/// systemd understands the unit that was installed, with the program in its place, and the one that
/// a document shows.
fn verify_units(installed: &Path, folder: &Path) {
    let unit = installed.join("usr/lib/systemd/user/larder-mount@.service");
    let unit = fs::read_to_string(unit).expect("it was installed");
    assert_eq!(unit.matches("/usr/bin/larder ").count(), 2, "{unit}");
    let unit = unit.replace("/usr/bin/larder ", &format!("{LARDER} "));
    let page = include_str!("../../../docs/installing.md");
    let shown = page.split_once("```ini\n").and_then(|(_, after)| after.split_once("```"));
    let (shown, _) = shown.expect("the page shows a unit");
    for (name, text, manager) in
        [("larder-mount@disk.service", &*unit, "--user"), ("mnt-disk.mount", shown, "--system")]
    {
        fs::write(folder.join(name), text).unwrap();
        let mut analyze = Command::new("systemd-analyze");
        analyze.args([manager, "--man=no", "verify"]).arg(folder.join(name));
        assert_eq!(output(analyze.env("XDG_RUNTIME_DIR", folder)), "");
    }
}

/// A reader's crate with the README's lines of dependencies and its example, and nothing else. The
/// documentation of `larder` runs the example.
#[test]
fn the_example_of_the_library_compiles_in_a_crate_of_its_own() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("here");
    let readme = fs::read_to_string(here.join("README.md")).expect("it is there");
    let block = |language: &str| {
        let after = readme.split(&format!("```{language}\n")).nth(1).expect("it has one");
        after.split("```").next().expect("it ends").to_owned()
    };
    let dependencies = block("toml");
    let crates = dependencies.lines().filter(|line| line.contains(" = ")).count();
    assert!(crates == 1 && dependencies.contains("path = \"larder/crates/larder\""));
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::create_dir(folder.join("src")).expect("made");
    std::os::unix::fs::symlink(&here, folder.join("larder")).expect("linked");
    let package = "[package]\nname = \"pantry\"\nedition = \"2024\"\n\n";
    fs::write(folder.join("Cargo.toml"), format!("{package}{dependencies}")).expect("written");
    fs::write(folder.join("src/main.rs"), block("rust")).expect("written");
    // The versions that this workspace was built with.
    fs::copy(here.join("Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["check", "--quiet", "--offline"]).current_dir(folder);
    cargo.env("TMPDIR", folder).env("CARGO_TARGET_DIR", target()).env_remove("RUSTFLAGS");
    let output = cargo.output().expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Where the example is compiled, beside what tests build, so that the next run has it.
fn target() -> PathBuf {
    let program = Path::new(LARDER);
    program.ancestors().nth(2).expect("a target directory").join("readme")
}
