//! Which slot of a cluster a key belongs to.

/// A cluster has as many.
pub(super) const SLOTS: usize = 16_384;

/// The slot of a key: of its tag, where it has one, so that keys which are decided together can be kept together.
pub(super) fn slot_of(key: &[u8]) -> usize {
    usize::from(crc16(tag(key))) % SLOTS
}

/// A tag whose keys are in a slot: the smallest number, which is found after some ten thousand.
pub(super) fn tag_of(slot: usize) -> String {
    let tags = (0_u32..).map(|number| number.to_string());
    tags.into_iter().find(|tag| slot_of(tag.as_bytes()) == slot).expect("every slot has some number")
}

/// The text between the first `{` and the next `}`; all of the key where there is none or it is empty.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        Some(length @ 1..) => &rest[..length],
        _ => key,
    }
}

/// CRC16-XMODEM: polynomial 0x1021, beginning with zero, nothing reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

static TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn only_a_tag_that_is_not_empty_counts() {
        for (key, expected) in [
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
            ("foo}bar{", "foo}bar{"),
            ("", ""),
        ] {
            assert_eq!(tag(key.as_bytes()), expected.as_bytes(), "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        for slot in (0..SLOTS).step_by(977).chain([SLOTS - 1]) {
            assert_eq!(slot_of(format!("tollgate:{{{}}}:trial", tag_of(slot)).as_bytes()), slot);
        }
    }

    #[test]
    fn slots_are_those_that_servers_tell() {
        // CLUSTER KEYSLOT of Redis 7.0.15.
        for (key, slot) in
            [("foo", 12182), ("{foo}bar", 12182), ("somekey", 11058), ("tollgate:{a}:b", 15495)]
        {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }
}
