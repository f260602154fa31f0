use super::*;

fn request(text: &str) -> Result<Option<RequestHead>, Malformed> {
    HeadReader::default().request(&mut BytesMut::from(text))
}

#[test]
fn a_head_is_taken_off_once_it_is_whole() {
    let text = "POST /a?b=c HTTP/1.1\r\nHost: example\r\nX-Two: 1\r\nx-two: 2\r\n\r\nthe body";
    let whole = text.len() - "the body".len();
    let mut reader = HeadReader::default();
    let mut buffer = BytesMut::new();
    for (place, byte) in text.bytes().enumerate() {
        buffer.extend_from_slice(&[byte]);
        if place + 1 < whole {
            assert!(reader.request(&mut buffer).unwrap().is_none(), "after {place}");
            continue;
        }
        let head = reader.request(&mut buffer).unwrap().expect("the empty line has come");
        assert_eq!(
            (head.method, head.uri.to_string(), head.is_11),
            (Method::POST, "/a?b=c".to_owned(), true)
        );
        let values: Vec<&[u8]> = head.headers.values("x-two").collect();
        assert_eq!(values, [b"1", b"2"]);
        assert!(buffer.is_empty());
        break;
    }
}

#[test]
fn what_two_programs_could_read_in_two_ways_is_refused() {
    let cases = [
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", "LF alone"),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n\r\n", "LF alone"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\n c\r\n\r\n", "LF alone"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", "continues"),
        ("GET / HTTP/1.1\r\nHost: a\r\n X: b\r\n\r\n", "continues"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", "no valid name"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", "no valid name"),
        ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", "no valid name"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n", "byte in its value"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n", "byte in its value"),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", "neither HTTP/1.1"),
        ("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", "fragment"),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "not HTTP"),
        ("G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n", "not HTTP"),
        ("GET /\r\nHost: a\r\n\r\n", ""),
    ];
    for (text, why) in cases {
        let malformed = request(text).expect_err(text);
        assert_eq!(malformed.status, StatusCode::BAD_REQUEST, "{text:?}");
        assert!(malformed.why.contains(why), "{text:?}: {}", malformed.why);
    }
}

#[test]
fn a_head_has_a_largest_size_however_it_comes() {
    let lines: String = (0..101).map(|i| format!("x-{i}: a\r\n")).collect();
    let malformed = request(&format!("GET / HTTP/1.1\r\n{lines}\r\n")).unwrap_err();
    assert_eq!(malformed, TOO_LARGE);
    let mut reader = HeadReader::default();
    let mut buffer = BytesMut::from("GET / HTTP/1.1\r\nx: ");
    let mut pieces = 0;
    let malformed = loop {
        buffer.extend_from_slice(&[b'a'; 1000]);
        pieces += 1;
        if let Err(malformed) = reader.request(&mut buffer) {
            break malformed;
        }
    };
    assert_eq!((malformed, pieces), (TOO_LARGE, 66));
}

#[test]
fn empty_lines_before_a_request_are_overlooked() {
    let head = request("\r\n\r\nGET / HTTP/1.0\r\n\r\n").unwrap().unwrap();
    assert!(!head.is_11);
    assert!(request("\r\n\r\n").unwrap().is_none());
}
