//! The files in which the tools of AWS keep credentials and settings: `~/.aws/credentials` and
//! `~/.aws/config`.
//!
//! Variables of the environment come first: what they say is not read from a file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::{env, fs};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

/// What is read, by its name in the files, and the variable that says it instead. The parts of
/// credentials belong together.
const KEYS: [(&str, &str, AmazonS3ConfigKey); 5] = [
    ("aws_access_key_id", "AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::AccessKeyId),
    ("aws_secret_access_key", "AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::SecretAccessKey),
    ("aws_session_token", "AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::Token),
    ("region", "AWS_REGION", AmazonS3ConfigKey::Region),
    ("endpoint_url", "AWS_ENDPOINT_URL", AmazonS3ConfigKey::Endpoint),
];

/// Variables that say the same by another name.
const SYNONYMS: [(&str, &str); 2] =
    [("AWS_REGION", "AWS_DEFAULT_REGION"), ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")];

/// Adds to `builder` what the files say of the profile that `AWS_PROFILE` names.
pub(super) fn added_to(builder: AmazonS3Builder) -> AmazonS3Builder {
    let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let mut said = read("AWS_CONFIG_FILE", "config", &section_of_config(&profile));
    said.extend(read("AWS_SHARED_CREDENTIALS_FILE", "credentials", &profile));
    KEYS.into_iter().fold(builder, |builder, (name, variable_name, key)| {
        let is_said = |name| variable(name).is_some();
        let synonym = SYNONYMS.iter().find(|(one, _)| *one == variable_name);
        match said.remove(name) {
            Some(value)
                if !is_said(variable_name) && !synonym.is_some_and(|(_, other)| is_said(other)) =>
            {
                builder.with_config(key, value)
            }
            _ => builder,
        }
    })
}

/// What the file that the variable `place` names, or `~/.aws/NAME`, says in a section.
fn read(place: &str, name: &str, section: &str) -> HashMap<String, String> {
    let usual = || Some(PathBuf::from(variable("HOME")?).join(".aws").join(name));
    let path = variable(place).map(PathBuf::from).or_else(usual);
    let text = path.and_then(|path| fs::read_to_string(path).ok());
    text.map(|text| section_in(&text, section)).unwrap_or_default()
}

fn section_of_config(profile: &str) -> String {
    if profile == "default" { profile.to_owned() } else { format!("profile {profile}") }
}

fn section_in(text: &str, section: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    let mut is_in_it = false;
    for line in text.lines() {
        if let Some(title) = line.trim().strip_prefix('[') {
            is_in_it = title.strip_suffix(']').is_some_and(|title| title.trim() == section);
        } else if is_in_it
            // Indented lines belong to the key before.
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            found.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_the_next_one_begins() {
        let text = "[default]\naws_access_key_id = ME\nregion=eu\n\
                    # a comment = no\ns3 =\n  endpoint_url = nested\n\
                    [ profile other ]\nregion = us\n[broken\nregion = no\n";
        let default = section_in(text, "default");
        assert_eq!(
            (default["aws_access_key_id"].as_str(), default["region"].as_str()),
            ("ME", "eu")
        );
        assert!(!default.contains_key("endpoint_url"));
        assert_eq!(section_in(text, &section_of_config("other"))["region"], "us");
        assert!(section_in(text, "none").is_empty());
    }
}
