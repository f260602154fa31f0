//! Random requests that programs read in several ways: the raw material of request smuggling.

use tollgate_testkit::Random;

/// A request of HTTP/1.1, and whatever follows it. The first number in each target is the id.
pub(crate) fn http1(id: u64) -> Vec<u8> {
    let mut random = Random::new(id.wrapping_mul(0x9e37_79b9) ^ 0x736d_7567);
    let random = &mut random;
    let mut out = request_line(random, id);
    let mut lines = vec![host(random)];
    let body = match random.below(8) {
        // One statement about the length, which may be true.
        0..=2 => {
            let body = body(random, id);
            lines.push(content_length(random, body.len()));
            body
        }
        3..=5 => {
            lines.push(transfer_encoding(random));
            chunked(random, id)
        }
        // Any number of them.
        _ => {
            let body = body(random, id);
            for _ in 0..random.below(3) {
                lines.push(if random.chance(1, 2) {
                    content_length(random, body.len())
                } else {
                    transfer_encoding(random)
                });
            }
            body
        }
    };
    if random.chance(1, 2) {
        lines.push(other_header(random));
    }
    for at in (1..lines.len()).rev() {
        lines.swap(at, random.below(at as u64 + 1) as usize);
    }
    for line in lines {
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(line_end(random));
    }
    out.extend_from_slice(line_end(random));
    let head = out.len();
    out.extend_from_slice(body.as_bytes());
    if random.chance(1, 8) {
        mutate(random, &mut out, head);
    }
    out
}

fn one_of<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
    choices[random.below(choices.len() as u64) as usize]
}

/// The usual choice in most cases, or one of the others.
fn usually<'a>(random: &mut Random, usual: &'a str, others: &[&'a str]) -> &'a str {
    if random.chance(14, 15) { usual } else { one_of(random, others) }
}

fn line_end(random: &mut Random) -> &'static [u8] {
    if random.chance(99, 100) {
        b"\r\n"
    } else {
        one_of(random, &["\n", "\r", "\r\r\n", "\n\r\n", "\0\r\n"]).as_bytes()
    }
}

fn request_line(random: &mut Random, id: u64) -> Vec<u8> {
    let method = usually(
        random,
        "POST",
        &["GET", "PUT", "DELETE", "OPTIONS", "post", "P\u{d6}ST", "TRACE", "CONNECT", "X-Y"],
    );
    let form =
        usually(random, "", &["http://b", "HTTP://B:80", "https://b", "//b", "http://b@c", "\\", "?", "b"]);
    let version = usually(
        random,
        "HTTP/1.1",
        &["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/01.1", "HTTP/1.1\t", ""],
    );
    let before =
        if random.chance(9, 10) { "" } else { one_of(random, &["\r\n", "\n", " ", "\r\n\r\n", "\0"]) };
    let gap = if random.chance(19, 20) { " " } else { one_of(random, &["  ", "\t", "\x0b", "\r"]) };
    let mut line = format!("{before}{method}{gap}{form}/p/{id}{gap}{version}").into_bytes();
    line.extend_from_slice(line_end(random));
    line
}

fn host(random: &mut Random) -> String {
    usually(
        random,
        "Host: a",
        &[
            "Host: a\r\nHost: b",
            "Host : a",
            "Host:a",
            "X: y",
            "Host: a/b",
            "Host: a:80",
            "Host:\r\n a",
            "Host: a\tb",
            "Host:",
            "hOsT:\ta \t",
        ],
    )
    .to_owned()
}

/// A header name as it is, or disguised.
fn name(random: &mut Random, name: &str) -> String {
    if random.chance(12, 13) {
        return name.to_owned();
    }
    match random.below(9) {
        0 => name.to_ascii_uppercase(),
        1 => name.to_ascii_lowercase(),
        2 => name.replace('-', "_"),
        3 => format!("{name} "),
        4 => format!(" {name}"),
        5 => format!("{name}\t"),
        6 => format!("\x0b{name}"),
        7 => format!("X: y\n{name}"),
        _ => format!("{name}\0"),
    }
}

fn colon(random: &mut Random) -> &'static str {
    if random.chance(19, 20) {
        ": "
    } else {
        one_of(random, &[":", ":\t", ":  ", " : ", ":\r\n ", ":\n", ":\x0b", "::", ": \r"])
    }
}

fn content_length(random: &mut Random, body: usize) -> String {
    let length = match random.below(12) {
        0 => 0,
        1 => random.below(body as u64 + 1),
        2 => body as u64 + random.between(1, 200),
        _ => body as u64,
    };
    let value = if random.chance(6, 7) {
        length.to_string()
    } else {
        match random.below(16) {
            0 => format!("+{length}"),
            1 => format!("-{length}"),
            2 => format!("0{length}"),
            3 => format!("0x{length:x}"),
            4 => format!("{length}, {length}"),
            5 => format!("{length}, 0"),
            6 => format!("{length};"),
            7 => format!("{length}.0"),
            8 => format!("\"{length}\""),
            9 => String::new(),
            10 => "18446744073709551616".to_owned(),
            11 => format!("{length} 0"),
            12 => format!("{length}\t "),
            13 => format!("{length}\0"),
            14 => format!("\u{661}{length}"),
            _ => format!("{length}_0"),
        }
    };
    format!("{}{}{value}", name(random, "Content-Length"), colon(random))
}

fn transfer_encoding(random: &mut Random) -> String {
    let value = usually(
        random,
        "chunked",
        &[
            "Chunked",
            "CHUNKED",
            " chunked",
            "chunked \t",
            "\tchunked",
            "\x0bchunked",
            "chunked\x0c",
            "chunked,",
            ", chunked",
            "chunked, chunked",
            "identity",
            "identity, chunked",
            "chunked, identity",
            "gzip, chunked",
            "xchunked",
            "\"chunked\"",
            "'chunked'",
            "chunked;q=1",
            "chunked\0",
            "",
            "\r\n chunked",
            "chun\r\n ked",
            "chunked\r\nTransfer-Encoding: identity",
            "chun\u{212a}ed",
        ],
    );
    format!("{}{}{value}", name(random, "Transfer-Encoding"), colon(random))
}

fn other_header(random: &mut Random) -> String {
    one_of(
        random,
        &[
            "Expect: 100-continue",
            "Expect: 200-ok",
            "Connection: close",
            "Connection: keep-alive",
            "Connection: content-length",
            "Connection: transfer-encoding",
            "Connection: host, close",
            "Connection: upgrade\r\nUpgrade: websocket",
            "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk",
            "TE: trailers",
            "Trailer: Content-Length",
            "X: a\r\n b",
            "X: a\r\n\tContent-Length: 3",
            "X: a\rContent-Length: 3",
            "X: a\nContent-Length: 3",
            "X: a\0b",
            "X",
            ": x",
            "X : y",
            "X\r\n: y",
            "X: \u{e9}\u{212a}",
            "X-HTTP-Method-Override: GET",
            "Content-Encoding: gzip",
            "X-Forwarded-Host: b\tc",
            "Cookie: a=\"b\\\"; c\"",
            "Keep-Alive: max=1",
            "Proxy-Connection: keep-alive",
        ],
    )
    .to_owned()
}

/// A request that must not be taken for one where it is part of a body.
fn hidden(id: u64) -> String {
    format!("GET /hidden/{id} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn body(random: &mut Random, id: u64) -> String {
    match random.below(5) {
        0 => String::new(),
        1 => hidden(id),
        2 => format!("x=1&{}", hidden(id)),
        _ => chunked(random, id),
    }
}

fn chunked(random: &mut Random, id: u64) -> String {
    let mut out = String::new();
    for _ in 0..random.below(3) {
        let data = if random.chance(1, 2) { hidden(id) } else { "abc".to_owned() };
        out += &chunk_size(random, data.len());
        out += &data;
        out += usually(random, "\r\n", &["\n", "", "\r", "\r\n\r\n", "xx\r\n", "\0\r\n"]);
    }
    out += &chunk_size(random, 0);
    if random.chance(1, 4) {
        out += one_of(
            random,
            &[
                "X: y\r\n",
                "Content-Length: 5\r\n",
                "Transfer-Encoding: chunked\r\n",
                "Host: b\r\n",
                "X: a\r\n b\r\n",
                "X: a\n",
                "X\r\n",
                "GET /trailer HTTP/1.1\r\n",
            ],
        );
    }
    out += usually(random, "\r\n", &["\n", "", "\r\r\n"]);
    if random.chance(1, 2) {
        out += &hidden(id);
    }
    out
}

fn chunk_size(random: &mut Random, length: usize) -> String {
    if random.chance(10, 11) {
        return format!("{length:x}\r\n");
    }
    match random.below(18) {
        0 => format!("{length:X}\r\n"),
        1 => format!("00{length:x}\r\n"),
        2 => format!("0x{length:x}\r\n"),
        3 => format!("{length:x} \r\n"),
        4 => format!(" {length:x}\r\n"),
        5 => format!("+{length:x}\r\n"),
        6 => format!("-{length:x}\r\n"),
        7 => format!("{length:x};a=b\r\n"),
        8 => format!("{length:x};a=\"b\r\n\"\r\n"),
        9 => format!("{length:x};\n\r\n"),
        10 => format!("{length:x};a\rb\r\n"),
        11 => format!("1{length:016x}\r\n"),
        12 => format!("{length:x}_0\r\n"),
        13 => format!("{length:x}\n"),
        14 => format!("{length:x}\r"),
        15 => format!("{length:x},0\r\n"),
        16 => format!("{length:x}\0\r\n"),
        _ => "\r\n".to_owned(),
    }
}

/// Inserts or deletes a byte that separates parts. Digits stay together, so that targets keep their id.
fn mutate(random: &mut Random, out: &mut Vec<u8>, head: usize) {
    let from = out.iter().position(|byte| *byte == b'\n').unwrap_or(0).min(head);
    let at = random.between(from as u64, out.len() as u64 - 1) as usize;
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    if random.chance(1, 2) && !out[at].is_ascii_alphanumeric() {
        out.remove(at);
    } else if !is_digit(out.get(at)) && at > 0 && !is_digit(out.get(at - 1)) {
        out.insert(at, *random.pick(b"\r\n \t\0,;:\x0b\x7f\xff\""));
    }
}

/// Fields of a request of HTTP/2, its body, and its trailers where it has some.
pub(crate) type Http2Message = (Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>, Option<Vec<(Vec<u8>, Vec<u8>)>>);

/// A request of HTTP/2, with what must not be written into one of HTTP/1.1. The first number in each target is the id.
pub(crate) fn http2(id: u64) -> Http2Message {
    let mut random = Random::new(id.wrapping_mul(0x9e37_79b9) ^ 0x6832_6832);
    let random = &mut random;
    let hidden = hidden(id);
    let field = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let smuggled = format!("x\r\n\r\n{hidden}");
    let line = format!("GET /hidden/{id} HTTP/1.1\r\nHost: a\r\nX: y");
    let method = usually(
        random,
        "POST",
        &["GET", "PUT", "", "POST ", "post", "CONNECT", "TRACE", &line, "POST\r\n", "P\0"],
    );
    let mutated = [
        format!("/p/{id} HTTP/1.1\r\nX: y"),
        format!("/p/{id}\r\n"),
        format!("/p/{id}\n"),
        format!("/p/{id} "),
        format!("/p/{id}\t"),
        format!("/p/{id}\0"),
        format!("/p/{id}#x"),
        format!("/p/{id}?x=\r\n"),
        format!("/p/{id}?x= y"),
        format!("//b/p/{id}"),
        format!("http://b/p/{id}"),
        format!("p/{id}"),
        String::new(),
        "*".to_owned(),
    ];
    let mutated: Vec<&str> = mutated.iter().map(String::as_str).collect();
    let plain = format!("/p/{id}");
    let path = usually(random, &plain, &mutated);
    let authority = usually(
        random,
        "a",
        &["a\r\nX: y", "a b", "a@b", "", "a:80:80", "[::1]", "a/b", "a\0", "a,b", &smuggled],
    );
    let scheme = usually(random, "http", &["https", "", "ftp", "http\r\n", "http://a/", " http"]);
    let mut fields = vec![
        field(":method", method),
        field(":scheme", scheme),
        field(":path", path),
        field(":authority", authority),
    ];
    let body = match random.below(3) {
        0 => Vec::new(),
        1 => hidden.clone().into_bytes(),
        _ => format!("0\r\n\r\n{hidden}").into_bytes(),
    };
    let length = body.len();
    for _ in 0..random.below(3) {
        fields.push(match random.below(24) {
            0 => field("host", "a"),
            1 => field("host", "b"),
            2..=5 => field("content-length", &length.to_string()),
            6 => field("content-length", "0"),
            7 => field("content-length", &(length + 1).to_string()),
            8 => field("content-length", &format!("{length}, {length}")),
            9 => field("content-length", &format!("+{length}")),
            10 => field("content_length", "0"),
            11 => field("transfer-encoding", "chunked"),
            12 => field("transfer_encoding", "chunked"),
            13 => field("connection", "content-length"),
            14 => field("x", &smuggled),
            15 => field("x\r\ntransfer-encoding", "chunked"),
            16 => field("x: y\r\ncontent-length", "0"),
            17 => field("x", "y\ntransfer-encoding: chunked"),
            18 => field("X-Y", "z"),
            19 => field("expect", "100-continue"),
            20 => field("upgrade", "websocket"),
            21 => field("te", "trailers"),
            22 => field("x", "\0"),
            _ => field(" x", " y "),
        });
    }
    if random.chance(1, 20) {
        fields.push(field(":path", "/p/other"));
    }
    let trailers = random.chance(1, 6).then(|| {
        vec![match random.below(4) {
            0 => field("content-length", "0"),
            1 => field("transfer-encoding", "chunked"),
            2 => field("x", &smuggled),
            _ => field("x-trailer", "y"),
        }]
    });
    (fields, body, trailers)
}
