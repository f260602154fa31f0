//! Which of a cluster's slots a key is in.

/// How many there are.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: by the text between its first `{` and the next `}`, where there is any, else by the whole key.
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    crc16(tag(key.as_ref())) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let after = &key[open + 1..];
    match after.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &after[..close],
    }
}

/// CRC-16/XMODEM, bit by bit.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn keys_with_one_tag_are_in_one_slot() {
        let rows = [
            ("{user1000}.following", "user1000"),
            ("{user1000}.followers", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
        ];
        for (key, tag) in rows {
            assert_eq!(slot_of(key), crc16(tag.as_bytes()) % SLOTS, "{key}");
        }
    }
}
