//! The page for those who run it has every message.

use std::fs;

fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The text of the first string literal in `source`, with the lines that it goes on on.
fn literal(source: &str) -> String {
    let mut text = String::new();
    let mut rest = source.split_once('"').unwrap().1.chars();
    while let Some(character) = rest.next() {
        match character {
            '"' => break,
            '\\' if rest.as_str().starts_with('\n') => {
                rest = rest.as_str().trim_start().chars();
            }
            '\\' => text.extend(rest.next()),
            character => text.push(character),
        }
    }
    text
}

/// What stands between the parts of a message that change.
fn fixed(message: &str) -> impl Iterator<Item = &str> {
    let parts = message.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    parts.map(|part| part.trim_matches([' ', ':', ';', '\'', ','])).filter(|part| part.len() > 3)
}

#[test]
fn the_runbook_has_every_error() {
    let page = read("../../docs/objects-runbook.md");
    let source = read("src/error.rs");
    let errors: Vec<_> = source.split("#[error(").skip(1).collect();
    assert!(errors.len() > 25, "{}", errors.len());
    for error in errors {
        let message = if error.starts_with("transparent") { String::new() } else { literal(error) };
        let parts: Vec<_> = fixed(&message).collect();
        for part in &parts {
            assert!(page.contains(part), "it does not have '{part}'");
        }
        // The others are explained by what they may say.
        let others = ["Store(", "Damaged {", "Setting {", "Address {", "Journal {"];
        let is_other = others.iter().any(|variant| error.contains(&format!("\n    {variant}")));
        assert!(!parts.is_empty() || is_other, "{error}");
    }
    let source = read("src/store/error.rs");
    for message in source.split("write!(f, ").skip(1).map(literal) {
        assert!(fixed(&message).all(|part| page.contains(part)), "{message}");
    }
}

#[test]
fn the_runbook_has_every_reason_to_refuse_a_journal() {
    let page = read("../../docs/objects-runbook.md");
    let source = read("src/journal/kept.rs");
    let reasons: Vec<_> =
        source.split("Malformed(\"").skip(1).map(|rest| format!("\"{rest}")).collect();
    let named: Vec<_> =
        source.split("let why = \"").skip(1).map(|rest| format!("\"{rest}")).collect();
    assert!(reasons.len() + named.len() > 5);
    for reason in reasons.iter().chain(&named).map(|source| literal(source)) {
        assert!(page.contains(&reason), "it does not have '{reason}'");
    }
}

#[test]
fn the_runbook_has_every_warning() {
    let page = read("../../docs/objects-runbook.md");
    let mut warnings = 0;
    let mut folders = vec![format!("{}/src", env!("CARGO_MANIFEST_DIR"))];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.to_str().unwrap().to_owned());
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            for call in ["tracing::warn!(", "tracing::error!("] {
                for message in source.split(call).skip(1).map(literal) {
                    warnings += 1;
                    for part in fixed(&message) {
                        assert!(page.contains(part), "it does not have '{part}' of {path:?}");
                    }
                }
            }
        }
    }
    assert!(warnings > 12, "{warnings}");
}
