//! `--format json` on mounts of larder: it says what it says of the image.

use std::path::Path;

use serde_json::Value;

use crate::support::{Mounted, larder, succeed};

const COMMANDS: &[&str] = &[
    "subvolume list @",
    "subvolume show @/home",
    "subvolume get-default @",
    "subvolume find-new @ 0",
    "filesystem df @",
    "filesystem du @/d",
    "filesystem label @",
    "filesystem show @",
    "filesystem usage @",
    "device usage @",
    "property get @",
    "property list @/home",
    "inspect rootid @/home",
    "inspect subvolid-resolve 256 @",
    "inspect inode-resolve 258 @",
    "ls -aR @/",
    "ls @/d/link",
    "ls -d @/d",
    "du @/d",
];

/// The bytes of names that are not UTF-8 as text, so that the place can be found in it.
fn readable(value: Value) -> Value {
    match value {
        Value::Array(bytes) if !bytes.is_empty() && bytes.iter().all(Value::is_u64) => {
            let bytes = bytes.iter().map(|byte| byte.as_u64().expect("it is one") as u8);
            String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into()
        }
        Value::Array(values) => values.into_iter().map(readable).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, readable(value))).collect()
        }
        value => value,
    }
}

/// Leaves out the reserve, which only a mount has, and what depends on it.
fn leave_memory_out(value: &mut Value) {
    if let Some(groups) = value.get_mut("filesystem-df").and_then(Value::as_array_mut) {
        groups.retain(|group| group["bg-type"] != "GlobalReserve");
    }
    if let Some(Value::Object(usage)) = value.pointer_mut("/filesystem-usage/0") {
        for name in ["global-reserve", "free-statfs"] {
            assert!(usage.remove(name).is_some(), "{name}");
        }
    }
}

/// The results of all commands, without the names of the place.
fn results(place: &str, root: &Path) -> Vec<String> {
    let result = |line: &&str| {
        let words = line.split(' ').map(|word| match (word, place.strip_suffix(':')) {
            ("@", Some(image)) => image.to_owned(),
            (word, _) => word.replace('@', place),
        });
        let said = succeed(larder().args(["--format", "json"]).args(words).current_dir(root));
        let mut value = readable(serde_json::from_str(&said).expect("JSON"));
        leave_memory_out(&mut value);
        let text = serde_json::to_string_pretty(&value).expect("it is a value");
        text.replace(&format!("{place}/"), "@/").replace(&format!("{place}\""), "@\"")
    };
    COMMANDS.iter().map(result).collect()
}

#[test]
fn mounts_say_what_their_images_say() {
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["--create", "512M", "-o", "noatime"]);
    let program = larder().get_program().display().to_string();
    mounted.shell(&format!(
        "mkdir d; echo bread > d/file; ln d/file d/name; ln -s file d/link; mkfifo d/fifo
         head -c 1M /dev/urandom > d/large; cp d/large d/shared
         touch $'d/not\\xffUTF-8' 'd/new\nline' d/\\\"; {program} subvolume create home
         cp d/large home; {program} subvolume snapshot -r home monday
         {program} filesystem label . pantry; sync -f ."
    ));
    let of_mount = results(&mounted.path().display().to_string(), mounted.folder());
    mounted.unmount();
    let image = mounted.image().display().to_string();
    let of_image = results(&format!("{image}:"), mounted.folder());
    for (line, (seen, expected)) in COMMANDS.iter().zip(of_mount.iter().zip(&of_image)) {
        let expected = expected.replace(&format!("\"path\": \"{image}\""), "\"path\": \"@\"");
        let seen = seen.replace(&format!("\"path\": \"{image}\""), "\"path\": \"@\"");
        for (seen, expected) in seen.lines().zip(expected.lines()) {
            assert_eq!(seen, expected, "{line}");
        }
        assert_eq!(seen.lines().count(), expected.lines().count(), "{line}");
    }
    let names =
        &of_image[COMMANDS.iter().position(|line| *line == "ls -aR @/").expect("it is one")];
    assert!(names.contains("@/d/not\u{fffd}UTF-8") && names.contains("@/d/new\\nline"), "{names}");
}
