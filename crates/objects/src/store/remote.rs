//! Object storage: S3 and what speaks like it, GCS, Azure, and HTTP for reading.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_executor::block_on;
use futures_util::{Stream, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, BackoffConfig, GetOptions, GetRange, ObjectMeta, ObjectStore,
    ObjectStoreExt, ObjectStoreScheme, PutMode, PutOptions, PutPayload, RetryConfig, UpdateVersion,
};
use parking_lot::RwLock;
use url::Url;

use super::aws;
use super::http::{Connector, problem_of};
use super::{Listed, Problem, Store, StoreError, Version, Versioned};
use crate::error::ObjectsError;
use crate::settings::STORAGE_CLASS;

/// Where objects lie that hold content, which may be large.
const CONTENT: [&str; 2] = ["segments/", "streams/"];

/// A list that repeats more names goes on for ever.
const MOST_REPEATED: u64 = 10_000;

/// A bucket, or a part of it.
///
/// Credentials and endpoint come from the environment and from files, by the names that the tools of
/// each service use. TLS is on unless `AWS_ALLOW_HTTP` or its like is set.
#[derive(Debug)]
pub struct Remote {
    /// It knows the keys as they were when it was built.
    store: RwLock<Arc<dyn ObjectStore>>,
    url: Url,
    /// In place of what the environment says.
    endpoint: Option<String>,
    prefix: Path,
    name: String,
    /// For the objects that hold content; the usual one if there is none.
    storage_class: Option<String>,
    /// Cleared when it turns out that a web server sends whole objects only.
    sends_parts: AtomicBool,
}

impl Remote {
    /// The store that `url` leads to: `s3://bucket/prefix`, `gs://`, `az://`, `https://`.
    ///
    /// # Errors
    /// [`ObjectsError::Address`], also where the environment lacks something.
    pub fn new(url: &Url) -> Result<Self, ObjectsError> {
        Self::with(url, None)
    }

    /// A bucket of S3 at a server that asks for no keys. For tests.
    #[doc(hidden)]
    pub fn at_endpoint(url: &Url, endpoint: &str) -> Result<Self, ObjectsError> {
        Self::with(url, Some(endpoint))
    }

    fn with(url: &Url, endpoint: Option<&str>) -> Result<Self, ObjectsError> {
        let refused = |why: &dyn std::fmt::Display| ObjectsError::Address {
            text: shown(url),
            why: why.to_string(),
        };
        let (scheme, prefix) = ObjectStoreScheme::parse(url).map_err(|error| refused(&error))?;
        Ok(Self {
            store: RwLock::new(build(&scheme, url, endpoint).map_err(|error| refused(&error))?),
            url: url.clone(),
            endpoint: endpoint.map(str::to_owned),
            // Over HTTP a store begins where the URL leads to.
            prefix: if is_http(url) { Path::default() } else { prefix },
            name: shown(url),
            storage_class: None,
            sends_parts: AtomicBool::new(true),
        })
    }

    /// Puts segments and parts of streams into a storage class, by its name at the service. All else
    /// is small, and often replaced.
    ///
    /// # Errors
    /// [`ObjectsError::Setting`] if there is no such class, or if it gives objects only hours after
    /// somebody has asked for them.
    pub fn with_storage_class(self, class: &str) -> Result<Self, ObjectsError> {
        let refused = |why: &str| {
            let why = format!("'{class}' {why}");
            Err(ObjectsError::Setting { name: STORAGE_CLASS, why })
        };
        let is_word = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
        if !class.chars().all(is_word) {
            return refused("is no storage class: it is one word, such as STANDARD_IA");
        }
        let is_slow = match ObjectStoreScheme::parse(&self.url) {
            Ok((ObjectStoreScheme::AmazonS3, _)) => ["GLACIER", "DEEP_ARCHIVE"].contains(&class),
            Ok((ObjectStoreScheme::MicrosoftAzure, _)) => class.eq_ignore_ascii_case("archive"),
            _ => false,
        };
        if is_slow {
            return refused(
                "gives what is stored only after hours; choose another one, such as GLACIER_IR",
            );
        }
        Ok(Self { storage_class: Some(class.to_owned()), ..self })
    }

    fn path(&self, name: &str) -> Path {
        let mut path = self.prefix.clone();
        for part in name.split('/').filter(|part| !part.is_empty()) {
            path = match part {
                ".." => {
                    let parts: Vec<_> = path.parts().collect();
                    parts[..parts.len().saturating_sub(1)].iter().cloned().collect()
                }
                part => path.join(part),
            };
        }
        path
    }

    /// Makes a request. If the store refuses the keys, reads them again, and makes it once more.
    fn request<T>(
        &self,
        name: &str,
        request: impl Fn(&dyn ObjectStore) -> object_store::Result<T>,
    ) -> Result<T, StoreError> {
        let failed = |error: object_store::Error| {
            StoreError::new(problem_of(&error), &self.name, name, error)
        };
        let store = Arc::clone(&*self.store.read());
        let error = match request(&*store).map_err(failed) {
            Err(error) if error.problem == Problem::Denied => error,
            result => return result,
        };
        let Ok((scheme, _)) = ObjectStoreScheme::parse(&self.url) else { return Err(error) };
        let built = build(&scheme, &self.url, self.endpoint.as_deref());
        let Ok(store) = built else { return Err(error) };
        *self.store.write() = Arc::clone(&store);
        request(&*store).map_err(failed)
    }

    /// As [`request`](Self::request), for one without a condition: a store that speaks of one means
    /// that it is busy.
    fn ask<T>(
        &self,
        name: &str,
        request: impl Fn(&dyn ObjectStore) -> object_store::Result<T>,
    ) -> Result<T, StoreError> {
        self.request(name, request).map_err(|error| match error.problem {
            Problem::Condition => error.into_passing(),
            _ => error,
        })
    }

    fn part(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let range = Some(GetRange::Bounded(range));
        let path = self.path(name);
        self.ask(name, |store| {
            let options = GetOptions { range: range.clone(), ..GetOptions::default() };
            block_on(async { store.get_opts(&path, options).await?.bytes().await })
        })
    }

    fn part_of_whole(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let whole = self.get_versioned(name)?.content;
        let (start, end) = (range.start, range.end.min(whole.len() as u64));
        if start >= end {
            return Err(StoreError::new(Problem::Other, &self.name, name, "it is cut off"));
        }
        Ok(whole.slice(start as usize..end as usize))
    }

    fn put(&self, name: &str, content: Bytes, mode: &PutMode) -> Result<Version, StoreError> {
        let payload = PutPayload::from_bytes(content);
        let path = self.path(name);
        let holds_content = CONTENT.iter().any(|folder| name.starts_with(folder));
        let class = self.storage_class.clone().filter(|_| holds_content);
        let attributes: Attributes =
            class.into_iter().map(|class| (Attribute::StorageClass, class)).collect();
        let put = |store: &dyn ObjectStore| {
            let (mode, attributes) = (mode.clone(), attributes.clone());
            let options = PutOptions { mode, attributes, ..PutOptions::default() };
            block_on(store.put_opts(&path, payload.clone(), options))
        };
        match self.request(name, put) {
            Ok(result) => Ok(version_of(result.e_tag, result.version)),
            // It is the bucket that is missing.
            Err(error) if error.problem == Problem::NotFound => {
                Err(StoreError { problem: Problem::Other, ..error })
            }
            Err(error) => Err(error),
        }
    }
}

impl Store for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        if self.sends_parts.load(Ordering::Relaxed) {
            match self.part(name, range.clone()) {
                Err(error) if error.problem == Problem::Unsupported && is_http(&self.url) => {
                    self.sends_parts.store(false, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.part_of_whole(name, range)
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        let path = self.path(name);
        let get = async |store: &dyn ObjectStore| {
            let result = store.get(&path).await?;
            let version = version_of(result.meta.e_tag.clone(), result.meta.version.clone());
            let modified = result.meta.last_modified.timestamp().max(0) as u64;
            Ok(Versioned { content: result.bytes().await?, version, modified })
        };
        self.ask(name, |store| block_on(get(store)))
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.put(name, content, &PutMode::Create).map(drop)
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        let (e_tag, version) = version.0.split_once('\n').unwrap_or((&version.0, ""));
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let version = UpdateVersion { e_tag: given(e_tag), version: given(version) };
        self.put(name, content, &PutMode::Update(version))
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        match self.ask(name, |store| block_on(store.delete(&path))) {
            Err(error) if error.problem != Problem::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        if is_http(&self.url) {
            let why = "a web server has no lists";
            return Err(StoreError::new(Problem::Unsupported, &self.name, prefix, why));
        }
        let below = self.path(prefix);
        let found = self.ask(prefix, |store| block_on(gathered(store.list(Some(&below)))))?;
        let name = |object: ObjectMeta| {
            let parts: Vec<_> = object.location.prefix_match(&self.prefix)?.collect();
            let names: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
            Some(Listed { name: names.join("/"), len_bytes: object.size })
        };
        Ok(found.into_iter().filter_map(name).collect())
    }
}

/// The objects of a list, each once.
async fn gathered(
    mut list: impl Stream<Item = object_store::Result<ObjectMeta>> + Unpin,
) -> object_store::Result<Vec<ObjectMeta>> {
    let (mut found, mut seen, mut repeated) = (Vec::new(), HashSet::new(), 0);
    while let Some(object) = list.try_next().await? {
        if seen.insert(object.location.clone()) {
            found.push(object);
            continue;
        }
        repeated += 1;
        if repeated > MOST_REPEATED {
            let source = "the list names the same objects again and again".into();
            return Err(object_store::Error::Generic { store: "list", source });
        }
    }
    Ok(found)
}

fn build(
    scheme: &ObjectStoreScheme,
    url: &Url,
    endpoint: Option<&str>,
) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
    // Requests are repeated by `Retrying`, which signs them anew.
    let retry =
        RetryConfig { max_retries: 0, backoff: BackoffConfig::default(), ..RetryConfig::default() };
    Ok(match scheme {
        ObjectStoreScheme::GoogleCloudStorage => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(retry)
                .with_http_connector(Connector)
                .build()?,
        ),
        ObjectStoreScheme::MicrosoftAzure => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(retry)
                .with_http_connector(Connector)
                .build()?,
        ),
        ObjectStoreScheme::Http => Arc::new(
            HttpBuilder::new()
                .with_url(url.as_str())
                .with_retry(retry)
                // The user has typed http.
                .with_client_options(
                    object_store::ClientOptions::new().with_allow_http(url.scheme() == "http"),
                )
                .with_http_connector(Connector)
                .build()?,
        ),
        _ => {
            let builder = match endpoint {
                Some(endpoint) => AmazonS3Builder::new()
                    .with_endpoint(endpoint)
                    .with_allow_http(true)
                    .with_skip_signature(true),
                None => aws::added_to(AmazonS3Builder::from_env())?,
            };
            let builder = builder.with_url(url.as_str()).with_retry(retry);
            Arc::new(builder.with_http_connector(Connector).build()?)
        }
    })
}

fn is_http(url: &Url) -> bool {
    matches!(ObjectStoreScheme::parse(url), Ok((ObjectStoreScheme::Http, _)))
}

/// The URL without what may be secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs that have no host.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.set_query(None);
    url.to_string().trim_end_matches('/').to_owned()
}

fn version_of(e_tag: Option<String>, version: Option<String>) -> Version {
    Version(format!("{}\n{}", e_tag.unwrap_or_default(), version.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[test]
    fn a_list_without_end_is_an_error() {
        let object = |name: &str| {
            Ok(ObjectMeta {
                location: name.into(),
                last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
                size: 1,
                e_tag: None,
                version: None,
            })
        };
        let endless = stream::iter(["a", "b"].into_iter().cycle().map(object));
        let error = block_on(gathered(endless)).unwrap_err().to_string();
        assert!(error.contains("again and again"), "{error}");
        let twice = stream::iter(["a", "b", "b", "c"].into_iter().map(object));
        assert_eq!(block_on(gathered(twice)).unwrap().len(), 3);
    }

    #[test]
    fn classes_that_give_nothing_at_once_are_refused() {
        let with = |url: &str, class: &str| {
            let store = Remote::new(&Url::parse(url).unwrap()).unwrap();
            store.with_storage_class(class)
        };
        for class in ["STANDARD_IA", "GLACIER_IR", "INTELLIGENT_TIERING"] {
            assert!(with("s3://bucket/x", class).is_ok());
        }
        for class in ["GLACIER", "DEEP_ARCHIVE", "two words", "line\n"] {
            let error = with("s3://bucket/x", class).unwrap_err().to_string();
            assert!(error.starts_with(STORAGE_CLASS), "{error}");
        }
    }
}
