//! Keys, as terminals send them.

/// The longest sequence that is kept. Longer ones are not keys.
const MOST: usize = 32;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-U: empties a line.
    Clear,
    /// Ctrl-L: draws everything again.
    Redraw,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// Reads keys from bytes. A key may come in pieces.
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<u8>);

impl Keys {
    /// Adds bytes, and returns the keys that are complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for byte in bytes {
            if self.0 == [0x1b] && !matches!(byte, b'[' | b'O') {
                self.0.clear();
                keys.push(Key::Escape);
            }
            self.0.push(*byte);
            if let Some(key) = complete(&self.0) {
                self.0.clear();
                keys.extend(key);
            } else if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        keys
    }

    /// Whether the last bytes are the beginning of a key.
    pub(super) fn is_amid_key(&self) -> bool {
        !self.0.is_empty()
    }

    /// Nothing more came: Escape alone is a key, other beginnings are not.
    pub(super) fn end(&mut self) -> Option<Key> {
        let bytes = std::mem::take(&mut self.0);
        (bytes == [0x1b]).then_some(Key::Escape)
    }
}

/// The key of a complete sequence, `Some(None)` if it is not a known key, and `None` if more bytes belong to it.
fn complete(bytes: &[u8]) -> Option<Option<Key>> {
    match bytes {
        [0x1b] | [0x1b, b'[' | b'O'] => None,
        [0x1b, b'[' | b'O', parameters @ .., last] => match last {
            0x40..=0x7e => Some(of_sequence(parameters, *last)),
            _ => None,
        },
        [b'\r' | b'\n'] => Some(Some(Key::Enter)),
        [0x7f | 0x08] => Some(Some(Key::Backspace)),
        [0x03] => Some(Some(Key::Interrupt)),
        [0x0c] => Some(Some(Key::Redraw)),
        [0x15] => Some(Some(Key::Clear)),
        [0x1a] => Some(Some(Key::Suspend)),
        [0..0x20] => Some(None),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => Some(text.chars().next().filter(|letter| !letter.is_control()).map(Key::Char)),
            Err(error) if error.error_len().is_none() => None,
            Err(_) => Some(None),
        },
    }
}

fn of_sequence(parameters: &[u8], last: u8) -> Option<Key> {
    Some(match (parameters, last) {
        (_, b'A') => Key::Up,
        (_, b'B') => Key::Down,
        (_, b'C') => Key::Right,
        (_, b'D') => Key::Left,
        (_, b'H') | (b"1" | b"7", b'~') => Key::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Key::End,
        (b"5", b'~') => Key::PageUp,
        (b"6", b'~') => Key::PageDown,
        (_, b'M') if parameters.is_empty() => Key::Enter, // of the number pad
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_whole_and_in_pieces() {
        let all = [
            (&b"q"[..], vec![Key::Char('q')]),
            (b"\x1b[A\x1bOB\x1b[5~\x1b[1;5C", vec![Key::Up, Key::Down, Key::PageUp, Key::Right]),
            (b"\x1b[H\x1b[4~", vec![Key::Home, Key::End]),
            ("é東".as_bytes(), vec![Key::Char('é'), Key::Char('東')]),
            (b"\r\x7f\x03\x1a\x0c\x15", {
                use Key::{Backspace, Clear, Enter, Interrupt, Redraw, Suspend};
                vec![Enter, Backspace, Interrupt, Suspend, Redraw, Clear]
            }),
            (b"\x1b[99;99Zx\x1by\xffz", vec![Key::Char('x'), Key::Escape, Key::Char('y'), Key::Char('z')]),
            (b"\x01\x00n", vec![Key::Char('n')]),
        ];
        for (bytes, expected) in all {
            assert_eq!(Keys::default().read(bytes), expected, "{bytes:?}");
            let mut keys = Keys::default();
            let one_by_one: Vec<Key> = bytes.iter().flat_map(|byte| keys.read(&[*byte])).collect();
            assert_eq!(one_by_one, expected, "{bytes:?}");
            assert!(!keys.is_amid_key());
        }
    }

    #[test]
    fn escape_alone_is_a_key_when_nothing_follows() {
        let mut keys = Keys::default();
        assert_eq!(keys.read(b"\x1b"), []);
        assert!(keys.is_amid_key());
        assert_eq!(keys.end(), Some(Key::Escape));
        assert_eq!(keys.read(b"\x1b["), []);
        assert_eq!(keys.end(), None);
        assert_eq!(keys.read(b"\x1b\x1b"), [Key::Escape]);
        assert_eq!(keys.end(), Some(Key::Escape));
    }

    #[test]
    fn endless_sequences_are_bounded() {
        let mut keys = Keys::default();
        keys.read(&[b"\x1b[".as_slice(), &[b'0'; 10_000]].concat());
        assert!(keys.0.len() <= MOST);
        assert_eq!(keys.read(b"\x1b[Aq").last(), Some(&Key::Char('q')));
    }
}
