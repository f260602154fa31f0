use bytes::Bytes;
use redis_protocol::resp2::decode::decode_bytes;
use redis_protocol::resp2::types::BytesFrame;
use tollgate_testkit::Random;

use super::*;

/// The arguments of a request, and how long it is.
type Found = (Vec<Vec<u8>>, usize);

/// What is at the start of the input.
fn read(input: &[u8], is_stranger: bool) -> Result<Option<Found>, ProtocolError> {
    let (mut input, mut arguments) = (input.to_vec(), Vec::new());
    Ok(match parse(&mut input, 0, is_stranger, &mut arguments)? {
        Parsed::Part { until } => {
            assert!(until > input.len(), "{until} is there already");
            None
        }
        Parsed::Request { end } => {
            Some((arguments.into_iter().map(|place| input[place].to_vec()).collect(), end))
        }
    })
}

/// An array of bulk strings.
fn array(arguments: &[&[u8]]) -> Vec<u8> {
    let mut input = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        input.extend(format!("${}\r\n", argument.len()).into_bytes());
        input.extend_from_slice(argument);
        input.extend_from_slice(b"\r\n");
    }
    input
}

#[test]
fn arrays_and_lines_are_requests() {
    let rows: [(&[u8], &[&[u8]]); 15] = [
        (b"*1\r\n$4\r\nPING\r\n", &[b"PING"]),
        (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", &[b"ECHO", b""]),
        (b"*2\r\n$1\r\na\r\n$4\r\n\r\n\xff\x00\r\n", &[b"a", b"\r\n\xff\x00"]),
        (b"*0\r\n", &[]),
        (b"*-1\r\n", &[]),
        (b"\r\n", &[]),
        (b"\n", &[]),
        (b"  \t \n", &[]),
        (b"PING\r\n", &[b"PING"]),
        (b" get  k \n", &[b"get", b"k"]),
        (br#"a "b c" 'd e'"#, &[]), // the line is not all there
        (b"a \"b c\" 'd e'\n", &[b"a", b"b c", b"d e"]),
        (b"a \"\\x41\\n\\r\\t\\b\\a\\\"\\q\" '\\'\\n'\n", &[b"a", b"A\n\r\t\x08\x07\"q", b"'\\n"]),
        (b"a x\"y z\" \"\"\n", &[b"a", b"xy z", b""]),
        (b"a \"\\xg1\" \"\\x4\"\n", &[b"a", b"xg1", b"x4"]),
    ];
    for (input, expected) in rows {
        let found = read(input, false).unwrap();
        if !input.ends_with(b"\n") {
            assert_eq!(found, None);
            continue;
        }
        let expected = expected.iter().map(|argument| argument.to_vec()).collect();
        assert_eq!(found, Some((expected, input.len())), "{}", input.escape_ascii());
    }
}

#[test]
fn what_is_no_request_is_told_in_the_words_of_redis() {
    let long = |before: &str, by: usize| [before.as_bytes(), &vec![b'x'; by]].concat();
    let many = format!("*{}\r\n", MOST_ARGUMENTS + 1).into_bytes();
    let large = format!("*1\r\n${}\r\n", LONGEST_BULK + 1).into_bytes();
    let words = [&b"a "[..]; MOST_ARGUMENTS + 1].concat();
    let rows: [(Vec<u8>, &str); 22] = [
        (b"*x\r\n".to_vec(), "invalid multibulk length"),
        (b"*\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\rx".to_vec(), "invalid multibulk length"),
        (b"*99999999999999999999\r\n".to_vec(), "invalid multibulk length"),
        (many, "invalid multibulk length"),
        (b"*1\r\n$x\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$1\r\nabc".to_vec(), "invalid bulk length"),
        (b"*1\r\n$9223372036854775807\r\n".to_vec(), "invalid bulk length"),
        (large, "invalid bulk length"),
        (b"*1\r\n:1\r\n".to_vec(), "expected '$', got ':'"),
        (b"*1\r\n*1\r\n".to_vec(), "expected '$', got '*'"),
        (b"*2\r\n$1\r\na\r\nb".to_vec(), "expected '$', got 'b'"),
        (long("", LONGEST_LINE + 2), "too big inline request"),
        ([&words[..], b"\n"].concat(), "too big inline request"),
        (long("*", LONGEST_LINE + 1), "too big mbulk count string"),
        (long("*1\r\n$", LONGEST_LINE + 1), "too big bulk count string"),
        (b"a \"b\n".to_vec(), "unbalanced quotes in request"),
        (b"a 'b\n".to_vec(), "unbalanced quotes in request"),
        (b"a \"b\"c\n".to_vec(), "unbalanced quotes in request"),
        (b"a \"\\\n".to_vec(), "unbalanced quotes in request"),
    ];
    for (input, expected) in rows {
        let found = read(&input, false).map_err(|error| error.to_string());
        assert_eq!(found, Err(expected.to_owned()), "{}", input[..input.len().min(50)].escape_ascii());
    }
}

#[test]
fn the_largest_that_may_be_is_read_and_strangers_may_send_less() {
    let ten = [&b"a"[..]; 10];
    let (small, large) = (vec![b'x'; LONGEST_BULK_OF_STRANGERS], vec![b'x'; LONGEST_BULK]);
    let line = [&vec![b'x'; LONGEST_LINE][..], b"\r\n"].concat();
    for (input, is_stranger, expected) in [
        (array(&[&large]), false, Ok(1)),
        (array(&[&b"a"[..]; MOST_ARGUMENTS]), false, Ok(MOST_ARGUMENTS)),
        (line, false, Ok(1)),
        (array(&ten), true, Ok(10)),
        (array(&[&b"a"[..]; 11]), true, Err(ProtocolError::ArrayOfStranger)),
        (array(&[&small]), true, Ok(1)),
        (array(&[&large[..=LONGEST_BULK_OF_STRANGERS]]), true, Err(ProtocolError::BulkOfStranger)),
    ] {
        let found = read(&input, is_stranger).map(|read| read.unwrap().0.len());
        assert_eq!(found, expected);
    }
}

#[test]
fn a_part_of_a_request_is_never_taken_for_one() {
    for input in [array(&[b"CL.THROTTLE", b"a\r\nb", b"15", b"30", b"60"]), b"set \"a b\" 'c'\r\n".to_vec()] {
        for length in 0..input.len() {
            assert_eq!(read(&input[..length], false), Ok(None), "{length} bytes");
        }
        let followed = [&input[..], b"*1\r\n$4\r\nPING\r\n"].concat();
        assert_eq!(read(&followed, false).unwrap().unwrap().1, input.len());
    }
}

/// What another parser, of a client, makes of the same bytes.
fn peer(input: &[u8]) -> Option<Found> {
    let (frame, length) = decode_bytes(&Bytes::copy_from_slice(input)).ok()??;
    let BytesFrame::Array(frames) = frame else { return None };
    let bulk = |frame: BytesFrame| match frame {
        BytesFrame::BulkString(bytes) => Some(bytes.to_vec()),
        _ => None,
    };
    Some((frames.into_iter().map(bulk).collect::<Option<_>>()?, length))
}

#[test]
fn another_parser_reads_the_same_in_whatever_comes() {
    let mut random = Random::new(1);
    let (mut whole, mut none) = (0, 0);
    for _ in 0..200_000 {
        let arguments: Vec<Vec<u8>> = (0..random.between(1, 6))
            .map(|_| (0..random.between(0, 12)).map(|_| *random.pick(b"\r\n$*:0159az\xff\x00 ")).collect())
            .collect();
        let mut input = array(&arguments.iter().map(Vec::as_slice).collect::<Vec<_>>());
        // As it is, or with a byte changed, lost or added, or cut off.
        let place = random.between(0, input.len() as u64 - 1) as usize;
        match random.between(0, 7) {
            0 => input[place] = *random.pick(b"\r\n$*:-+0159a"),
            1 => drop(input.remove(place)),
            2 => input.insert(place, *random.pick(b"\r\n$*:-+0159a")),
            3 => input.truncate(place),
            _ => {}
        }
        if input.first() != Some(&b'*') {
            continue; // a line, which clients do not read
        }
        let shown = input.escape_ascii().to_string();
        match (read(&input, false), peer(&input)) {
            (Ok(Some(ours)), Some(theirs)) => {
                assert_eq!(ours, theirs, "{shown}");
                whole += 1;
            }
            (Ok(Some((arguments, _))), None) => assert!(arguments.is_empty(), "{shown}"), // `*-1`
            (_, None) => none += 1,
            // As Redis, they do not look at the two bytes behind a bulk string: what they read was not sent.
            (found, Some((theirs, length))) => {
                let sent = array(&theirs.iter().map(Vec::as_slice).collect::<Vec<_>>());
                assert_eq!(found, Err(ProtocolError::BulkLength), "{shown}");
                assert_ne!(sent, input[..length], "{shown}");
            }
        }
    }
    assert!(whole > 100_000 && none > 30_000, "{whole} whole, {none} none");
}

#[test]
fn no_bytes_at_all_make_it_panic() {
    let mut random = Random::new(2);
    for _ in 0..200_000 {
        let length = random.between(0, 40);
        let input: Vec<u8> = (0..length)
            .map(|_| {
                if random.chance(1, 8) {
                    random.between(0, 255) as u8
                } else {
                    *random.pick(b"*$\r\n\"'\\x19 -")
                }
            })
            .collect();
        for is_stranger in [false, true] {
            if let Ok(Some((_, end))) = read(&input, is_stranger) {
                assert!(end > 0 && end <= input.len());
            }
        }
    }
}
