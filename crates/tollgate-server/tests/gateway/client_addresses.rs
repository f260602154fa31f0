//! The client's address: no client chooses it, neither for the limits nor for the application.

use super::backend::Backend;
use super::running::Gateway;

/// A policy that trusts the test as a proxy, in one header, and lets each address ask once.
fn trusting(header: &str) -> String {
    format!(
        "identity: {{ client_ip: {{ trusted_proxies: [127.0.0.1], header: {header} }} }}\n\
         limits: [{{ name: per-address, key: [ip], token_bucket: {{ rate: 1/day, burst: 1 }} }}]"
    )
}

/// The proxy appends its element after what the client wrote. An open quote would take it in.
#[test]
fn an_unclosed_quote_in_forwarded_does_not_choose_the_client() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", &trusting("forwarded"));
    let ask = |forwarded: &str| gateway.connect().send("GET", "/", &[("forwarded", forwarded)], "").status;
    assert_eq!(ask("\""), 200, "the first request that counts for the proxy");
    for (number, client_wrote) in [
        "for=6.6.6.N;x=\"",
        "for=6.6.6.N;x=\"\\\"",
        "for=6.6.6.N;x=\"a\\",
        "for=\"6.6.6.N\";x=a\"",
        "for=6.6.6.N;\"",
        "for=6.6.6.N;x=\"a\"b\"",
        "for=6.6.6.N;\"x=",
        "for=6.6.6.N;x=\\\"",
    ]
    .into_iter()
    .enumerate()
    {
        let forwarded = client_wrote.replace('N', &number.to_string()) + ", for=203.0.113.7";
        assert_eq!(ask(&forwarded), 429, "{forwarded}");
    }
    // Both lines are the proxy's to read; the second is its own.
    let two = [("forwarded", "for=6.6.6.6;x=\""), ("forwarded", "for=203.0.113.9")];
    assert_eq!(gateway.connect().send("GET", "/", &two, "").status, 200);
    assert_eq!(gateway.connect().send("GET", "/", &two, "").status, 429);
    let arrived = backend.arrived().pop().unwrap();
    assert!(
        arrived.header("forwarded").unwrap().starts_with("for=203.0.113.9, for=127.0.0.1;"),
        "{arrived:?}"
    );
    assert!(arrived.headers.iter().all(|(_, value)| !value.contains("6.6.6.6")), "{arrived:?}");
}

/// Every name under which programs look for the client's address.
const NAMES: [&str; 8] = [
    "forwarded",
    "x-forwarded-for",
    "x-real-ip",
    "client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-client-ip",
];

#[test]
fn no_client_tells_the_application_its_address() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    for name in NAMES {
        let disguised = name.replace('-', "_");
        let said = [(name, "for=6.6.6.6"), (name, "6.6.6.6"), (disguised.as_str(), "6.6.6.6")];
        assert_eq!(gateway.connect().send("GET", "/", &said, "").status, 200);
        let arrived = backend.arrived().pop().unwrap();
        assert!(arrived.headers.iter().all(|(_, value)| !value.contains("6.6.6.6")), "{name}: {arrived:?}");
    }
}

/// A trusted proxy sets one header. It may pass on what a client wrote into the others.
#[test]
fn only_the_configured_address_header_of_a_trusted_proxy_reaches_the_application() {
    let backend = Backend::start();
    for (header, name, value) in [
        ("xff", "x-forwarded-for", "203.0.113.7"),
        ("forwarded", "forwarded", "for=203.0.113.7"),
        ("x-real-ip", "x-real-ip", "203.0.113.7"),
        ("cf-connecting-ip", "cf-connecting-ip", "203.0.113.7"),
    ] {
        let gateway = Gateway::start(&backend, "", &trusting(header));
        let disguised = NAMES.map(|name| name.replace('-', "_"));
        let lies = NAMES.iter().copied().filter(|lie| *lie != name);
        let lies = lies.chain(disguised.iter().map(String::as_str).filter(|lie| *lie != name));
        let mut said: Vec<(&str, &str)> = lies.map(|lie| (lie, "6.6.6.6")).collect();
        said.push((name, value));
        assert_eq!(gateway.connect().send("GET", "/", &said, "").status, 200, "{header}");
        let arrived = backend.arrived().pop().unwrap();
        assert!(arrived.headers.iter().all(|(_, value)| !value.contains("6.6.6.6")), "{header}: {arrived:?}");
        assert_eq!(arrived.header("x-forwarded-for"), Some("203.0.113.7, 127.0.0.1"), "{header}");
        assert_eq!(arrived.header("x-real-ip"), Some("203.0.113.7"), "{header}");
        let forwarded = arrived.header("forwarded").unwrap();
        assert!(forwarded.starts_with("for=203.0.113.7, for=127.0.0.1;"), "{header}: {forwarded}");
        let kept = (header == "cf-connecting-ip").then_some("203.0.113.7");
        assert_eq!(arrived.header("cf-connecting-ip"), kept, "{header}");
        // Each once: programs differ in which of two lines they take.
        for name in NAMES {
            let lines = arrived.headers.iter().filter(|(known, _)| known.replace('_', "-") == name).count();
            assert!(lines <= 1, "{header}, {name}: {arrived:?}");
        }
    }
}

/// Left of what cannot be read, anybody may have written; left of the client, the client has.
#[test]
fn headers_rebuilt_from_the_configured_one_begin_with_the_client() {
    let backend = Backend::start();
    let policy =
        "identity: { client_ip: { trusted_proxies: [127.0.0.1, 10.0.0.0/8], header: xff } }\nlimits: []\n";
    let gateway = Gateway::start(&backend, "", policy);
    for (said, real_ip, forwarded) in [
        (
            "6.6.6.6, 203.0.113.7:4711, 10.0.0.2",
            "203.0.113.7",
            "for=203.0.113.7, for=10.0.0.2, for=127.0.0.1;",
        ),
        ("6.6.6.6, unknown, 10.0.0.2", "10.0.0.2", "for=10.0.0.2, for=127.0.0.1;"),
        ("2001:db8::1", "2001:db8::1", "for=\"[2001:db8::1]\", for=127.0.0.1;"),
    ] {
        assert_eq!(gateway.connect().send("GET", "/", &[("x-forwarded-for", said)], "").status, 200);
        let arrived = backend.arrived().pop().unwrap();
        assert_eq!(arrived.header("x-real-ip"), Some(real_ip), "{said}");
        assert_eq!(arrived.header("x-forwarded-for"), Some(format!("{said}, 127.0.0.1").as_str()));
        let told = arrived.header("forwarded").unwrap();
        assert!(told.starts_with(forwarded), "{said}: {told}");
    }
    // With fewer addresses than proxies, it did not come through them.
    let gateway = Gateway::start(&backend, "", "identity: { client_ip: { trusted_hops: 2 } }\nlimits: []\n");
    assert_eq!(gateway.connect().send("GET", "/", &[("x-forwarded-for", "6.6.6.6")], "").status, 200);
    assert_eq!(backend.arrived().pop().unwrap().header("x-forwarded-for"), Some("127.0.0.1"));
}
