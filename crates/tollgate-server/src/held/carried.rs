//! Permits as a text that says all that any process on their store needs to give them back.
//!
//! Nobody can make one up: what the store knows a permit by has 64 bits that only the process knew which gave it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tollgate_policy::StoredPermit;

/// What such a text begins with. No id of a permit that a process keeps does.
const MARK: &str = "s.";

/// The longest text. Permits of keys that make a longer one stay with the process that they were given to.
const LONGEST: usize = 8192;

/// As many permits one text has: more than the limits of any request, and each is a call of the store.
const MOST: usize = 64;

/// Between parts. In the names of keys it is escaped.
const BORDER: u8 = b' ';

/// The text of permits. None where it would be too long.
pub(super) fn write(permits: &[StoredPermit]) -> Option<String> {
    let parts: Vec<&[u8]> = permits.iter().flat_map(|permit| [&permit.id[..], &permit.key]).collect();
    let mut text = MARK.to_owned();
    URL_SAFE_NO_PAD.encode_string(parts.join(&BORDER), &mut text);
    (text.len() <= LONGEST && permits.len() <= MOST && parts.iter().all(|part| !part.contains(&BORDER)))
        .then_some(text)
}

/// The permits of a text. None where it is not one.
pub(super) fn read(text: &str) -> Option<Vec<StoredPermit>> {
    let parts = text.strip_prefix(MARK).filter(|_| text.len() <= LONGEST)?;
    let parts = URL_SAFE_NO_PAD.decode(parts).ok()?;
    let parts: Vec<&[u8]> = parts.split(|byte| *byte == BORDER).collect();
    let (permits, rest) = parts.as_chunks();
    let permit = |[id, key]: &[&[u8]; 2]| StoredPermit { key: key.to_vec(), id: id.to_vec() };
    (rest.is_empty() && permits.len() <= MOST).then(|| permits.iter().map(permit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(key: &str) -> StoredPermit {
        StoredPermit { key: key.into(), id: b"2a-0123456789abcdef*1".to_vec() }
    }

    #[test]
    fn what_is_written_is_read() {
        for permits in [
            vec![permit("tollgate:{acme}:in-flight:p:acme")],
            vec![permit("tollgate:{acme}:in-flight:p:acme:é\"\\"), permit("tollgate:{acme}:uploads:p:acme:")],
            vec![permit("")],
        ] {
            let text = write(&permits).unwrap();
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)),
                "{text}"
            );
            assert_eq!(read(&text), Some(permits), "{text}");
        }
    }

    #[test]
    fn nothing_is_written_that_could_not_be_read() {
        assert_eq!(write(&[permit("a b")]), None);
        assert_eq!(write(&vec![permit("k"); MOST + 1]), None);
        assert_eq!(write(&[permit(&"k".repeat(LONGEST))]), None);
        let longest = (0..LONGEST).rev().find_map(|length| write(&[permit(&"k".repeat(length))])).unwrap();
        assert!(longest.len() > LONGEST - 4 && read(&longest).is_some(), "{}", longest.len());
    }

    #[test]
    fn what_nobody_has_written_is_no_permit() {
        let long = format!("{MARK}{}", "A".repeat(LONGEST));
        for text in ["", "s", "s.", "s.=", "s.%", "s.YQ==", "s.Y", "s.YWFh", "s.é", "YQ", "S.YSBh", &long] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
