//! The files in which the tools of AWS keep credentials and settings: `~/.aws/credentials` and
//! `~/.aws/config`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::{env, fs};

/// What is said under one name.
pub(super) type Section = HashMap<String, String>;

/// The files and the variables of this process, or of a test.
pub(super) struct Files<'v> {
    variable: &'v dyn Fn(&str) -> Option<String>,
}

impl Files<'_> {
    /// Those of this process.
    pub(super) fn of_this_process() -> Files<'static> {
        Files { variable: &|name| env::var(name).ok() }
    }

    /// A variable that is not empty.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// What both files say of a profile. `None` if neither knows it.
    pub(super) fn profile(&self, profile: &str) -> Option<Section> {
        let in_config =
            if profile == "default" { profile.to_owned() } else { format!("profile {profile}") };
        let config = self.read("AWS_CONFIG_FILE", "config", &in_config);
        let credentials = self.read("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile);
        match (config, credentials) {
            (None, None) => None,
            (config, credentials) => {
                let mut said = config.unwrap_or_default();
                said.extend(credentials.unwrap_or_default());
                Some(said)
            }
        }
    }

    /// What the file of settings says of signing in once for several profiles.
    pub(super) fn session(&self, name: &str) -> Option<Section> {
        self.read("AWS_CONFIG_FILE", "config", &format!("sso-session {name}"))
    }

    /// The file or folder `name` of `~/.aws`.
    pub(super) fn usual(&self, name: &str) -> Option<PathBuf> {
        Some(PathBuf::from(self.variable("HOME")?).join(".aws").join(name))
    }

    /// What the file that the variable `place` names, or `~/.aws/NAME`, says in a section.
    fn read(&self, place: &str, name: &str, section: &str) -> Option<Section> {
        let path = self.variable(place).map(PathBuf::from).or_else(|| self.usual(name))?;
        section_in(&fs::read_to_string(path).ok()?, section)
    }
}

fn section_in(text: &str, section: &str) -> Option<Section> {
    let mut found = None;
    let mut is_in_it = false;
    for line in text.lines() {
        if let Some(title) = line.trim().strip_prefix('[') {
            is_in_it = title.strip_suffix(']').is_some_and(|title| title.trim() == section);
            if is_in_it {
                found.get_or_insert_with(HashMap::new);
            }
        } else if is_in_it
            // Indented lines belong to the key before.
            && !line.starts_with([' ', '\t', '#', ';'])
            && let (Some((key, value)), Some(found)) = (line.split_once('='), &mut found)
        {
            found.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Calls `with` with files of this content.
    pub(in crate::store::aws) fn with_files<T>(
        config: &str,
        credentials: &str,
        with: impl FnOnce(&Files<'_>) -> T,
    ) -> T {
        let folder = tempfile::tempdir().unwrap();
        let aws = folder.path().join(".aws");
        fs::create_dir(&aws).unwrap();
        fs::write(aws.join("config"), config).unwrap();
        fs::write(aws.join("credentials"), credentials).unwrap();
        let home = folder.path().to_str().unwrap().to_owned();
        with(&Files { variable: &|name| (name == "HOME").then(|| home.clone()) })
    }

    #[test]
    fn a_section_ends_where_the_next_one_begins() {
        let text = "[default]\naws_access_key_id = ME\nregion=eu\n\
                    # a comment = no\ns3 =\n  endpoint_url = nested\n\
                    [ profile other ]\nregion = us\n[broken\nregion = no\n";
        let default = section_in(text, "default").unwrap();
        assert_eq!(
            (default["aws_access_key_id"].as_str(), default["region"].as_str()),
            ("ME", "eu")
        );
        assert!(!default.contains_key("endpoint_url"));
        assert_eq!(section_in(text, "profile other").unwrap()["region"], "us");
        assert_eq!(section_in(text, "none"), None);
    }

    #[test]
    fn credentials_of_a_profile_come_from_both_files() {
        let config = "[profile ann]\nregion = eu\naws_access_key_id = old\n";
        with_files(config, "[ann]\naws_access_key_id = new\n", |files| {
            let ann = files.profile("ann").unwrap();
            assert_eq!((ann["region"].as_str(), ann["aws_access_key_id"].as_str()), ("eu", "new"));
            assert_eq!(files.profile("profile ann"), None);
        });
    }
}
