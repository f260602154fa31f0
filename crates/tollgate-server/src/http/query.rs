//! What stands behind the `?` of a target.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::problem::Problem;

/// The names and values of a query, unescaped.
pub(super) fn query_pairs(query: Option<&str>) -> Result<Vec<(String, String)>, Problem> {
    let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((unescaped(name)?, unescaped(value)?))
        })
        .collect()
}

/// A text without its escapes. One that is none is refused: whoever sent it meant something else.
fn unescaped(text: &str) -> Result<String, Problem> {
    let refused =
        || Problem::bad_request(format!("`{text}` in the query is not UTF-8 text in percent escapes"));
    let is_escape = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return Err(refused());
    }
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().map(Cow::into_owned).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_unescaped_or_refused() {
        for (query, expected) in [
            (None, Some(&[][..])),
            (Some("&&"), Some(&[])),
            (Some("a=b&c"), Some(&[("a", "b"), ("c", "")])),
            (Some("a=b=c"), Some(&[("a", "b=c")])),
            (Some("a+b=c%20d%2Be"), Some(&[("a b", "c d+e")])),
            (Some("%61=%C3%a9%26%3d"), Some(&[("a", "é&=")])),
            (Some("a=%2541"), Some(&[("a", "%41")])), // once
            (Some("a=%"), None),
            (Some("a=%4"), None),
            (Some("a=%zz"), None),
            (Some("a=%4g&b"), None),
            (Some("a=%+1"), None),
            (Some("a=%%41"), None),
            (Some("a=%ff"), None), // no text
        ] {
            let pairs = query_pairs(query).ok();
            let pairs: Option<Vec<(&str, &str)>> =
                pairs.as_ref().map(|pairs| pairs.iter().map(|(name, value)| (&**name, &**value)).collect());
            assert_eq!(pairs.as_deref(), expected, "{query:?}");
        }
    }
}
