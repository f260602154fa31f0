use std::path::Path;

use bytes::BytesMut;

use super::super::h1::{HeadReader, upgrade};
use super::*;

const OURS: &str = "identity: { client_ip: { trusted_proxies: [10.0.0.0/8] } }";

/// What the application gets of a request.
fn carried(peer: &str, request: &str) -> String {
    let policy = Policy::read(Path::new("tollgate.yaml"), OURS).unwrap();
    let head = HeadReader::default().request(&mut BytesMut::from(request)).unwrap().unwrap();
    let framing = Framing::of_request(&head).unwrap();
    let peer = Peer::new(peer.parse().unwrap());
    let chain = policy.identity.client_ip.chain(
        peer.ip,
        head.headers.values("x-forwarded-for").map(|line| std::str::from_utf8(line).unwrap()),
    );
    let sender = Sender { peer: &peer, chain: &chain, is_tls: false, trace: None };
    let mut out = Vec::new();
    let upgrade = upgrade(&head, framing);
    write_request(
        &policy,
        (&head.method, &head.uri, &head.headers),
        "site",
        framing,
        upgrade,
        sender,
        &mut out,
    );
    String::from_utf8(out).unwrap()
}

#[test]
fn what_is_of_the_clients_connection_goes_no_further() {
    let request = "GET /a HTTP/1.1\r\nHost: site\r\nConnection: close, X-Secret\r\nconnection: X-Other\r\n\
                   Keep-Alive: 5\r\nTE: trailers\r\nTrailer: x\r\nProxy-Authorization: a\r\nProxy-Connection: b\r\n\
                   Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nX-Secret: 1\r\nx-other: 2\r\nExpect: 100-continue\r\nAccept: */*\r\n\r\n";
    let expected = "GET /a HTTP/1.1\r\nhost: site\r\nAccept: */*\r\nx-forwarded-for: 203.0.113.7\r\n\
                    x-forwarded-proto: http\r\nx-forwarded-host: site\r\nx-real-ip: 203.0.113.7\r\n\
                    forwarded: for=203.0.113.7;host=site;proto=http\r\n\r\n";
    assert_eq!(carried("203.0.113.7", request), expected);
}

#[test]
fn a_client_that_is_no_proxy_of_ours_tells_nothing_of_the_original_request() {
    let lies = "X-Forwarded-For: 10.0.0.1\r\nX_Forwarded_For: 10.0.0.2\r\nX-Real-IP: 10.0.0.3\r\n\
                Forwarded: for=10.0.0.4\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /admin\r\n\
                X-Original-URL: /admin\r\nX-Rewrite-URL: /admin\r\nProxy: http://evil\r\nTrue-Client-IP: 10.0.0.5\r\n";
    let told = carried("203.0.113.7", &format!("GET / HTTP/1.1\r\nHost: site\r\n{lies}\r\n"));
    for lie in ["10.0.0", "https", "admin", "evil"] {
        assert!(!told.contains(lie), "{lie}: {told}");
    }
}

#[test]
fn a_proxy_of_ours_is_believed_and_added_to_the_chain() {
    let says = "X-Forwarded-For: 198.51.100.9\r\nX-Forwarded-For: 10.0.0.2\r\nX-Forwarded-Proto: https\r\n\
                X-Forwarded-Host: www.example\r\nX-Forwarded-Port: 443\r\nForwarded: for=6.6.6.6\r\nProxy: a\r\n\
                X_Forwarded_Host: evil\r\nX_Forwarded_For: 6.6.6.6\r\n";
    let told = carried("10.0.0.1", &format!("GET / HTTP/1.1\r\nHost: site\r\n{says}\r\n"));
    let expected = "GET / HTTP/1.1\r\nhost: site\r\nx-forwarded-for: 198.51.100.9, 10.0.0.2, 10.0.0.1\r\n\
                    x-forwarded-proto: https\r\nx-forwarded-host: www.example\r\nx-real-ip: 198.51.100.9\r\n\
                    forwarded: for=198.51.100.9, for=10.0.0.2, for=10.0.0.1;host=site;proto=http\r\nX-Forwarded-Port: 443\r\n\r\n";
    assert_eq!(told, expected);
}

#[test]
fn an_ipv6_address_is_written_as_each_header_wants_it() {
    let told = carried("2001:db8::7", "GET / HTTP/1.1\r\nHost: site\r\n\r\n");
    assert!(told.contains("x-forwarded-for: 2001:db8::7\r\n"), "{told}");
    assert!(told.contains("forwarded: for=\"[2001:db8::7]\";host=site;proto=http\r\n"), "{told}");
    assert!(
        carried("::ffff:203.0.113.7", "GET / HTTP/1.1\r\nHost: site\r\n\r\n").contains("for=203.0.113.7;")
    );
}

#[test]
fn the_body_is_framed_anew() {
    let length = carried("203.0.113.7", "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 007\r\n\r\n");
    assert!(length.contains("content-length: 7\r\n") && !length.contains("007"), "{length}");
    let chunked =
        carried("203.0.113.7", "POST / HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: Chunked\r\n\r\n");
    assert!(chunked.contains("transfer-encoding: chunked\r\n"), "{chunked}");
    // Whoever names the framing in `Connection` does not get rid of it.
    let named =
        "POST / HTTP/1.1\r\nHost: site\r\nConnection: content-length, host\r\nContent-Length: 2\r\n\r\n";
    let named = carried("203.0.113.7", named);
    assert!(named.contains("content-length: 2\r\n") && named.contains("host: site\r\n"), "{named}");
}

#[test]
fn an_upgrade_is_asked_for_on_the_next_connection_too() {
    let asked = "GET /chat HTTP/1.1\r\nHost: site\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Key: a\r\n\r\n";
    let told = carried("203.0.113.7", asked);
    assert!(told.ends_with("connection: upgrade\r\nupgrade: websocket\r\n\r\n"), "{told}");
    assert!(told.contains("Sec-WebSocket-Key: a\r\n"), "{told}");
}

#[test]
fn what_the_client_is_told_of_limits_takes_the_place_of_the_applications_own() {
    let mut buffer = BytesMut::from(
        "HTTP/1.1 200 OK\r\nRateLimit: theirs\r\nConnection: X-Gone\r\nX-Gone: 1\r\nContent-Length: 3\r\nVia: a\r\n\r\n",
    );
    let head = HeadReader::default().response(&mut buffer).unwrap().unwrap();
    let told = [("ratelimit", "ours".to_owned())];
    let mut out = Vec::new();
    let framing = Some(Framing::Length(3));
    write_response(head.status, carried_on(&head.headers), &told, framing, Keep::Close, &mut out);
    let expected =
        "HTTP/1.1 200 OK\r\nVia: a\r\nratelimit: ours\r\ncontent-length: 3\r\nconnection: close\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
