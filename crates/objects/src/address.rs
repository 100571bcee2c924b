//! Addresses: a URL, and a state of what is there.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
#[cfg(feature = "remote")]
use std::time::Duration;

use url::Url;

use crate::error::ObjectsError;
use crate::head::read_manifest;
use crate::keys::Keys;
use crate::options::Options;
use crate::settings::{Cached, Settings};
use crate::state_name::StateName;
use crate::store::{Counting, Directory, Store};

/// The schemes of URLs that lead to objects.
const SCHEMES: [&str; 11] =
    ["file", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"];

/// How long requests are repeated, unless the user says so.
#[cfg(feature = "remote")]
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether `text` is a URL rather than a path.
pub fn is_url(text: &OsStr) -> bool {
    let text = text.as_encoded_bytes();
    SCHEMES.iter().any(|scheme| {
        text.strip_prefix(scheme.as_bytes()).is_some_and(|rest| rest.starts_with(b"://"))
    })
}

/// Where objects are, and which state of them is meant: `s3://bucket/photos@yesterday`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    url: Url,
    /// `None`: the last one.
    pub state: Option<StateName>,
}

impl Address {
    /// The store there, and how to open a device in it, as the environment says.
    ///
    /// # Errors
    /// Those of [`store`](Self::store) and of [`Settings::from_environment`].
    pub fn connect(&self) -> Result<(Arc<dyn Store>, Options), ObjectsError> {
        let settings = Settings::from_environment()?;
        Ok((self.store(&settings)?, self.options(&settings)))
    }

    /// The store there, as `settings` say; if it is encrypted, what their key opens.
    /// [`requests_of_this_process`](crate::requests_of_this_process)
    /// counts the requests to it.
    ///
    /// # Errors
    /// [`ObjectsError::Address`]; [`ObjectsError::NoKey`], [`ObjectsError::WrongKey`] and
    /// [`ObjectsError::NotEncrypted`]; and those of the store.
    pub fn store(&self, settings: &Settings) -> Result<Arc<dyn Store>, ObjectsError> {
        self.keys(settings)?.open(settings.key.as_ref())
    }

    /// The keys of what is encrypted there.
    ///
    /// # Errors
    /// [`ObjectsError::Address`].
    pub fn keys(&self, settings: &Settings) -> Result<Keys, ObjectsError> {
        Ok(Keys::of(self.plain_store(settings)?))
    }

    /// Whether a file system is there. Of what is encrypted this is not known without a key: it may
    /// be streams, too.
    pub fn has_filesystem(&self, settings: &Settings) -> bool {
        let Ok(store) = self.plain_store(settings) else { return false };
        read_manifest(&*store).is_ok() || Keys::of(store).are_there()
    }

    fn plain_store(&self, settings: &Settings) -> Result<Arc<dyn Store>, ObjectsError> {
        if self.is_local() {
            let refused = || ObjectsError::Address {
                text: self.url.to_string(),
                why: "it names no directory of this machine".to_owned(),
            };
            let path: PathBuf = self.url.to_file_path().map_err(|()| refused())?;
            return Ok(Arc::new(Counting::watched(Directory::new(path))));
        }
        self.remote(settings)
    }

    /// How to open a device there, as `settings` say.
    pub fn options(&self, settings: &Settings) -> Options {
        let cache = match &settings.cache {
            Cached::Remote(folder) if !self.is_local() => Some(folder),
            Cached::Everything(folder) => Some(folder),
            Cached::Remote(_) | Cached::Nothing => None,
        };
        let cache = cache.cloned();
        Options { cache, patience: settings.patience, ..Options::default() }
    }

    /// The place `name` below this one.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/{name}", url.path().trim_end_matches('/')));
        Self { url, state: None }
    }

    /// The way from `other` to here: parts `..`, and then names. `None` if they are in different
    /// buckets, or the same place.
    pub fn way_from(&self, other: &Self) -> Option<String> {
        let host = |url: &Url| (url.scheme().to_owned(), url.authority().to_owned());
        if host(&self.url) != host(&other.url) || self.is_web() {
            return None;
        }
        let parts = |url: &Url| -> Vec<String> {
            let path = decoded(url.path());
            path.split('/').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect()
        };
        let (here, there) = (parts(&self.url), parts(&other.url));
        let common = here.iter().zip(&there).take_while(|(one, other)| one == other).count();
        let up = there.len() - common;
        // One place inside the other would have its objects among the other's.
        if up == 0 || common == here.len() {
            return None;
        }
        let down = here[common..].iter().cloned();
        Some(std::iter::repeat_n("..".to_owned(), up).chain(down).collect::<Vec<_>>().join("/"))
    }

    fn is_web(&self) -> bool {
        self.url.scheme() == "http" || self.url.scheme() == "https"
    }

    fn is_local(&self) -> bool {
        self.url.scheme() == "file"
    }

    #[cfg(feature = "remote")]
    fn remote(&self, settings: &Settings) -> Result<Arc<dyn Store>, ObjectsError> {
        use crate::store::{Remote, Retrying};

        let store = Remote::new(&self.url)?;
        let store = match &settings.storage_class {
            Some(class) => store.with_storage_class(class)?,
            None => store,
        };
        let patience = settings.patience.unwrap_or(PATIENCE);
        Ok(Arc::new(Retrying::new(Counting::watched(store), patience)))
    }

    #[cfg(not(feature = "remote"))]
    fn remote(&self, _settings: &Settings) -> Result<Arc<dyn Store>, ObjectsError> {
        Err(ObjectsError::Address {
            text: self.url.to_string(),
            why: "this program was built without object storage over a network: it reads and \
                  writes file:// only"
                .to_owned(),
        })
    }
}

impl FromStr for Address {
    type Err = ObjectsError;

    fn from_str(text: &str) -> Result<Self, ObjectsError> {
        let refused = |why: String| ObjectsError::Address { text: text.to_owned(), why };
        let last_part = text.rfind('/').map_or(0, |slash| slash + 1);
        let (url, state) = match text[last_part..].rfind('@') {
            // The host of a bare `s3://bucket@state` has no user.
            Some(at) => (&text[..last_part + at], Some(&text[last_part + at + 1..])),
            None => (text, None),
        };
        let state = state.map(StateName::from_str).transpose().map_err(refused)?;
        check_text(url).map_err(refused)?;
        let parsed = Url::parse(url).map_err(|error| refused(error.to_string()))?;
        check_place(url, &parsed).map_err(refused)?;
        Ok(Self { url: parsed, state })
    }
}

/// Refuses what URLs have a meaning for that a place has not: it would lead elsewhere.
fn check_text(url: &str) -> Result<(), String> {
    if url.contains(char::is_control) {
        return Err("it has a control character, which no URL has".to_owned());
    }
    if url.trim() != url {
        return Err("it begins or ends with a space, which no URL does".to_owned());
    }
    if let Some(character) = url.chars().find(|character| "#?\\".contains(*character)) {
        return Err(format!("a URL of objects has no '{character}'; choose another name"));
    }
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    if place.split('/').any(|part| part == "." || part == "..") {
        return Err("a part of it is '.' or '..'; name the place itself".to_owned());
    }
    Ok(())
}

/// Refuses a URL that was read as another place than the one that its characters name.
fn check_place(text: &str, url: &Url) -> Result<(), String> {
    if url.scheme() == "http" || url.scheme() == "https" {
        return Ok(());
    }
    if text.split('%').skip(1).any(|rest| hex_byte(rest.as_bytes()).is_some()) {
        return Err(
            "'%' and two digits may mean a character, or themselves; write the character, or \
             choose another name"
                .to_owned(),
        );
    }
    let has_user = url.password().is_some() || !url.username().is_empty();
    if url.port().is_some() || (has_user && !url.scheme().starts_with("abfs")) {
        return Err("it has a user or a port; the environment says where the server is".to_owned());
    }
    let place = text.split_once("://").map_or("", |(_, place)| place);
    let path = place.find('/').map_or("", |at| &place[at..]);
    if decoded(url.path()).trim_end_matches('/') != path.trim_end_matches('/') {
        return Err(format!("it would lead to '{}'; choose another name", url.path()));
    }
    Ok(())
}

/// The characters that the path of a URL stands for.
fn decoded(path: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let (byte, left) = match hex_byte(after).filter(|_| *first == b'%') {
            Some(byte) => (byte, &after[2..]),
            None => (*first, after),
        };
        bytes.push(byte);
        rest = left;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The byte that two digits name.
fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_after_the_last_at_sign() {
        let address: Address = "s3://bucket/photos@7".parse().unwrap();
        assert_eq!(address.url.as_str(), "s3://bucket/photos");
        assert_eq!(address.state, Some(StateName::Number(7)));
        let address: Address = "file:///tmp/a@b/c".parse().unwrap();
        assert_eq!((address.url.path(), address.state), ("/tmp/a@b/c", None));
        let address: Address = "s3://bucket@2000-03-01T12:00".parse().unwrap();
        let Some(StateName::Time(time)) = address.state else { panic!("{address:?}") };
        assert!(time.abs_diff(951_912_000) <= 14 * 3600, "{time}, in any time zone");
        assert!("s3://bucket/photos@someday".parse::<Address>().is_err());
    }

    #[test]
    fn a_url_names_the_place_that_it_says_or_is_refused() {
        for name in
            ["plain", "with space", "ümlaut", "a+b", "100%", "50%x", "a@b/c", "c|/d", "{}|^`"]
        {
            let address: Address = format!("file:///tmp/{name}").parse().unwrap();
            let path = address.url.to_file_path().unwrap();
            assert_eq!(path, std::path::Path::new("/tmp").join(name));
            let address: Address = format!("s3://bucket/{name}").parse().unwrap();
            assert_eq!(decoded(address.url.path()), format!("/{name}"));
        }
        for name in [
            "photos#1",
            "b?1",
            "c\\d",
            "new\nline",
            "tab\tbed",
            "a%20b",
            "a%2fb",
            "end ",
            "a/../b",
            "./a",
        ] {
            for place in ["file:///tmp/", "s3://bucket/", "gs://bucket/", "az://container/"] {
                let error = format!("{place}{name}").parse::<Address>().unwrap_err();
                assert!(matches!(error, ObjectsError::Address { .. }), "{place}{name}: {error}");
            }
        }
        for url in ["s3://user@bucket/a", "s3://bucket:9000/a"] {
            assert!(url.parse::<Address>().is_err(), "{url}");
        }
        let web: Address = "https://host:8443/a%20b".parse().unwrap();
        assert_eq!(web.url.path(), "/a%20b");
        "abfs://container@account.dfs.core.windows.net/a".parse::<Address>().unwrap();
    }

    #[test]
    fn ways_lead_from_one_place_to_another_in_the_same_bucket() {
        let way = |to: &str, from: &str| {
            let [to, from] = [to, from].map(|text| text.parse::<Address>().unwrap());
            to.way_from(&from)
        };
        assert_eq!(way("s3://b/a c", "s3://b/x/try").unwrap(), "../../a c");
        assert_eq!(way("file:///srv/a", "file:///srv/b/").unwrap(), "../a");
        for (to, from) in [
            ("s3://b/a", "s3://c/a"),
            ("s3://b/a", "gs://b/x"),
            ("s3://b/a", "s3://b/a"),
            ("s3://b/a/c", "s3://b/a"),
            ("s3://b/a", "s3://b/a/c"),
            ("https://h/a", "https://h/b"),
        ] {
            assert_eq!(way(to, from), None, "{to} {from}");
        }
    }

    #[test]
    fn paths_are_no_urls() {
        assert!(is_url(OsStr::new("s3://bucket")) && is_url(OsStr::new("file:///dir@3")));
        assert!(!is_url(OsStr::new("disk.img:/home")) && !is_url(OsStr::new("s3:/x")));
    }
}
