use super::*;

/// What is decoded of a body that comes in pieces of `size`, and what is left of the buffer then.
fn decode(framing: Framing, text: &[u8], size: usize) -> Result<(Vec<u8>, bool, usize), Malformed> {
    let (mut decoder, mut buffer, mut decoded) = (Decoder::new(framing), BytesMut::new(), Vec::new());
    let mut left = text.chunks(size);
    loop {
        match decoder.decode(&mut buffer)? {
            Decoded::Piece(piece) => decoded.extend_from_slice(&piece),
            Decoded::End => return Ok((decoded, true, buffer.len() + left.map(<[u8]>::len).sum::<usize>())),
            Decoded::NeedsMore => match left.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => return Ok((decoded, false, 0)),
            },
        }
    }
}

#[test]
fn a_body_ends_where_its_framing_says_however_it_comes() {
    let cases: [(Framing, &str, &str, usize); 6] = [
        (Framing::Empty, "next", "", 4),
        (Framing::Length(5), "hellonext", "hello", 4),
        (Framing::Chunked, "5\r\nhello\r\n0\r\n\r\nnext", "hello", 4),
        (
            Framing::Chunked,
            "5;a=b\r\nhello\r\n00006 \r\n world\r\n0\r\nx: y\r\nz: \r\n\r\n",
            "hello world",
            0,
        ),
        (Framing::Chunked, "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", 0),
        (Framing::Chunked, "0\r\n\r\n", "", 0),
    ];
    for (framing, text, body, left) in cases {
        for size in 1..=text.len() {
            let decoded = decode(framing, text.as_bytes(), size).unwrap();
            assert_eq!(decoded, (body.as_bytes().to_vec(), true, left), "{text:?} in pieces of {size}");
        }
    }
    assert_eq!(decode(Framing::UntilClose, b"all of it", 2).unwrap(), (b"all of it".to_vec(), false, 0));
}

#[test]
fn chunks_that_could_be_read_in_two_ways_are_refused() {
    let cases = [
        "g\r\n",
        "-1\r\n",
        "+5\r\nhello\r\n",
        "0x5\r\nhello\r\n",
        " 5\r\nhello\r\n",
        "5 5\r\nhello\r\n",
        "\r\nhello\r\n",
        ";a\r\n",
        "10000000000000000\r\n",
        "fffffffffffffffff\r\n",
        "5\x0c\r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\r\nhello\r\n",
        "5;a\rb\r\nhello\r\n",
        "5\r\nhello!\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "0\r\nx: y\n\r\n",
    ];
    for text in cases {
        for size in [1, text.len()] {
            assert!(decode(Framing::Chunked, text.as_bytes(), size).is_err(), "{text:?} in pieces of {size}");
        }
    }
    let endless = format!("5;{}", "a".repeat(1000));
    assert!(decode(Framing::Chunked, endless.as_bytes(), 7).is_err());
    let endless = format!("0\r\n{}", "x: y\r\n".repeat(10_000));
    assert!(decode(Framing::Chunked, endless.as_bytes(), 1000).is_err());
}

#[test]
fn a_body_that_is_broken_stays_so() {
    let (mut decoder, mut buffer) = (Decoder::new(Framing::Chunked), BytesMut::from("5\nhello\r\n0\r\n\r\n"));
    for _ in 0..3 {
        assert!(decoder.decode(&mut buffer).is_err());
    }
}

#[test]
fn what_is_put_together_is_taken_apart_again() {
    for framing in [Framing::Chunked, Framing::Length(11)] {
        let (mut encoder, mut out) = (Encoder::new(framing), Vec::new());
        for piece in ["hello", "", " world"] {
            assert!(encoder.piece(piece.as_bytes(), &mut out));
        }
        assert!(encoder.end(&mut out));
        for size in 1..=out.len() {
            assert_eq!(decode(framing, &out, size).unwrap(), (b"hello world".to_vec(), true, 0));
        }
    }
}

#[test]
fn a_length_that_was_announced_is_kept_to() {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Framing::Length(3));
    assert!(encoder.piece(b"ab", &mut out));
    assert!(!encoder.end(&mut out), "one is missing");
    assert!(!encoder.piece(b"cd", &mut out), "one is too many");
    assert_eq!(out, b"ab");
    assert!(!Encoder::new(Framing::Empty).piece(b"a", &mut out));
}
