//! What the environment says of stores.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::ObjectsError;
use crate::keys::KeySource;
use crate::options::{CacheFolder, JournalOptions};
use crate::quantity::{parse_seconds, parse_size};

/// Repeating requests ends after this time.
const PATIENCE: &str = "LARDER_PATIENCE";
/// The folder of the cache on disk.
const CACHE: &str = "LARDER_CACHE";
/// Where the key of what is encrypted is, or the key itself.
const KEY_FILE: &str = "LARDER_KEY_FILE";
const KEY_COMMAND: &str = "LARDER_KEY_COMMAND";
const KEY: &str = "LARDER_KEY";
/// Where flushes wait for the store, and how long that file becomes.
const JOURNAL: &str = "LARDER_JOURNAL";
const JOURNAL_SIZE: &str = "LARDER_JOURNAL_SIZE";
/// What the files there take at most.
const CACHE_SIZE: &str = "LARDER_CACHE_SIZE";

/// The storage class of large objects.
pub(crate) const STORAGE_CLASS: &str = "LARDER_STORAGE_CLASS";

const DEFAULT_CACHE_BYTES: u64 = 4 << 30;

const DEFAULT_JOURNAL_BYTES: u64 = 1 << 30;

/// What a user sets for all stores of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long requests that fail for now are repeated before a caller gets an error. If there is
    /// no time, a writer repeats what fails for ever, and others for five minutes.
    pub patience: Option<Duration>,
    /// Where content of segments is kept on a disk of this machine.
    pub cache: Cached,
    /// The journal of what is opened for writing.
    pub journal: Option<JournalOptions>,
    /// The key of what is encrypted.
    pub key: Option<KeySource>,
    /// The storage class of objects that hold content, by its name at the service. It does not
    /// matter for directories.
    pub storage_class: Option<String>,
}

/// Of which stores content is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cached {
    /// Of none.
    Nothing,
    /// Of those behind a network.
    Remote(CacheFolder),
    /// Of all, since the user has named the folder: directories may be far away, too.
    Everything(CacheFolder),
}

impl Settings {
    /// The settings of this process: `LARDER_PATIENCE` (`5m`; for ever for a writer),
    /// `LARDER_CACHE` (a folder; by default
    /// `larder` in the user's folder for caches), `LARDER_CACHE_SIZE` (`4G`; `0`: no cache),
    /// `LARDER_JOURNAL`, `LARDER_JOURNAL_SIZE` (`1G`), `LARDER_STORAGE_CLASS`, and one of `LARDER_KEY_FILE`, `LARDER_KEY_COMMAND` and `LARDER_KEY`.
    ///
    /// # Errors
    /// [`ObjectsError::Setting`].
    pub fn from_environment() -> Result<Self, ObjectsError> {
        Self::from_variables(|name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ObjectsError> {
        let number = |name, parse: fn(&str) -> Result<u64, String>| {
            let Some(value) = variable(name) else { return Ok(None) };
            let parsed = parse(&value.to_string_lossy());
            parsed.map(Some).map_err(|why| ObjectsError::Setting { name, why })
        };
        let patience = number(PATIENCE, parse_seconds)?;
        let capacity_bytes = number(CACHE_SIZE, parse_size)?.unwrap_or(DEFAULT_CACHE_BYTES);
        let folder = |path| CacheFolder { path, capacity_bytes };
        let cache = match (variable(CACHE), user_folder(&variable)) {
            _ if capacity_bytes == 0 => Cached::Nothing,
            (Some(path), _) => Cached::Everything(folder(path.into())),
            (None, Some(path)) => Cached::Remote(folder(path)),
            (None, None) => Cached::Nothing,
        };
        let len_bytes = number(JOURNAL_SIZE, parse_size)?.unwrap_or(DEFAULT_JOURNAL_BYTES);
        let journal = variable(JOURNAL).map(|path| JournalOptions { path: path.into(), len_bytes });
        let patience = patience.map(Duration::from_secs);
        let storage_class = variable(STORAGE_CLASS).map(|it| it.to_string_lossy().into_owned());
        Ok(Self { patience, cache, journal, key: key(&variable)?, storage_class })
    }
}

fn key(variable: &impl Fn(&str) -> Option<OsString>) -> Result<Option<KeySource>, ObjectsError> {
    let given = [KEY_FILE, KEY_COMMAND, KEY].into_iter();
    let mut given = given.filter_map(|name| Some((name, variable(name)?)));
    let Some((name, value)) = given.next() else { return Ok(None) };
    match given.next() {
        None => Ok(Some(match name {
            KEY_FILE => KeySource::file(name, value),
            KEY_COMMAND => KeySource::command(name, value),
            _ => KeySource::value(name, &value),
        })),
        Some((other, _)) => {
            let why = format!("{other} gives a key, too; unset one of them");
            Err(ObjectsError::Setting { name, why })
        }
    }
}

/// The folder for caches of the user, or of the service that this process is.
fn user_folder(variable: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("CACHE_DIRECTORY")
        .or_else(|| absolute("XDG_CACHE_HOME"))
        .or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("larder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, ObjectsError> {
        Settings::from_variables(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_folder_is_the_users_unless_it_is_named() {
        let cache = |variables: &[(&str, &str)]| settings(variables).unwrap().cache;
        let folder = |path: &str, capacity_bytes| CacheFolder { path: path.into(), capacity_bytes };
        assert_eq!(
            cache(&[("HOME", "/home/me")]),
            Cached::Remote(folder("/home/me/.cache/larder", DEFAULT_CACHE_BYTES))
        );
        assert_eq!(
            cache(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "/fast")]),
            Cached::Remote(folder("/fast/larder", DEFAULT_CACHE_BYTES))
        );
        assert_eq!(
            cache(&[("LARDER_CACHE", "/ssd"), ("LARDER_CACHE_SIZE", "1G")]),
            Cached::Everything(folder("/ssd", 1 << 30))
        );
        assert_eq!(cache(&[("LARDER_CACHE", "/ssd"), ("LARDER_CACHE_SIZE", "0")]), Cached::Nothing);
        assert_eq!(cache(&[]), Cached::Nothing);
    }

    #[test]
    fn a_journal_has_a_length() {
        let journal = |variables: &[(&str, &str)]| settings(variables).unwrap().journal;
        assert_eq!(journal(&[("LARDER_JOURNAL_SIZE", "1G")]), None);
        let found = journal(&[("LARDER_JOURNAL", "/ssd"), ("LARDER_JOURNAL_SIZE", "64M")]);
        assert_eq!(found, Some(JournalOptions { path: "/ssd".into(), len_bytes: 64 << 20 }));
    }

    #[test]
    fn one_variable_gives_the_key() {
        assert_eq!(settings(&[]).unwrap().key, None);
        let key = settings(&[("LARDER_KEY_FILE", "/key")]).unwrap().key;
        assert_eq!(key, Some(KeySource::file("LARDER_KEY_FILE", "/key")));
        let both = [("LARDER_KEY_FILE", "/key"), ("LARDER_KEY", "butter")];
        let error = settings(&both).unwrap_err().to_string();
        assert!(error.contains("LARDER_KEY_FILE") && error.contains("LARDER_KEY gives"), "{error}");
        assert!(!error.contains("butter"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_name() {
        assert_eq!(
            settings(&[("LARDER_PATIENCE", "2m")]).unwrap().patience.unwrap().as_secs(),
            120
        );
        let error = settings(&[("LARDER_PATIENCE", "soon")]).unwrap_err().to_string();
        assert!(error.starts_with("LARDER_PATIENCE: 'soon' is not a time"), "{error}");
    }
}
