//! Where users keep secrets.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use larder_platform::errno::in_words;
use zeroize::Zeroizing;

use crate::command::{MOST_BYTES, at_most, output_of};
use crate::error::ObjectsError;

/// A secret, or where it is: a password, or random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySource {
    /// The variable or option that says it.
    name: &'static str,
    place: Place,
}

#[derive(Clone, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Command(OsString),
    Value(Zeroizing<Vec<u8>>),
}

impl KeySource {
    /// The content of a file, without an end of line at its end. `name` is the variable or option
    /// that names it.
    pub fn file(name: &'static str, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        // A server goes elsewhere, and reads it again.
        let path = std::path::absolute(&path).unwrap_or(path);
        Self { name, place: Place::File(path) }
    }

    /// What a command for the shell writes to its standard output, without an end of line at its
    /// end.
    pub fn command(name: &'static str, command: impl Into<OsString>) -> Self {
        Self { name, place: Place::Command(command.into()) }
    }

    /// The secret itself.
    pub fn value(name: &'static str, secret: &OsStr) -> Self {
        let secret = secret.as_encoded_bytes().to_vec();
        Self { name, place: Place::Value(Zeroizing::new(secret)) }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The secret.
    pub(crate) fn read(&self) -> Result<Zeroizing<Vec<u8>>, ObjectsError> {
        let refused = |why: String| ObjectsError::Setting { name: self.name, why };
        let mut secret = match &self.place {
            Place::Value(secret) => secret.clone(),
            Place::File(path) => {
                let failed = |error: std::io::Error| {
                    refused(format!("{}: {}", path.display(), in_words(&error)))
                };
                at_most(File::open(path).map_err(failed)?).map_err(failed)?
            }
            Place::Command(command) => output_of(command).map_err(refused)?,
        };
        for end in [b'\n', b'\r'] {
            if secret.last() == Some(&end) {
                secret.pop();
            }
        }
        match secret.len() as u64 {
            0 => Err(refused("it gives an empty key".to_owned())),
            1..=MOST_BYTES => Ok(secret),
            _ => Err(refused(
                "it gives more than 64 KiB; a key is a password, or as long".to_owned(),
            )),
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySource({})", self.name)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn of(command: &str) -> Result<Vec<u8>, String> {
        let secret = KeySource::command("VARIABLE", command).read();
        secret.map(|it| it.to_vec()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_secret_ends_before_the_end_of_its_line() {
        assert_eq!(of("printf 'a b\\n'").unwrap(), b"a b");
        assert_eq!(of("printf 'a\\r\\n'").unwrap(), b"a");
        assert_eq!(of("printf '\\n\\na\\n\\n'").unwrap(), b"\n\na\n");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, [0, 255, 10]).unwrap();
        assert_eq!(**KeySource::file("VARIABLE", &path).read().unwrap(), [0, 255]);
    }

    #[test]
    fn what_gives_no_secret_is_named() {
        for (command, why) in [
            ("printf '\\n'", "empty"),
            ("printf a; exit 3", "exit status: 3"),
            ("head -c 100000 /dev/zero; true", "more than 64 KiB"),
        ] {
            let said = of(command).unwrap_err();
            assert!(said.starts_with("VARIABLE: ") && said.contains(why), "{said}");
        }
        let said = KeySource::file("VARIABLE", "/nowhere/key").read().unwrap_err().to_string();
        assert!(said.contains("/nowhere/key: "), "{said}");
        let secret = KeySource::value("VARIABLE", OsStr::new("butter"));
        assert!(!format!("{secret:?}").contains("butter"));
    }
}
