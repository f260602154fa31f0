//! The JSON schema of the policy file, and its description in words: both made from `keys.rs`.

use std::fmt::Write as _;

use crate::keys::{Key, POLICY, Takes};

/// The JSON schema (draft 2020-12) of the policy file, for editors.
///
/// ```
/// let schema = tollgate_policy::schema();
/// assert!(schema.contains("\"token_bucket\""));
/// ```
pub fn schema() -> String {
    let mut json = String::from("{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n");
    json.push_str("  \"title\": \"Tollgate policy\",\n");
    section_body(&mut json, POLICY, 1);
    json.push_str("\n}\n");
    json
}

fn section_body(json: &mut String, keys: &[Key], depth: usize) {
    let pad = "  ".repeat(depth);
    let _ = write!(
        json,
        "{pad}\"type\": \"object\",\n{pad}\"additionalProperties\": false,\n{pad}\"properties\": {{"
    );
    for (i, key) in keys.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(json, "{comma}\n{pad}  {}: ", quoted(key.name));
        value(json, &key.takes, Some(key.text).filter(|text| !text.is_empty()), depth + 1);
    }
    let _ = write!(json, "\n{pad}}}");
}

/// What one key takes, as an object.
fn value(json: &mut String, takes: &Takes, text: Option<&str>, depth: usize) {
    let pad = "  ".repeat(depth + 1);
    json.push_str("{\n");
    if let Some(text) = text {
        let _ = writeln!(json, "{pad}\"description\": {},", quoted(text));
    }
    let simple = |kind: &str| format!("{pad}\"type\": {kind}");
    let pattern = |pattern: &str| {
        format!("{pad}\"type\": [\"string\", \"integer\"],\n{pad}\"pattern\": {}", quoted(pattern))
    };
    match takes {
        Takes::Text => json.push_str(&simple("[\"string\", \"integer\", \"boolean\"]")),
        Takes::Fraction => {
            let _ = write!(json, "{pad}\"type\": \"number\",\n{pad}\"minimum\": 0.001,\n{pad}\"maximum\": 1");
        }
        Takes::Flag => json.push_str(&simple("\"boolean\"")),
        Takes::Count => json.push_str(&pattern(r"^[0-9.]+[kKM]?$")),
        Takes::Bytes => json.push_str(&pattern(r"^[0-9.]+ *(B|[kKMG]B|[KMG]iB)?$")),
        Takes::Rate => json.push_str(&pattern(r"^[0-9.]+[kKM]? */ *[0-9.]*[a-z]+( burst [0-9.]+[kKM]?)?$")),
        Takes::PlainRate => json.push_str(&pattern(r"^[0-9.]+[kKM]? */ *[0-9.]*[a-z]+$")),
        Takes::Time => json.push_str(&pattern(r"^([0-9.]+[a-z]+ *)+$")),
        Takes::Factor => json.push_str(&pattern(r"^[0-9]+x$")),
        Takes::Word(words) => {
            let mut words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            if words.iter().any(|word| word == "\"off\"") {
                words.push("false".to_owned());
            }
            let _ = write!(json, "{pad}\"enum\": [{}]", words.join(", "));
        }
        Takes::List(item) => {
            let _ = write!(json, "{pad}\"type\": \"array\",\n{pad}\"items\": ");
            value(json, item, None, depth + 1);
        }
        Takes::OneOrMore(item) => {
            let _ = write!(json, "{pad}\"anyOf\": [\n{pad}  ");
            value(json, item, None, depth + 2);
            let _ = write!(json, ",\n{pad}  ");
            value(json, &Takes::List(item), None, depth + 2);
            let _ = write!(json, "\n{pad}]");
        }
        Takes::Named(item) => {
            let _ = write!(json, "{pad}\"type\": \"object\",\n{pad}\"additionalProperties\": ");
            value(json, item, None, depth + 1);
        }
        Takes::Section(keys) => section_body(json, keys, depth + 1),
        Takes::Any => {
            json.push_str(&simple("[\"string\", \"number\", \"boolean\", \"array\", \"object\", \"null\"]"))
        }
        Takes::Either(kinds) => {
            let _ = write!(json, "{pad}\"anyOf\": [");
            for (i, kind) in kinds.iter().enumerate() {
                let _ = write!(json, "{}\n{pad}  ", if i == 0 { "" } else { "," });
                value(json, kind, None, depth + 2);
            }
            let _ = write!(json, "\n{pad}]");
        }
    }
    let _ = write!(json, "\n{}}}", "  ".repeat(depth));
}

/// Text as JSON. The table's texts have no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Every key in a table, for `docs/policy.md`.
pub fn reference() -> String {
    let mut markdown = String::new();
    chapter(&mut markdown, "The file", "", POLICY);
    markdown
}

fn chapter(markdown: &mut String, title: &str, path: &str, keys: &[Key]) {
    let _ = write!(markdown, "\n## {title}\n\n| key | takes | meaning |\n|---|---|---|\n");
    for key in keys.iter() {
        // A bar would end the cell.
        let text = key.text.replace('|', "\\|");
        let _ = writeln!(markdown, "| `{}` | {} | {text} |", key.name, in_words(&key.takes));
    }
    for key in keys {
        let (suffix, inner) = sections(&key.takes);
        if let Some(inner) = inner {
            let path = format!("{path}{}{suffix}", key.name);
            chapter(markdown, &format!("`{path}`"), &format!("{path}."), inner);
        }
    }
}

/// The keys inside, and what stands between them and the name.
fn sections(takes: &Takes) -> (&'static str, Option<&'static [Key]>) {
    match takes {
        Takes::Section(keys) => ("", Some(keys)),
        Takes::List(item) => ("[]", sections(item).1),
        Takes::Named(item) => (".NAME", sections(item).1),
        Takes::Either(kinds) => ("", kinds.iter().find_map(|kind| sections(kind).1)),
        _ => ("", None),
    }
}

fn in_words(takes: &Takes) -> String {
    match takes {
        Takes::Text => "text".into(),
        Takes::Count => "a count: `10`, `10k`".into(),
        Takes::Fraction => "a number from 0.001 to 1".into(),
        Takes::Rate => "a rate: `5/s`, `100/min burst 20`".into(),
        Takes::PlainRate => "a rate: `5/s`, `100/min`".into(),
        Takes::Time => "a time: `500ms`, `60s`".into(),
        Takes::Bytes => "a size: `64MiB`".into(),
        Takes::Factor => "a factor: `10x`".into(),
        Takes::Flag => "`true` or `false`".into(),
        Takes::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Takes::List(item) => format!("a list of: {}", in_words(item)),
        Takes::OneOrMore(item) => format!("{}, or a list of it", in_words(item)),
        Takes::Named(item) => format!("by name: {}", in_words(item)),
        Takes::Section(_) => "a section".into(),
        Takes::Any => "anything".into(),
        Takes::Either(kinds) => kinds.iter().map(in_words).collect::<Vec<_>>().join(", or "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JSON is YAML, so the reader that is there can tell.
    #[test]
    fn the_schema_is_json_that_names_every_key() {
        let schema = schema();
        crate::yaml::parse(&schema).unwrap_or_else(|fault| panic!("{fault:?} in\n{schema}"));
        for name in ["token_bucket", "max_wait", "trusted_proxies", "exact_up_to", "burst_for", "per_key"] {
            assert!(schema.contains(&format!("\"{name}\": {{")), "{name}");
        }
    }
}
