//! The headers that a policy reads, and the form in which each is compared.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::RequestFault;

/// The headers that a policy reads. One pass over the lines of a request finds all of them; its cost does not depend on how many
/// there are, except for a binary search at names of the same length.
#[derive(Debug, Default)]
pub(crate) struct HeaderTable {
    headers: Vec<ReadHeader>, // by length, then by name
    lengths: u64,             // bit n: a name of n bytes is there; the last bit: or of more
}

/// A header that a policy reads.
#[derive(Debug)]
pub(crate) struct ReadHeader {
    folded: String,
    spellings: Vec<String>, // in the policy, more than one only where it has both `-` and `_`
    pub(crate) attributes: Vec<String>,
    form: Form,
}

/// What several lines of a header are, and which values are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One line.
    Single,
    /// One line, whose first word is in any case.
    Credentials,
    /// Lines that are one list, with this between them.
    List(&'static str),
}

impl HeaderTable {
    /// A table of attributes, each with the name of the header that it is read from.
    pub(crate) fn new<'p>(attributes: impl Iterator<Item = (&'p str, &'p str)>) -> Self {
        let mut table = Self::default();
        for (attribute, name) in attributes {
            let place = match table.place(name.as_bytes()) {
                Ok(place) => place,
                Err(place) => {
                    table.headers.insert(place, ReadHeader::new(name));
                    place
                }
            };
            table.lengths |= Self::bit(name.len());
            let header = &mut table.headers[place];
            for (all, new) in [(&mut header.spellings, name), (&mut header.attributes, attribute)] {
                if !all.iter().any(|known| known.eq_ignore_ascii_case(new)) {
                    all.push(new.to_owned());
                }
            }
        }
        table
    }

    pub(crate) const fn len(&self) -> usize {
        self.headers.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ReadHeader> {
        self.headers.iter()
    }

    /// The header that a name is read as, by its place, also if the name differs in punctuation.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<(usize, &ReadHeader)> {
        if self.lengths & Self::bit(name.len()) == 0 {
            return None;
        }
        let place = self.place(name).ok()?;
        Some((place, &self.headers[place]))
    }

    fn place(&self, name: &[u8]) -> Result<usize, usize> {
        self.headers.binary_search_by(|known| known.cmp_folded(name))
    }

    const fn bit(length: usize) -> u64 {
        1 << if length < 63 { length } else { 63 }
    }
}

impl ReadHeader {
    fn new(name: &str) -> Self {
        let folded: String = name.bytes().map(fold).map(char::from).collect();
        let form = match folded.as_str() {
            "authorization" | "proxy-authorization" => Form::Credentials,
            // Proxies append to these, some of them a line.
            "forwarded" | "via" | "x-forwarded-for" => Form::List(", "),
            // HTTP/2 sends the pairs apart (RFC 9113, section 8.2.3).
            "cookie" => Form::List("; "),
            _ => Form::Single,
        };
        Self { folded, spellings: Vec::new(), attributes: Vec::new(), form }
    }

    fn cmp_folded(&self, name: &[u8]) -> Ordering {
        let by_length = self.folded.len().cmp(&name.len());
        by_length.then_with(|| self.folded.bytes().cmp(name.iter().map(|byte| fold(*byte))))
    }

    /// The name, as the policy spells it.
    pub(crate) fn name(&self) -> &str {
        &self.spellings[0]
    }

    /// Whether the policy means a header of this name, and not only one that is read as it.
    pub(crate) fn is_spelled(&self, name: &[u8]) -> bool {
        self.spellings.iter().any(|spelling| name.eq_ignore_ascii_case(spelling.as_bytes()))
    }

    /// Adds a line to what has been read of the header so far.
    pub(crate) fn add<'h>(
        &self,
        value: Cow<'h, str>,
        so_far: &mut Option<Cow<'h, str>>,
    ) -> Result<(), RequestFault> {
        match (so_far, self.form) {
            (Some(list), Form::List(separator)) => {
                let list = list.to_mut();
                list.push_str(separator);
                list.push_str(&value);
            }
            (Some(_), Form::Single | Form::Credentials) => {
                return Err(RequestFault::RepeatedHeader { name: self.name().to_owned() });
            }
            (none, Form::Credentials) => {
                let Some(value) = normal_credentials(value) else {
                    return Err(RequestFault::Credentials { name: self.name().to_owned() });
                };
                *none = Some(value);
            }
            (none, Form::Single | Form::List(_)) => *none = Some(value),
        }
        Ok(())
    }
}

/// A byte of a name as programs read it that make variables of headers: in any case, and `_` for `-`. Some, such as lighttpd, do so
/// for whatever is neither a letter nor a digit.
const fn fold(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

/// Credentials (RFC 9110, section 11.4) in one form for all ways to write their scheme: `Bearer x`. None where more follows the
/// token: some applications take the second word and do not look at the rest.
fn normal_credentials(value: Cow<'_, str>) -> Option<Cow<'_, str>> {
    const BLANKS: [char; 2] = [' ', '\t'];
    let Some((scheme, rest)) = value.split_once(BLANKS) else { return Some(value) };
    let credentials = rest.trim_start_matches(BLANKS);
    let is_token = |word: &str| !word.trim_end_matches('=').contains(['=', ',', '"']);
    if credentials.split_once(BLANKS).is_some_and(|(word, _)| is_token(word)) {
        return None;
    }
    let has_one_space = rest.len() == credentials.len() && value.as_bytes()[scheme.len()] == b' ';
    if has_one_space && is_normal_scheme(scheme) {
        return Some(value);
    }
    Some(Cow::Owned(format!("{} {credentials}", normal_scheme(scheme))))
}

fn is_normal_scheme(scheme: &str) -> bool {
    let (first, rest) = scheme.as_bytes().split_at(scheme.len().min(1));
    !first.iter().any(u8::is_ascii_lowercase) && !rest.iter().any(u8::is_ascii_uppercase)
}

/// A scheme with a capital and small letters, which is how most are written.
pub(crate) fn normal_scheme(scheme: &str) -> String {
    let mut normal = scheme.to_ascii_lowercase();
    if let Some(first) = normal.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_in_any_case_and_with_underscores() {
        let long = format!("x-{}", "a".repeat(80));
        let long_attribute = format!("header.{long}");
        let table = HeaderTable::new(
            [
                ("tenant", "x-api-key"),
                ("header.X-Api-Key", "X-Api-Key"),
                ("user", "user_id"),
                (&long_attribute, &long),
            ]
            .into_iter(),
        );
        assert_eq!(table.len(), 3);
        for (name, found) in [
            ("x-api-key", Some((true, "x-api-key"))),
            ("X-API-KEY", Some((true, "x-api-key"))),
            ("x_api-KEY", Some((false, "x-api-key"))),
            ("x.api~key", Some((false, "x-api-key"))),
            ("user_id", Some((true, "user_id"))),
            ("user-id", Some((false, "user_id"))),
            (&long.to_uppercase(), Some((true, &long))),
            ("x-api-kez", None),
            ("", None),
            (&long[1..], None),
        ] {
            let header = table.find(name.as_bytes()).map(|(_, header)| header);
            let is_meant = |header: &ReadHeader| header.is_spelled(name.as_bytes());
            assert_eq!(header.map(|header| (is_meant(header), header.name())), found, "{name}");
        }
        let (_, tenant) = table.find(b"x-api-key").unwrap();
        assert_eq!(tenant.attributes, ["tenant", "header.X-Api-Key"]);
    }

    #[test]
    fn credentials_are_the_same_however_their_scheme_is_written() {
        for (value, expected) in [
            ("Bearer x", Some("Bearer x")),
            ("bearer x", Some("Bearer x")),
            ("BEARER \t x", Some("Bearer x")),
            ("Bearer\tx", Some("Bearer x")),
            ("Bearer x==", Some("Bearer x==")),
            ("token-without-Scheme", Some("token-without-Scheme")),
            ("Bearer x y", None),
            ("Basic eDp5==\ty", None),
            ("digest username=\"a b\", realm=c", Some("Digest username=\"a b\", realm=c")),
            (
                "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=c",
                Some("Aws4-hmac-sha256 Credential=a/b, SignedHeaders=c"),
            ),
            ("\u{e9}x y", Some("\u{e9}x y")),
            ("", Some("")),
        ] {
            assert_eq!(normal_credentials(value.into()).as_deref(), expected, "{value}");
        }
    }
}
