//! Who may read the files that larder makes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use larder_testkit::Scratch;

/// A file with content of a file system has files of all its users, whoever may read those. So it
/// is its maker's alone, whatever the umask.
#[test]
fn what_has_content_of_a_file_system_is_its_makers_alone() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("tree/file"), "bread").unwrap();
    let made = [
        ("mkfs -q -b 300M image", "image"),
        ("mkfs -q --rootdir tree filled", "filled"),
        ("device add --create 300M second image", "second"),
        ("subvolume snapshot -r image:/ image:/snapshot", ""),
        ("send -q -f stream image:/snapshot", "stream"),
        ("check --repair --init-csum-tree --undo undo filled", "undo"),
        ("import filled file://objects", ""),
        ("export file://objects exported", "exported"),
    ];
    for (line, file) in made {
        let line = line.replace("file://", &format!("file://{}/", folder.display()));
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_larder")]);
        let output = command.args(line.split(' ')).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        if !file.is_empty() {
            let mode = fs::metadata(folder.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{line}");
        }
    }
}
